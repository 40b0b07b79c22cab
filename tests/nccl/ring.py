"""A ring of real processes that call the profiler plugin as NCCL does, and what they may suffer."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.nccl.files import NcclFiles, unmoved
from stagewatch.ranks.nccl.layout import Communicator
from stagewatch_nccl import build
from tests.deploy.engine import need
from tests.waiting import wait_for

HARNESS = Path(__file__).with_name("fake_nccl.c")
LOOKS = 4
"""That must show the same of ranks that stand still."""
SANITIZERS = {"plain": (), "address": ("address,undefined",), "thread": ("thread",)}


class Fault(IntEnum):
    """As `enum fault` of the harness has them."""

    NONE = 0
    NOT_CALLED = 1
    NOT_LAUNCHED = 2
    NOT_BEGUN = 3
    LOST = 4
    GPU_STUCK = 5
    OTHER_SIZE = 6
    NO_BUFFER = 7


def built(into: Path, *sanitizers: str) -> tuple[Path, Path]:
    """The plugin and the harness; skips the test where the compiler lacks something."""
    need("cc")
    flags = [one if one.startswith("-") else f"-fsanitize={one}" for one in sanitizers]
    plugin, harness = into / "libnccl-profiler-stagewatch.so", into / "fake_nccl"
    command = ["cc", "-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
    try:
        build(plugin, "-g", *flags)
        subprocess.run([*command, "-o", str(harness), str(HARNESS), "-ldl", "-pthread"], check=True)
    except subprocess.CalledProcessError:
        pytest.skip(f"the compiler cannot build it with {flags or 'these flags'}")
    return plugin, harness


def shared_harness(into: Path) -> None:
    """The harness as a library that programs load."""
    made = ["-O1", "-fPIC", "-shared", "-o", str(into), str(HARNESS), "-ldl", "-pthread"]
    subprocess.run(["cc", "-std=c11", *made], check=True)


class Ring:
    """One process for each rank; its files lie in `directory`."""

    def __init__(self, built: tuple[Path, Path], directory: Path, ranks: int = 8) -> None:
        self._plugin, self._harness = built
        self._network = directory / "network"
        self._children = Children()
        self.directory = directory / "ranks"
        self.directory.mkdir(parents=True)
        self.logs = [directory / f"{rank}.log" for rank in range(ranks)]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.files = NcclFiles(self.directory, Procfs())

    def start(
        self,
        operations: int,
        fault: Fault = Fault.NONE,
        victim: int = 0,
        at: int = 0,
        *,
        version: int = 5,
        network: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Begin so many all-reduces; the fault happens to the victim in one of them."""
        self._at = at
        for rank, log in enumerate(self.logs):
            wires = f"{'' if network else 'local:'}{self._network}"
            words = [self._plugin, version, wires, rank, len(self.logs)]
            words += [operations, int(fault), victim, at]
            self.processes.append(
                self._children.start(
                    [str(self._harness), *map(str, words)],
                    log=log,
                    environ={"STAGEWATCH_DIR": str(self.directory), **(environ or {})},
                )
            )

    def finish(self) -> list[int]:
        """The exit statuses."""
        return [process.wait(120) for process in self.processes]

    def at(self, rank: int, operation: int) -> bool:
        """Whether a rank has come so far."""
        return operation < 1 or str(operation) in self.logs[rank].read_text().split()

    def still(self) -> list[Communicator | None]:
        """What each rank has open once none of them moves any more."""
        pids = [process.pid for process in self.processes]
        wait_for(lambda: all(self.at(rank, self._at - 1) for rank in range(len(pids))), "the fault")
        looks: list[dict[int, tuple[Communicator, ...]]] = []

        def quiet() -> dict[int, tuple[Communicator, ...]] | None:
            looks.append(self.files.read(pids))
            kept = looks[-1]
            for before in looks[-LOOKS:]:
                kept = unmoved(before, kept)
            alike = len(looks) > LOOKS and len(kept) == len(pids) and all(kept.values())
            return kept if alike else None

        found = wait_for(quiet, "ranks that stand still", pause=0.4)
        return [found[pid][0] if found.get(pid) else None for pid in pids]

    def close(self) -> None:
        """End all of them."""
        self._children.stop(patience=0.0)
