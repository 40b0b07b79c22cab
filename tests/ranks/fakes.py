"""Real processes that stand for ranks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stagewatch.core.processes import die_with_parent
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.family_io import FamilyIo
from stagewatch.ranks.model import Rank
from tests.fakes.open_files import OpenFiles


class FakeRanks:
    """The ranks of a node, as a test decides."""

    def __init__(self) -> None:
        self.ranks: list[Rank] = []

    def __call__(self) -> list[Rank]:
        """The ranks of the test."""
        return self.ranks

    def add(self, pid: int, rank: int) -> None:
        """One more rank of job 7."""
        self.ranks.append(Rank("7", "train", rank, pid))


def family_io(ranks: FakeRanks, proc: Path = Path("/proc")) -> FamilyIo:
    """Counters that are looked at anew each time."""
    return FamilyIo(families(ranks, proc), OpenFiles(proc), fresh_for=0.0)


def families(ranks: FakeRanks, proc: Path = Path("/proc")) -> ProcessFamilies:
    """Families that are looked at anew each time."""
    return ProcessFamilies(ranks, Procfs(proc), fresh_for=0.0, cpu_clock=lambda: 0.0)


class Program:
    """A Python program that is told what to do line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def say(self, line: str) -> None:
        """Send a line, without waiting."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """The next line it prints."""
        return self._process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        """Send a line and wait for one."""
        self.say(line)
        return self.hear()

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        return self._process.wait(timeout=60)


@contextmanager
def program(source: str, *arguments: str, prefix: tuple[str, ...] = ()) -> Iterator[Program]:
    """Run one; it ends with the block, or with this process."""
    with subprocess.Popen(
        [*prefix, sys.executable, "-u", "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()
