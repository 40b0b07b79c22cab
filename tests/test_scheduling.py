"""A run of tests ends when its workers die, and every test has its result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import os, signal, pytest

@pytest.mark.xdist_group("first")
@pytest.mark.parametrize("n", range(4))
def test_group(n):
    if n == 1:
        os._exit(1)

def test_alone():
    pass

@pytest.mark.timeout(1, method="thread")
def test_hangs():
    signal.pause()

@pytest.mark.parametrize("n", range(4))
def test_last(n):
    pass
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_test_that_kills_its_worker_fails_and_all_others_are_run(
    workers: int, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("from tests.scheduling import *\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    plugins = ["-p", "xdist", "-p", "pytest_timeout"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-n", str(workers), "--dist", "loadgroup"],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=200,  # one that waits for ever is killed
    )
    assert "2 failed, 8 passed" in run.stdout, run.stdout
    for test in ("test_group[1]", "test_hangs"):
        assert f"FAILED test_suite.py::{test}" in run.stdout
