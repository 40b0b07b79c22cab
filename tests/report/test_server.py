"""What cannot be reported, or no server be asked for, as told by `stagewatch report`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stagewatch.cli import main
from stagewatch.demo.stack import free_port


def report(url: str, directory: Path) -> int:
    """The exit status."""
    given = ["report", "experiment", "--fault", "f", "--prometheus", url]
    return main([*given, "--output", str(directory / "o")])


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert report("http://127.0.0.1:9", tmp_path) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "stagewatch: report needs matplotlib: pip install 'stagewatch[report]'"


def test_nobody_at_the_url_is_one_line_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert report(url, tmp_path) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"stagewatch: {url} does not answer: connection refused"


SERVERS = {"experiment": "contention_url", "goodput": "paid_url", "recovery": "hyperpod_url"}


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        (
            "experiment --fault nope",
            1,
            "no fault 'nope' was marked in the last 31 days (--days); there is: cpu-1",
        ),
        ("experiment --fault cpu-1 --job 9", 1, "job '9' had no ranks around"),
        ("experiment --fault cpu-1 --baseline yesterday", 2, "such as 10m-before, or START..END"),
        (
            "experiment --fault cpu-1 --baseline 2030-01-01..2030-01-02",
            2,
            "must end before the injection",
        ),
        ("goodput --month 2020-01", 1, "load alerts/goodput.rules.yaml into Prometheus"),
        ("goodput --month 2026-10 --cluster west", 1, "no job:goodput_gpus:count or cluster:"),
        ("goodput --month 2026-10 --price -1", 2, "must be an amount of money above zero"),
        ("goodput --month 2026-10 --price h100=x", 2, "must be an amount of money above zero"),
        ("goodput --month 2026-10 --price h100=-1", 2, "must be an amount of money above zero"),
        ("recovery --from 2020-01-01 --to 2020-01-02", 1, "no agent was scraped from 2020-01-01"),
        ("recovery --cluster other", 1, "no agent of cluster 'other' was scraped"),
        ("recovery --month 2100-01", 2, "--month 2100-01 has not begun"),
        ("recovery --month 2020-01 --to 1h", 2, "exclude each other"),
        ("recovery --from soon", 2, "--from 'soon': must be a time or a duration"),
        ("recovery --from 1h --to 2h", 2, "--from and --to: the end ("),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_line(
    asked: str,
    status: int,
    text: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = request.getfixturevalue(SERVERS[asked.split(maxsplit=1)[0]])
    given = ["--prometheus", url, "--output", str(tmp_path / "o")]
    assert main(["report", *asked.split(), *given]) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and text in lines[0]
    assert not list(tmp_path.iterdir())
