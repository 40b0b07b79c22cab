"""A ring of real processes that call the profiler plugin as NCCL does, and what they may suffer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.nccl.files import NcclFiles, standing
from stagewatch.ranks.nccl.layout import Communicator
from stagewatch_nccl import build
from tests.waiting import wait_for

HARNESS = Path(__file__).with_name("fake_nccl.c")
SANITIZERS = {"plain": (), "address": ("address,undefined",), "thread": ("thread",)}


class Fault(IntEnum):
    """As `enum fault` of the harness has them."""

    NONE = 0
    NEVER_CALLED = 1
    NEVER_LAUNCHED = 2
    NEVER_BEGUN = 3
    LOST = 4
    GPU_STUCK = 5
    OTHER_SIZE = 6


def built(into: Path, *sanitizers: str) -> tuple[Path, Path]:
    """The plugin and the harness; skips the test where the compiler lacks something."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    flags = [f"-fsanitize={one}" for one in sanitizers]
    plugin, harness = into / "libnccl-profiler-stagewatch.so", into / "fake_nccl"
    command = ["cc", "-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
    try:
        build(plugin, "-g", *flags)
        subprocess.run([*command, "-o", str(harness), str(HARNESS), "-ldl", "-pthread"], check=True)
    except subprocess.CalledProcessError:
        pytest.skip(f"the compiler cannot build it with {flags or 'these flags'}")
    return plugin, harness


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

    def at(self, operation: int) -> bool:
        """Whether some rank has come so far."""
        lines = [log.read_text().split() for log in self.logs]
        return any(str(operation) in done for done in lines)

    def still(self) -> list[Communicator | None]:
        """What each rank has open once none of them moves any more."""
        pids = [process.pid for process in self.processes]
        before: dict[int, tuple[Communicator, ...]] = {}

        def looks() -> dict[int, tuple[Communicator, ...]] | None:
            nonlocal before
            now = self.files.read(pids)
            quiet = standing(before, now) if len(now) == len(pids) else None
            before = now
            return quiet if quiet and all(quiet.values()) else None

        found = wait_for(looks, "ranks that stand still", pause=0.5)
        return [found[pid][0] if found.get(pid) else None for pid in pids]

    def close(self) -> None:
        """End all of them."""
        self._children.stop(patience=0.0)
