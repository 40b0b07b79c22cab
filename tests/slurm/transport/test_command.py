"""Commands that hang, flood, fail, are missing, or leave children behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stagewatch.core.commands import CommandRunner, NoAnswer
from stagewatch.core.errors import NoData, SourceError, Stuck
from stagewatch.slurm.transport.text import SlurmCli, environment, slurm_runner
from tests.waiting import wait_for


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A directory for scripts that stand in for Slurm's commands."""
    directory = tmp_path / "bin"
    directory.mkdir()
    return directory


def script(commands: Path, name: str, body: str) -> str:
    """An executable script; returns its path."""
    path = commands / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_output_comes_back_and_the_environment_is_known(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's SQUEUE_FORMAT or SLURM_TIME_FORMAT changes nothing."""
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("SQUEUE_FORMAT", "%all")
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    monkeypatch.setenv("SLURM_CONF", "/kept")
    monkeypatch.setenv("SLURM_JWT", "token")
    found = slurm_runner().run([script(commands, "squeue", "env; printf '\\377'")], 10)
    lines = set(found.split(b"\n"))
    assert {b"SLURM_TIME_FORMAT=%s", b"SLURM_BITSTR_LEN=0", b"\xff"} <= lines
    assert {b"SLURM_CONF=/kept", b"SLURM_JWT=token"} <= lines
    assert not [line for line in lines if line.startswith((b"SQUEUE_", b"SLURM_CLUSTERS"))]


def test_command_that_never_ends_is_killed_with_its_children(
    commands: Path, tmp_path: Path
) -> None:
    """It ignores SIGTERM, and has started a child that holds its output open."""
    pids = tmp_path / "pids"
    body = f"trap '' TERM; sleep 1000 & echo $! $$ > {pids}; echo partial; wait"
    path = script(commands, "squeue", body)
    with pytest.raises(NoAnswer, match=r"^squeue gave no answer within 2 s and was killed$"):
        slurm_runner().run([path], 2)
    for pid in map(int, pids.read_text().split()):
        wait_for(lambda pid=pid: not alive(pid), "the command and its child to be gone")


def test_command_that_floods_is_killed(commands: Path) -> None:
    """Its output is not kept beyond the limit."""
    path = script(commands, "squeue", "exec cat /dev/zero")
    with pytest.raises(SourceError, match=r"^squeue printed more than 1 MiB and was killed$"):
        CommandRunner(environment({}), max_output=1 << 20).run([path], 60)


def test_killed_command_that_does_not_go_away_is_not_started_again(commands: Path) -> None:
    """In uninterruptible sleep even SIGKILL waits; there is one of them, not more."""

    class Undying:
        """A process that poll() says is still there."""

        gone = False

        def poll(self) -> int | None:
            return -9 if self.gone else None

    undying = Undying()
    runner = slurm_runner()
    runner._unreaped = undying  # type: ignore[assignment]
    path = script(commands, "squeue", "echo hello")
    with pytest.raises(Stuck, match="squeue was killed but does not go away"):
        runner.run([path], 5)
    undying.gone = True
    assert runner.run([path], 10) == b"hello\n"


def test_close_ends_a_command_that_is_running(commands: Path, tmp_path: Path) -> None:
    """So that the agent's shutdown does not wait for a hung controller."""
    started = tmp_path / "started"
    path = script(commands, "squeue", f"echo $$ > {started}; exec sleep 1000")
    runner = slurm_runner()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            runner.run([path], 500)
        except SourceError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: started.exists() and started.read_text().strip(), "the command to run")
    runner.close()
    thread.join(60)
    assert not thread.is_alive()
    assert "signal 9" in str(errors[0])


def test_missing_accounting_is_no_failure(commands: Path) -> None:
    """What sacct and sacctmgr say without slurmdbd."""
    script(commands, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    body = """echo 'You are not running a supported accounting_storage plugin
Only 'accounting_storage/slurmdbd' is supported.' >&2; exit 1"""
    script(commands, "sacctmgr", body.replace("'accounting", '"\'"accounting'))
    client = SlurmCli(prefix=commands)
    with pytest.raises(NoData, match="no accounting"):
        client.ended_jobs(10, 600)
