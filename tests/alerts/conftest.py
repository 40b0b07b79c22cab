"""A real Alertmanager with the shipped configuration, and receivers that only listen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from tests.alerts.alertmanager import BINARY, Manager, running


@pytest.fixture
def manager(children: Children, tmp_path: Path) -> Iterator[Manager]:
    """The example's configuration, with no long waits."""
    if BINARY is None:
        pytest.skip("needs alertmanager on the PATH")
    with running(children, tmp_path) as manager:
        yield manager
