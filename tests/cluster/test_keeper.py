"""Nothing that the tests start outlives them, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stagewatch_lab.slurm.keeping import Keeper
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


HASTY_OWNER = """
import sys
from pathlib import Path
from stagewatch_lab.slurm import keeping
keeping.REMOVE_SECONDS = 0
here = Path(sys.argv[1])
with keeping.Keeper() as keeper:
    pid = keeper.spawn(["sleep", "1000"], env={"PATH": "/usr/bin:/bin"}, log=here / "log", cwd=here)
    directory = keeper.make_directory("kept-")
    for number in range(5000):
        (directory / f"job.{number}").mkdir()
print(pid, directory, Path(f"/proc/{pid}").exists())
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


def test_directories_are_removed_though_the_owner_does_not_wait(tmp_path: Path) -> None:
    """Its processes are gone when it goes on, and nobody who reads its output waits either."""
    done = subprocess.run(
        [sys.executable, "-c", HASTY_OWNER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    pid, directory, exists = done.stdout.split()
    assert (exists, done.stderr) == ("False", "")
    wait_for(lambda: not Path(directory).exists(), "the kept directory to be removed")
    assert not alive(int(pid))


def test_keeper_that_hangs_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner waits for a while, not for ever."""
    monkeypatch.setattr("stagewatch_lab.slurm.keeping.KILL_SECONDS", 0.2)
    with Keeper() as keeper:
        env = {"PATH": "/usr/bin:/bin"}
        pid = keeper.spawn(["sleep", "1000"], env=env, log=tmp_path / "log", cwd=tmp_path)
        os.kill(keeper.pid, signal.SIGSTOP)
    wait_for(lambda: not alive(pid), "the process to be gone")
    assert not alive(keeper.pid)


def test_keeper_reports_how_a_process_ended(tmp_path: Path) -> None:
    """The exit status, or the signal as a negative number, once it has ended."""
    with Keeper() as keeper:
        env = {"PATH": "/usr/bin:/bin"}
        pid = keeper.spawn(["sh", "-c", "exit 3"], env=env, log=tmp_path / "log", cwd=tmp_path)
        assert wait_for(lambda: keeper.status(pid), "the process to end") == 3
        pid = keeper.spawn(["sleep", "1000"], env=env, log=tmp_path / "log", cwd=tmp_path)
        assert keeper.status(pid) is None
        os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: keeper.status(pid), "the process to be killed") == -9
