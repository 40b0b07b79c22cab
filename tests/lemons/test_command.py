"""`stagewatch lemons` on a Prometheus that has seen twelve nodes, and `check` on what it writes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.core.processes import Children
from stagewatch.lemons import notice
from stagewatch.prometheus.api import PrometheusApi
from tests.check.test_command import check, slow
from tests.dashboards.boards import panel_queries
from tests.lemons.fleet import CLUSTER, END, LEMON, NAMED, fleet
from tests.report.filled import filled_prometheus
from tests.running import run_stagewatch

pytestmark = pytest.mark.xdist_group("lemons")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Children() as children:
        directory = tmp_path_factory.mktemp("lemons") / "p"
        yield filled_prometheus(children, directory, *fleet("\x1b]0;\n"))


lemons = partial(run_stagewatch, "lemons")


@pytest.fixture(scope="module")
def east(url: str) -> dict[str, Any]:
    """The JSON of the only cluster."""
    done = lemons("--prometheus", url, "--since", "20d", "--json")
    assert done.returncode == 0, done.stderr
    (east,) = json.loads(done.stdout)
    return dict(east)


def test_the_lemon_is_told_with_its_gpu_and_what_it_cost(east: dict[str, Any]) -> None:
    nodes = {row["node"]: row for row in east["nodes"]["rows"]}
    assert [name for name, row in nodes.items() if row["lemon"]] == [LEMON]
    lemon = nodes[LEMON]
    assert (lemon["named"], lemon["interruptions"]) == (len(NAMED), len(NAMED))
    assert lemon["jobs"] == ["540"]
    assert lemon["hours"] == pytest.approx(20 * 24, rel=0.01)
    # Ten minutes each, and five for which a server looks back, as nothing marks the end here.
    assert lemon["gpu_hours_lost"] == pytest.approx(len(NAMED) * 96 / 4, rel=0.1)
    gpus = [row for row in east["gpus"]["rows"] if row["lemon"]]
    assert [(row["uuid"], row["gpu"]) for row in gpus] == [(f"GPU-{LEMON}-3", "3")]


def test_other_nodes_are_told_by_what_befell_them(east: dict[str, Any]) -> None:
    nodes = {row["node"]: row for row in east["nodes"]["rows"]}
    kinds = ("named", "slow", "xid", "out")
    assert [nodes["n07"][kind] for kind in kinds] == [0, 1, 0, 0]
    assert [nodes["n08"][kind] for kind in kinds] == [0, 0, 0, 1]
    assert nodes["n08"]["gpu_hours_lost"] == pytest.approx(8 * 4, rel=0.1)
    assert [nodes["n10"][kind] for kind in kinds] == [0, 0, 1, 0]
    assert nodes["n05"]["interruptions"] == 0, "named together with another node"
    assert nodes["n09"]["interruptions"] == 0, "maintenance"


def test_the_table_is_for_people(url: str) -> None:
    done = lemons("--prometheus", url, "--since", "20d")
    assert done.returncode == 0, done.stderr
    first, header, worst, *_ = done.stdout.splitlines()
    assert first.startswith("12 nodes of east, ")
    assert ": 11 interruptions in 5,7" in first
    assert header.startswith("node named (jobs)")
    assert worst.startswith(f"{LEMON} ") and worst.endswith("  LEMON")
    assert f"lemons: {LEMON}, {LEMON} GPU 3 (GPU-{LEMON}-3)\n" in done.stdout
    assert "\x1b" not in done.stdout


def test_failed_jobs_come_from_accounting(url: str, tmp_path: Path) -> None:
    (sacct := tmp_path / "sacct").write_text(
        "#!/bin/sh\ncase $* in *--state=BF,F,NF,OOM*NodeList*) ;; *) exit 1 ;; esac\n"
        "printf '%s\\n' 'n[02-04]' n03 'None assigned' 'n0[;' 'n03,n11' ''\n"
    )
    sacct.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = lemons("--prometheus", url, "--since", "20d", "--accounting", "--json", PATH=path)
    nodes = {row["node"]: row for row in json.loads(done.stdout)[0]["nodes"]["rows"]}
    failed = {name: nodes[name]["failed_jobs"] for name in ("n02", LEMON, "n11", "n00")}
    assert failed == {"n02": 1, LEMON: 3, "n11": 1, "n00": 0}


def test_the_board_tells_the_same_lemon(url: str) -> None:
    (least, days) = [
        query.expr for query in panel_queries("slurm-jobs") if query.where.startswith("Lemons ")
    ]
    with closing(PrometheusApi(url)) as api:
        for expression in (least, days):
            asked = expression.replace("$cluster", CLUSTER).replace("$__range", "20d")
            (row,) = api.query(asked, END)
            assert row.labels["node"] == LEMON
            assert row.value == len(NAMED) if expression is days else 1 < row.value < 8


def test_a_prolog_is_told_by_the_file(url: str, tmp_path: Path) -> None:
    file = tmp_path / "lemons.json"
    done = lemons("--prometheus", url, "--since", "20d", "--cluster", CLUSTER,
                  "--write", str(file))  # fmt: skip
    assert done.returncode == 0, done.stderr
    skip = ("--skip", "clock,agent,driver,gpu_count", "--lemons", str(file))
    asked = slow(*skip, "--node", LEMON)
    assert asked.stdout == (
        f"warn: {LEMON} is a lemon: 8 interruptions in 20 d, where the fleet's rate makes 0.9\n"
    )
    assert asked.returncode == 1
    assert slow(*skip, "--node", "n00").returncode == 0


BROKEN = "is not a file of `stagewatch lemons`"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[]", BROKEN),
        (b'{"written": 1e999, "nodes": {}}', BROKEN),
        (b'{"written": NOW, "nodes": {"n": 3}}', BROKEN),
        (b'{"written": 1000, "nodes": {"n": "why"}}', "is older than a week"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    (file := tmp_path / "lemons.json").write_bytes(content.replace(b"NOW", b"%.0f" % time.time()))
    with closing(notice.Reader(file)) as reader, pytest.raises(SourceError, match=told):
        reader.reason("n", time.monotonic() + 60)


def test_a_file_that_somebody_else_wrote_is_a_warning_at_most(tmp_path: Path) -> None:
    content = b'{"written": NOW, "nodes": {"n": "a\\u001b\\nb"}}'
    (file := tmp_path / "lemons.json").write_bytes(content.replace(b"NOW", b"%.0f" % time.time()))
    done = slow("--skip", "clock,agent,driver,gpu_count", "--lemons", str(file), "--node", "n")
    assert (done.returncode, done.stdout) == (1, "warn: n is a lemon: a? b\n")


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    (file := tmp_path / "lemons.json").touch()
    os.truncate(file, notice.MAX_BYTES << 20)
    with closing(notice.Reader(file)) as reader, pytest.raises(SourceError, match=BROKEN):
        reader.reason("n", time.monotonic() + 60)


def test_a_file_that_is_not_there_or_hangs_does_not_hold_up_a_prolog(tmp_path: Path) -> None:
    skip = ("--skip", "clock,agent,driver,gpu_count", "--lemons")
    assert slow(*skip, str(tmp_path / "none")).stdout == f"warn: {tmp_path}/none cannot be read\n"
    os.mkfifo(pipe := tmp_path / "pipe")
    assert check(*skip, str(pipe)).stdout == f"warn: {pipe} does not answer\n"


def test_a_cluster_that_nobody_knows_is_told(url: str) -> None:
    done = lemons("--prometheus", url, "--since", "1d", "--cluster", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no job has had a node" in done.stderr
