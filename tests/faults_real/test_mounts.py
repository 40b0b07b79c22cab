"""Mounts that are slow, full, read-only, broken or dead, and what the agent shows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from stagewatch.core.processes import Children
from tests.fakes.faultfs import FaultFs
from tests.faults_real.agent import Agent
from tests.waiting import wait_for

Mount = Callable[[str], FaultFs]
OPTION = "--collector.canary."


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Agents with canaries on the given mounts."""
    with Children() as children:

        def begin(*mounts: FaultFs, deadline: str = "60s") -> Agent:
            return Agent(
                children,
                tmp_path,
                f"{OPTION}mounts={','.join(str(mount.mount) for mount in mounts)}",
                f"{OPTION}every=200ms",
                f"{OPTION}interval=200ms",
                f"{OPTION}deadline={deadline}",
                f"{OPTION}floor=1MiB",
                f"{OPTION}large-bytes=0",
            )

        yield begin


def wait_success(agent: Agent, mount: FaultFs, expected: float = 1) -> None:
    name = str(mount.mount)
    wait_for(
        lambda: agent.value("io_canary_success", mount=name) == expected,
        f"io_canary_success {expected}",
    )


@pytest.mark.parametrize(
    ("fault", "operation", "phase", "error"),
    [
        ("eio", "fsync", "fsync", "EIO"),
        ("full", "write", "write", "ENOSPC"),
        ("corrupt", "read", "read", "mismatch"),
    ],
)
def test_the_canary_says_what_is_wrong_and_recovers(
    faultfs: Mount, watch: Callable[..., Agent], fault: str, operation: str, phase: str, error: str
) -> None:
    mount = faultfs("m")
    agent = watch(mount)
    name = str(mount.mount)
    wait_success(agent, mount)
    mount.fault(fault, operation)
    wait_for(
        lambda: agent.value("io_canary_error", mount=name, phase=phase, error=error),
        f"{error} in {phase}",
    )
    assert agent.value("io_canary_success", mount=name) == 0
    mount.ok()
    wait_success(agent, mount)
    wait_for(lambda: not list(mount.mount.iterdir()) or None, "no file is left")


def test_a_slow_mount_shows_in_the_phase_that_is_slow(
    faultfs: Mount, watch: Callable[..., Agent]
) -> None:
    mount = faultfs("m")
    agent = watch(mount)
    name = str(mount.mount)
    wait_success(agent, mount)
    mount.fault("slow", "fsync", 700)

    def slow() -> bool:
        return (agent.value("io_canary_seconds", mount=name, phase="fsync") or 0) >= 0.7

    wait_for(slow, "a slow fsync")
    assert agent.value("io_canary_success", mount=name) == 1


@pytest.mark.parametrize(("operation", "phase"), [("statfs", "statvfs"), ("fsync", "fsync")])
def test_a_mount_that_never_answers_is_seen_and_harms_nothing(
    faultfs: Mount, watch: Callable[..., Agent], operation: str, phase: str
) -> None:
    dead, well = faultfs("dead"), faultfs("well")
    agent = watch(dead, well, deadline="1s")
    wait_success(agent, dead)
    wait_success(agent, well)
    dead.fault("hang", operation)
    where = {"mount": str(dead.mount), "phase": phase}
    first = wait_for(lambda: agent.value("io_canary_stuck_seconds", **where), "the hang")

    # The worker waits in the kernel and takes no notice of SIGKILL, so there must be only one.
    family = psutil.Process(agent.process.pid)
    wait_for(lambda: blocked_children(family), "a worker in uninterruptible sleep")
    for _ in range(5):
        before = agent.value("io_canary_stuck_seconds", **where) or 0
        wait_for(
            lambda before=before: (
                (agent.value("io_canary_stuck_seconds", **where) or 0) > before + 0.3
            ),
            "the hang grows",
        )
        assert len(blocked_children(family)) == 1
        assert agent.healthy()
    assert (agent.value("io_canary_stuck_seconds", **where) or 0) > first

    # Nothing else suffers.
    assert agent.value("io_canary_success", mount=str(dead.mount)) == 0
    assert agent.value("io_canary_success", mount=str(well.mount)) == 1
    assert agent.value("stagewatch_collector_success", collector="canary") == 1
    assert agent.value("stagewatch_collector_stuck_seconds", collector="canary") == 0
    assert agent.value("stagewatch_collector_success", collector="clock") == 1

    dead.ok()
    wait_success(agent, dead)
    assert agent.value("io_canary_stuck_seconds", **where) is None
    wait_for(lambda: not blocked_children(family), "the worker is gone")
    wait_for(lambda: not list(dead.mount.iterdir()), "no file is left")


