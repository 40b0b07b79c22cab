"""Tests that share a Slurm, a lab or an RL system must share a worker."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("live")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="all tests in one process")
def test_groups_are_kept_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist says so in the test's id; with some versions of pytest it silently does not."""
    assert request.node.nodeid.endswith("@live")
