"""Nothing that the tests start outlives them, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_for

OWNER = """
import sys, time
from pathlib import Path
from stagewatch_lab.slurm.keeping import Keeper
keeper = Keeper()
here = Path(sys.argv[1])
daemon = "sleep 1000 & echo $! > orphan; setsid sleep 1000 & echo $! > session; exec sleep 1000"
pid = keeper.spawn(["sh", "-c", daemon], env={"PATH": "/usr/bin:/bin"}, log=here / "log", cwd=here)
(here / "directory").write_text(str(keeper.make_directory("kept-")))
(here / "pids").write_text(f"{pid} {keeper.pid}")
time.sleep(1000)
"""


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def read(path: Path) -> str:
    """A file's text, empty until it is there."""
    return path.read_text().strip() if path.exists() else ""


def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the owner takes daemons, their orphans and the keeper with it."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        names = ("pids", "orphan", "session")
        wait_for(lambda: all(read(tmp_path / name) for name in names), "the processes to start")
        pids = [int(pid) for name in names for pid in read(tmp_path / name).split()]
        assert all(alive(pid) for pid in pids)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    wait_for(lambda: not any(alive(pid) for pid in pids), "every process to be gone")
    directory = Path(read(tmp_path / "directory"))
    wait_for(lambda: not directory.exists(), "the kept directory to be removed")
