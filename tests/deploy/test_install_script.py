"""What install.sh says to somebody who gives it too little; what it does is in test_systemd."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.engine import ROOT


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which everybody is an ordinary user, so that no mistake can install anything."""
    own = tmp_path / "id"
    own.write_text("#!/bin/sh\necho 1000\n")
    own.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def install(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(ROOT / "deploy" / "install.sh"), *arguments],
        env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "name an agent"),
        (("node", "--purge"), "--purge goes with --uninstall"),
        (("judge", "--uninstall"), "--uninstall removes every agent"),
        (("nodes",), "unknown argument nodes"),
    ],
)
def test_whoever_does_not_say_what_to_do_gets_the_usage(
    path: str, arguments: tuple[str, ...], problem: str
) -> None:
    done = install(path, *arguments)
    assert done.returncode == 2
    first, usage, *_ = done.stderr.splitlines()
    assert problem in first
    assert usage == "Usage: deploy/install.sh [--no-start] node|slurm|judge ..."


def test_the_help_says_what_stays_after_a_purge(path: str) -> None:
    done = install(path, "--help")
    assert done.returncode == 0
    assert "user and group stagewatch stay" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Needs root")


@pytest.mark.parametrize("arguments", [("node",), ("--uninstall",)])
def test_only_root_installs_and_removes(path: str, arguments: tuple[str, ...]) -> None:
    done = install(path, *arguments)
    assert (done.returncode, done.stderr) == (2, "install: must run as root\n")
