"""`stagewatch qualify` in this process, with a past of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagewatch.cli import main


@dataclass
class Done:
    """What the command has printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


Qualify = Callable[..., Done]


@pytest.fixture
def qualify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Qualify:
    def run(*arguments: str) -> Done:
        history = tmp_path / "state" / "history.json"
        common = ["qualify", "--timeout", "120s", "--history", str(history)]
        status = main([*common, *arguments])
        return Done(status, *capsys.readouterr())

    return run
