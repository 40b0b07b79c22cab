"""The second pass of `make test` repeats what failed, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import pathlib, pytest

@pytest.mark.xdist_group("live")
@pytest.mark.parametrize("scene", ["one", "two"])
def test_grouped(scene):
    assert scene == "two"

def test_alone():
    assert pathlib.Path("again").exists()

def test_well():
    pass
"""


def test_a_failure_within_a_group_is_repeated(tmp_path: Path) -> None:
    conftest = Path(__file__).with_name("conftest.py").read_text()
    hooks = conftest[conftest.index("MINUTES = ") : conftest.index("@pytest.fixture")]
    (tmp_path / "conftest.py").write_text(f"import re, pytest\n{hooks}")
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]")

    def passes(*arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "-n", "1", "--dist", "loadgroup"]
        command += ["-p", "no:cloudcoil", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False
        ).stdout

    assert "2 failed, 2 passed" in passes()
    (tmp_path / "again").touch()
    assert "1 failed, 1 passed" in passes("--last-failed", "--last-failed-no-failures", "none")
    assert "1 failed in" in passes("--last-failed", "--last-failed-no-failures", "none")
