"""What one user's records, as many and as full as may be, do to another's ranks as installed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stagewatch.core.processes import Children
from tests.as_installed import as_user, need_users, start, systemd
from tests.bench.bench_neighbour import FILES
from tests.exposition import series_of
from tests.fakes.faultfs import FaultFs
from tests.fakes.stuck import get_stuck, getting_stuck
from tests.full_records import NEIGHBOUR, neighbour
from tests.node_agent import TRAINER, NodeAgent
from tests.running import Python, clean_environ
from tests.waiting import wait_for

RANKS = 8
PATTERNS = ("oom_error=out of memory", "size_error=Batch.*size.*differs", "all_error=^(x+)+$")
LOGS = """
import json, sys, time
while True:
    for job, line in json.loads(sys.argv[2]).items():
        with open(f"{sys.argv[1]}/{job}_0.log", "a") as log:
            log.write(f"{line}\\n" * ((1 << 18) // len(line)))
    time.sleep(1)
"""
"""256 KiB a second of lines into each log."""
AGENT_UID = 60_030

pytestmark = [pytest.mark.xdist_group("as_installed"), pytest.mark.timeout(600)]


@pytest.fixture
def prepared(children: Children) -> Iterator[NodeAgent]:
    """An agent beside eight ranks of a job, before it starts."""
    need_users()
    with tempfile.TemporaryDirectory(prefix="sw-", dir="/dev/shm") as name:
        agent = NodeAgent(
            Path(name),
            *("--collector.kmsg.state-file", f"{name}/kmsg.json"),
            *("--collector.incidents.dir", f"{name}/incidents"),
        )
        for rank in range(RANKS):
            children.start(
                [sys.executable, "-c", TRAINER, str(rank)],
                environ=os.environ | {"STAGEWATCH_DIR": str(agent.ranks)},
                log=Path(name, "ranks.log"),
            )
        yield agent
        children.stop()  # who writes there still
        children.stop()  # before the directory goes that they write to


@pytest.fixture
def agent(prepared: NodeAgent, children: Children) -> NodeAgent:
    """The same, by the unit."""
    start(systemd(), prepared, children, AGENT_UID)
    return prepared


def honest(agent: NodeAgent) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """The series of the eight ranks; some are there only once the agent has looked twice.

    How a rank waits is a label, and another at any moment."""
    found = {key for key in agent.series() if dict(key[1]).get("job_id") == "540"}
    return {
        (name, frozenset(pair for pair in labels if pair[0] != "class" or pair[1] == "unknown"))
        for name, labels in found
    }


def whole(agent: NodeAgent) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """The same, once all ranks show as many, and the agent knows how they wait."""

    def all_alike() -> set[tuple[str, frozenset[tuple[str, str]]]]:
        found = honest(agent)
        names = [name for name, _ in found]
        some = ("rl_rank_stage_last_seconds", "rl_rank_step_work_seconds_total")
        alike = all(names.count(name) == RANKS for name in some)
        alike &= not any(("class", "unknown") in labels for _, labels in found)
        return found if alike and "rl_stage_completed_age_seconds" in names else set()

    return wait_for(all_alike, "all series of eight ranks")


def looked(agent: NodeAgent, collector: str = "ranks") -> float:
    """When a collector has succeeded last, as Unix time."""
    name = "stagewatch_collector_last_success_timestamp_seconds"
    return agent.value(name, collector=collector) or 0.0


def left_out(agent: NodeAgent) -> float | None:
    return agent.value("stagewatch_rank_series_left_out", uid=str(NEIGHBOUR))


def memory(agent: NodeAgent) -> float:
    """MiB of the agent and its children."""
    process = psutil.Process(agent.process.pid)
    everybody = [process, *process.children(recursive=True)]
    return sum(one.memory_full_info().uss for one in everybody) / 2**20


def test_a_neighbour_with_256_full_records_takes_nothing_from_others(
    agent: NodeAgent, children: Children
) -> None:
    telling = ("rl_rank_st", "rl_stage", "rl_progress")
    before = {key for key in whole(agent) if key[0].startswith(telling)}
    neighbour(children, agent.ranks, agent.directory / "log", 256)

    def all_of_both() -> str:
        """A page that has looked at all records."""
        page = agent.get("/metrics")[1]
        found = set(series_of(page))
        jobs = {dict(pairs).get("job_id") for name, pairs in found if name == "rl_rank_up"}
        return page if before <= found and len(jobs) == 257 else ""

    page = wait_for(all_of_both, "all series of the eight ranks beside 256 of the neighbour")
    assert len(page.encode()) < 4_000_000
    assert memory(agent) < 256
    assert series_of(page)["stagewatch_rank_series_left_out", frozenset({("uid", str(NEIGHBOUR))})]
    wait_for(lambda: f"series of user {NEIGHBOUR}" in agent.get("/")[1], "the page tells it")


def test_a_neighbour_who_renews_his_records_does_not_fill_the_page_in_time(
    agent: NodeAgent, children: Children
) -> None:
    """Eight records that are others every two seconds: the totals of ended jobs remain."""
    neighbour(children, agent.ranks, agent.directory / "log", 8, 2)
    wait_for(
        lambda: len({dict(pairs).get("job_id") for _, pairs in agent.series()}) > 48, "many jobs"
    )
    page = agent.get("/metrics")[1]
    assert len(page.encode()) < 4_000_000
    assert memory(agent) < 256
    assert left_out(agent)


def test_100_000_files_of_a_neighbour_hide_no_rank(prepared: NodeAgent, children: Children) -> None:
    """Made before the agent starts, and more than the unit's mount holds."""
    for path in (prepared.directory, prepared.ranks):
        path.chmod(0o1777)
    made = children.start(
        as_user(prepared.directory / "user", NEIGHBOUR, sys.executable, "-c", FILES,
                str(prepared.ranks), "100000"),
        environ=clean_environ({"HOME": "/"}),
        log=prepared.directory / "user.log",
    )  # fmt: skip
    assert made.wait() == 0, (prepared.directory / "user.log").read_text()
    assert sum(1 for _ in os.scandir(prepared.ranks)) >= 100_000
    start(systemd(), prepared, children, AGENT_UID)
    before = whole(prepared)
    for _ in range(8):  # looks at the directory that they would be missing from
        last = looked(prepared)
        wait_for(lambda last=last: looked(prepared) != last, "another look")  # type: ignore[misc]
        assert before <= honest(prepared)
    assert memory(prepared) < 256


ORDINARY = """
set -eu
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/stagewatch/ranks
mount --bind "$1" /run/stagewatch/ranks
shift
exec "$@"
"""
"""With a directory in the place of the one that packages make."""


def test_a_mount_that_never_answers_in_place_of_what_the_agent_reads_hides_no_rank(
    prepared: NodeAgent, children: Children, faultfs_program: Path
) -> None:
    """In place of a record, of a marker, of a user's private directory and of a job's logs."""
    at = prepared.arguments.index("--record-dir")
    del prepared.arguments[at : at + 2]
    logs, dead = prepared.directory / "logs", prepared.directory / "dead"
    (logs / "540").mkdir(parents=True)
    dead.mkdir()
    (log := logs / "540" / "0.log").touch()
    files = ",".join(f"{path}/{{job_id}}/0.log" for path in (logs, dead))
    prepared.arguments += ["--collector.logs.files", files, "--collector.logs.deadline", "2s"]
    private = Path(f"/dev/shm/stagewatch-{NEIGHBOUR}")
    points = {  # whether it lets the agent in
        prepared.ranks / "2-00000002.rank": True,
        prepared.faults / "f.json": True,
        private: True,
        logs / "541": False,  # as of a user without user_allow_other in /etc/fuse.conf
        dead / "542": True,
    }
    with ExitStack() as stack:
        stack.callback(lambda: private.rmdir() if private.exists() else None)
        for number, (point, others) in enumerate(points.items()):
            where = prepared.directory / f"fuse-{number}"
            mount = FaultFs(faultfs_program, where, point, others=others)
            stack.callback(mount.close)
            mount.fault("hang")
        how = systemd()
        ordinary = ("sh", "-c", ORDINARY, "sh", str(prepared.ranks), *how.command)
        start(replace(how, command=ordinary), prepared, children, AGENT_UID)
        before = whole(prepared)
        for kind in ("records", "markers"):
            name = f"stagewatch_{kind}_skipped"
            assert sum(v for (found, _), v in prepared.series().items() if found == name) == 1
        wait_for(lambda: prepared.value("log_stuck_seconds", path=f"{dead}/{{job_id}}/0.log"),
                 "it tells which logs it cannot read")  # fmt: skip
        log.write_text("CUDA out of memory\n")
        wait_for(
            lambda: prepared.value("log_matches_total", job_id="540", pattern="cuda_oom") == 1,
            "another's log is read",
        )
        for name in ("census", "faults", "ranks", "stages", "logs"):
            wait_for(
                lambda name=name: looked(prepared, name) > time.time() - 20,  # type: ignore[misc]
                f"{name} goes on",
            )
        assert before <= honest(prepared)


@pytest.mark.parametrize("how", ["exec", "mmap"])
def test_a_process_that_is_stuck_on_a_silent_mount_hides_no_rank(
    prepared: NodeAgent,
    children: Children,
    python: Python,
    faultfs: Callable[[str], FaultFs],
    how: str,
) -> None:
    mount = faultfs("silent")
    told = {"STAGEWATCH_DIR": str(prepared.ranks), "STAGEWATCH_JOB_ID": "541", "RANK": "0"}
    script = getting_stuck(python, mount, how, **told)
    get_stuck(script, mount)
    start(systemd(), prepared, children, AGENT_UID)
    before = whole(prepared)
    wait_for(lambda: prepared.value("rl_rank_up", job_id="541") == 1, "the rank that is stuck")
    for name in ("ranks", "rank_io", "net", "work", "stages"):
        wait_for(
            lambda name=name: looked(prepared, name) > time.time() - 3,  # type: ignore[misc]
            f"{name} goes on",
        )
    assert before <= honest(prepared)


def test_names_and_numbers_that_a_neighbour_makes_up_reach_nobody_else(
    agent: NodeAgent, children: Children
) -> None:
    """Ten thousand names that forge lines of the page, and numbers that no clock has."""
    before = whole(agent)
    hostile = (sys.executable, "-m", "tests.lab.hostile_rank", "-", "0", "-", '{"job_id": "541"}')
    children.start(
        as_user(agent.directory / "user", NEIGHBOUR, *hostile),
        environ=clean_environ({"HOME": "/", "STAGEWATCH_DIR": str(agent.ranks)}),
        log=agent.directory / "user.log",
    )
    wait_for(
        lambda: (agent.value("stagewatch_record_entries_dropped", job_id="541") or 0) > 1000,
        "a thousand names too many",
    )
    page = agent.get("/metrics")[1]
    assert before <= honest(agent)
    assert len(page.encode()) < 4_000_000
    told = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    assert len(told) == sum(1 for line in page.split("\n") if line and line[0] != "#")
    assert {sample.name for sample in told if sample.labels.get("job_id") == "541"}
    for name in ("ranks", "stages"):
        wait_for(lambda name=name: looked(agent, name) > time.time() - 3, f"{name} goes on")  # type: ignore[misc]
    assert memory(agent) < 256


SLOW = {
    "541": "NCCL " * 800,
    "542": "HTTP/1." + "1." * 2000,
    "543": "Batch size " * 400,
    "544": "x" * 64 + "!",
    "545": "Batch" * 20_000,
}
"""What takes patterns long: those that are built in, and a site's of quadratic and other time."""


def test_lines_of_a_neighbours_logs_that_make_patterns_slow_hide_no_other_log(
    prepared: NodeAgent, children: Children
) -> None:
    logs = prepared.directory / "logs"
    logs.mkdir()
    logs.chmod(0o1777)
    prepared.arguments += ["--collector.logs.files", str(logs / "{job_id}_{rank}.log")]
    prepared.arguments += ["--collector.logs.patterns", ",".join(PATTERNS)]
    start(systemd(), prepared, children, AGENT_UID)
    before = whole(prepared)
    found = partial(prepared.value, "log_matches_total", pattern="oom_error")
    children.start(
        as_user(prepared.directory / "user", NEIGHBOUR, sys.executable, "-c", LOGS,
                str(logs), json.dumps(SLOW)),
        environ=clean_environ({"HOME": "/"}),
        log=prepared.directory / "user.log",
    )  # fmt: skip
    wait_for(lambda: prepared.value("log_skipped_bytes_total"), "lines take too long")
    for number in range(1, 4):
        with (logs / "540_0.log").open("a") as log:
            log.write("CUDA out of memory\n")
        wait_for(lambda: found(job_id="540") == number, "the line of another's log")  # noqa: B023
    assert before <= honest(prepared)
    assert not prepared.value("log_stuck_seconds")


HANGS = """
import socket, stagewatch, sys, time
stagewatch.init(job_id=sys.argv[1], rank=0, world_size=2)
ours, theirs = socket.socketpair()
def lost_peer():
    ours.recv(1)
with stagewatch.stage("train"):
    for step in range(100):
        stagewatch.heartbeat(step=step)
        time.sleep(0.005)
    print("hangs", flush=True)
    lost_peer()
"""


def test_a_library_on_a_mount_that_never_answers_hides_no_stack_of_others(
    prepared: NodeAgent, children: Children, faultfs_program: Path
) -> None:
    """Who takes the stack of a rank reads what it runs."""
    libraries = [*Path(sys.base_prefix, "lib").glob("libpython3.*.so*")]
    if not libraries:
        pytest.skip("this Python has no shared library, which could lie there")
    where = prepared.directory / "fuse"
    mount = FaultFs(faultfs_program, where, prepared.directory / "lib", others=True)
    with closing(mount):
        for file in libraries:
            shutil.copyfile(file, mount.mount / file.name)
        environ = clean_environ({"HOME": "/", "STAGEWATCH_DIR": str(prepared.ranks)})
        start(systemd(), prepared, children, AGENT_UID)
        for job, more in (("541", {"LD_LIBRARY_PATH": str(mount.mount)}), ("542", {})):
            log = prepared.directory / f"{job}.log"
            children.start(
                as_user(prepared.directory / job, NEIGHBOUR, sys.executable, "-c", HANGS, job),
                environ=environ | more,
                log=log,
            )
            wait_for(lambda log=log: "hangs" in log.read_text(), "a job that hangs")  # type: ignore[misc]
            if more:
                mount.fault("hang")

        def placed() -> set[str]:
            """The jobs of which it is told where they hang."""
            name = "rl_rank_stack_frame_info"
            told = [dict(pairs) for found, pairs in prepared.series() if found == name]
            return {one["job_id"] for one in told if "lost_peer" in str(one)}

        wait_for(placed, "where the other one hangs", limit=150, pause=1.0)
        assert placed() == {"542"}
