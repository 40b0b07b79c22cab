"""A log that a rank writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.log_reader import OOM


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A rank's log, with a line from before the agent."""
    path = tmp_path / "rank_5.log"
    path.write_text("before the agent: " + OOM)
    return path
