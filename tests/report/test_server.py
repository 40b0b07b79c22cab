"""A server that cannot be asked, as told by `stagewatch report`."""

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
