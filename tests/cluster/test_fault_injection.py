"""Faults injected into a real Slurm cluster: a drained node, and one whose slurmd is stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.faults.markers import read_markers
from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.keeping import Keeper
from tests.waiting import wait_for


class Faults:
    """`stagewatch fault` on the cluster, kept by the keeper: what it starts ends with the tests."""

    def __init__(self, keeper: Keeper, slurm: SlurmCluster, directory: Path) -> None:
        self._keeper = keeper
        self._slurm = slurm
        self._directory = directory
        self._count = 0
        self.faults = directory / "faults"
        self.undo = directory / "undo"
        self.faults.mkdir()

    def start(self, *argv: str) -> tuple[int, Path]:
        """Run a command in the background; its pid and the file of its output."""
        self._count += 1
        log = self._directory / f"fault-{self._count}.log"
        log.touch()
        command = [sys.executable, "-m", "stagewatch.cli", "fault", *argv]
        environ = {
            **self._slurm.env,
            "STAGEWATCH_FAULT_DIR": str(self.faults),
            "STAGEWATCH_UNDO_DIR": str(self.undo),
            "XDG_STATE_HOME": str(self._directory / "state"),
        }
        pid = self._keeper.spawn(command, env=environ, log=log, cwd=self._directory)
        return pid, log

    def hold(self, kind: str, *flags: str) -> int:
        """Begin an injection and wait until it is in force."""
        pid, log = self.start("inject", kind, *flags, "--for=600s")
        wait_for(
            lambda: "in force" in log.read_text() or self._keeper.status(pid) is not None,
            f"{kind} to be in force",
        )
        assert self._keeper.status(pid) is None, log.read_text()
        return pid

    def run(self, *argv: str, status: int = 0) -> str:
        """Run a whole command; what it said."""
        pid, log = self.start(*argv)
        wait_for(lambda: self._keeper.status(pid) is not None, f"{argv} to end")
        assert self._keeper.status(pid) == status, log.read_text()
        return log.read_text()

    def undone(self) -> bool:
        """Whether nothing is left to undo."""
        return not list(self.undo.glob("*.undo"))


@pytest.fixture
def faults(keeper: Keeper, slurm: SlurmCluster, tmp_path: Path) -> Iterator[Faults]:
    """Injections; whatever is left is undone."""
    faults = Faults(keeper, slurm, tmp_path)
    yield faults
    faults.run("clear", "--all")


def test_a_drained_node_is_resumed_on_ctrl_c(faults: Faults, slurm: SlurmCluster) -> None:
    pid = faults.hold("slurm-drain", "--target=h2", "--id=d1", "--scenario=S4")
    assert "DRAIN" in slurm.state("h2")
    assert "Reason=stagewatch fault d1" in slurm.run("scontrol", "show", "node", "h2")
    (marker,) = read_markers(faults.faults)[0]
    assert (marker.fault_type, marker.target_worker) == ("slurm_drain", "h2")
    os.kill(pid, signal.SIGINT)
    slurm.wait(lambda: slurm.state("h2") == "IDLE", "h2 to be resumed")
    wait_for(faults.undone, "the journal to be empty")
    assert read_markers(faults.faults)[0][0].end is not None


def test_a_node_that_was_drained_for_another_reason_since_stays_drained(
    faults: Faults, slurm: SlurmCluster
) -> None:
    faults.hold("slurm-drain", "--target=h2", "--id=d2")
    slurm.run("scontrol", "update", "nodename=h2", "state=drain", "reason=ECC errors")
    assert "another reason, 'ECC errors'" in faults.run("clear", "d2")
    assert "DRAIN" in slurm.state("h2")
    slurm.run("scontrol", "update", "nodename=h2", "state=resume")


def test_a_node_that_somebody_resumed_is_left_alone(faults: Faults, slurm: SlurmCluster) -> None:
    faults.hold("slurm-drain", "--target=h2", "--id=d3")
    slurm.run("scontrol", "update", "nodename=h2", "state=resume")
    said = faults.run("clear", "d3")
    assert "state=resume" not in said
    assert faults.undone()


def test_the_drain_of_a_killed_injector_is_undone_though_the_controller_was_away(
    faults: Faults, slurm: SlurmCluster
) -> None:
    begun = time.time()
    pid = faults.hold("slurm-drain", "--target=h2", "--id=d4")
    saved = slurm.directory / "state" / "node_state"
    slurm.wait(
        lambda: saved.exists() and saved.stat().st_mtime > begun, "the nodes' state to be saved"
    )
    slurm.daemons.stop("slurmctld", signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    assert not faults.undone()
    slurm.start_controller()
    wait_for(faults.undone, "the watchdog to try again", limit=120)
    slurm.wait(lambda: "DRAIN" not in slurm.state("h2"), "h2 to be resumed")


def test_nodes_that_are_several_unknown_or_drained_already_are_refused(
    faults: Faults, slurm: SlurmCluster
) -> None:
    said = faults.run("inject", "slurm-drain", "--target=h[1-3]", "--for=5s", status=2)
    assert "the name of one Slurm node" in said
    said = faults.run("inject", "slurm-drain", "--target=nobody", "--for=5s", status=1)
    assert "nobody" in said
    slurm.run("scontrol", "update", "nodename=h3", "state=drain", "reason=theirs")
    said = faults.run("inject", "slurm-drain", "--target=h3", "--for=5s", status=1)
    assert "already: theirs" in said
    slurm.run("scontrol", "update", "nodename=h3", "state=resume")
