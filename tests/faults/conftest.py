"""What the tests of fault injection share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from tests.faults.injecting import Injector
from tests.running import Python, Script


@pytest.fixture
def injector(children: Children, tmp_path: Path) -> Iterator[Injector]:
    """Runs injections; whatever a failed test leaves is undone."""
    injector = Injector(children, tmp_path)
    yield injector
    injector.close()


@pytest.fixture
def victim(python: Python) -> Script:
    """A process to be stopped: whether it is, can be seen from outside."""
    script = python("import time; print('here'); time.sleep(600)")
    script.said("here")
    return script