def test_a_helper_that_is_killed_does_not_pile_workers_up_on_a_dead_mount(
    faultfs: Mount, watch: Callable[..., Agent]
) -> None:
    mount = faultfs("m")
    agent = watch(mount, deadline="500ms")
    wait_success(agent, mount)
    mount.fault("hang", "fsync")
    where = {"mount": str(mount.mount), "phase": "fsync"}
    wait_for(lambda: agent.value("io_canary_stuck_seconds", **where), "the hang")
    family = psutil.Process(agent.process.pid)
    [worker] = wait_for(lambda: blocked_children(family), "a worker in uninterruptible sleep")
    helper = worker.parent()
    assert helper is not None
    others = set(family.children()) - {helper}  # the reader of /proc
    helper.kill()

    def another() -> bool:
        return bool(set(family.children()) - others - {helper})

    wait_for(another, "another helper")
    before = wait_for(lambda: agent.value("io_canary_stuck_seconds", **where), "it knows")
    wait_for(
        lambda: (agent.value("io_canary_stuck_seconds", **where) or 0) > before + 1, "it grows on"
    )
    assert worker.is_running()
    assert family.children(recursive=True) == family.children(), "no worker beside it"
    mount.ok()
    wait_success(agent, mount)


def test_a_checkpoint_cut_short_and_a_directory_that_hangs_are_seen(
    faultfs: Mount, tmp_path: Path
) -> None:
    mount = faultfs("m")
    name = str(mount.mount)
    (mount.mount / "step_9.pt").write_bytes(b"x" * (14 << 20))
    with Children() as children:
        flags = (f"directories={name}", "every=200ms", "deadline=1s", "interval=200ms")
        agent = Agent(children, tmp_path, *(f"--collector.checkpoints.{flag}" for flag in flags))
        where = {"directory": name, "job_id": ""}
        wait_for(
            lambda: agent.value("io_checkpoint_size_bytes", **where) == 14 << 20, "14 MiB of step 9"
        )
        checkpoint = (mount.mount / "step_10.pt").open("wb", buffering=0)
        checkpoint.write(b"x" * (2 << 20))
        mount.fault("full", "write")
        with pytest.raises(OSError, match="No space"):
            checkpoint.write(b"x" * (12 << 20))
        checkpoint.close()
        wait_for(
            lambda: (
                agent.value("io_checkpoint_size_bytes", **where) == 2 << 20
                and agent.value("io_checkpoint_growing", **where) == 0
            ),
            "2 MiB of step 10, and no more",
        )
        assert agent.value("io_checkpoint_previous_size_bytes", **where) == 14 << 20
        mount.fault("hang")
        complete = partial(agent.value, "io_checkpoint_scan_complete", directory=name)
        wait_for(lambda: complete() == 0, "the hang")
        assert agent.healthy()
        mount.ok()
        wait_for(lambda: complete() == 1, "the end of the hang")


def blocked_children(process: psutil.Process) -> list[psutil.Process]:
    """Descendants in uninterruptible sleep."""
    found = []
    for child in process.children(recursive=True):
        try:
            if child.status() == psutil.STATUS_DISK_SLEEP:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def test_an_agent_with_a_dead_mount_can_be_stopped(
    faultfs: Mount, watch: Callable[..., Agent]
) -> None:
    mount = faultfs("m")
    agent = watch(mount, deadline="500ms")
    wait_success(agent, mount)
    mount.fault("hang")
    wait_for(lambda: agent.labels("io_canary_stuck_seconds"), "the hang")
    agent.process.terminate()
    assert agent.process.wait(timeout=60) == 0
    mount.ok()
