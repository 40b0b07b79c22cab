"""Processes that are stopped and killed: the right ones, and only those."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from stagewatch.core.errors import StagewatchError
from stagewatch.core.processes import Children
from stagewatch.faults.processes import Gone, Identity, refuse_vital
from tests.faults.injecting import Injector, stopped
from tests.running import Python, Script
from tests.waiting import wait_for

RANK = """
import sys, stagewatch, time
stagewatch.init(sys.argv[1], job_id=540, rank=int(sys.argv[2]), directory=sys.argv[3])
print("began")
while True:
    time.sleep(0.05)
"""


def test_a_stopped_rank_goes_on_after(injector: Injector, python: Python, record_dir: Path) -> None:
    rank = python(RANK, "train", 5, record_dir)
    rank.said("began")
    script = injector.hold("process-stop", "--target=540:5", "--scenario=S0")
    assert stopped(rank)
    assert injector.markers()[0].scenario == "S0"
    script.process.send_signal(signal.SIGTERM)
    script.finish(143)
    injector.gone()
    wait_for(lambda: not stopped(rank), "the rank to go on")
    assert rank.process.poll() is None


def test_a_killed_process_is_gone_and_its_marker_closed(injector: Injector, victim: Script) -> None:
    said = injector.run("inject", "process-kill", f"--target={victim.pid}", "--stage=train")
    assert f"kill -KILL {victim.pid}" in said and "not brought back" in said
    victim.finish(-signal.SIGKILL)
    (marker,) = injector.markers()
    assert marker.end is not None and marker.fault_type == "process_kill"
    injector.gone()


def test_a_stopped_process_that_dies_ends_the_fault(injector: Injector, victim: Script) -> None:
    script = injector.hold("process-stop", f"--target={victim.pid}")
    victim.kill()
    assert f"process {victim.pid} has ended" in script.finish(1)
    injector.gone()


def test_a_number_that_another_process_has_now_is_not_signalled(victim: Script) -> None:
    now = Identity.of(victim.pid)
    before = Identity(now.pid, now.start_ticks - 1)
    assert not before.alive
    with pytest.raises(Gone):
        before.send(signal.SIGKILL)
    assert now.alive


@pytest.mark.parametrize("pid", [1, 2])
def test_init_and_threads_of_the_kernel_are_refused(pid: int) -> None:
    if pid == 2 and Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("sees no thread of the kernel from this PID namespace")
    with pytest.raises(StagewatchError, match="refused"):
        refuse_vital(Identity.of(pid))


def test_the_command_itself_and_what_started_it_are_refused(injector: Injector) -> None:
    with pytest.raises(StagewatchError, match="this command itself"):
        refuse_vital(Identity.of(os.getpid()))
    said = injector.refused("inject", "process-kill", f"--target={os.getpid()}", status=1)
    assert "refused" in said


def test_the_agent_that_watches_is_not_stopped(
    injector: Injector, children: Children, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "stagewatch.cli", "node", "--listen=127.0.0.1:0"]
    agent = children.start(argv, log=tmp_path / "agent.log")
    line = Path(f"/proc/{agent.pid}/cmdline")
    wait_for(lambda: b"stagewatch.cli" in line.read_bytes(), "the agent's command line")
    said = injector.run("inject", "process-stop", f"--target={agent.pid}", "--for=5s", status=1)
    assert "belongs to stagewatch" in said
