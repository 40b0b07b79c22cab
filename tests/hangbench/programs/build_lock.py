"""Ranks that build an extension when they first need it, one of them at a time: who finds the lock
file waits until it is gone.

The fault: the lock file was left by a process that was killed, and one rank's cache has it.
"""

from __future__ import annotations

import time
from pathlib import Path

import stagewatch
from tests.hangbench.programs.part import Part, directory


def build(cache: Path, seconds: float) -> None:
    """Build, or wait for who does."""
    lock = cache / "lock"
    try:
        lock.touch(exist_ok=False)
    except FileExistsError:
        while lock.exists():
            time.sleep(0.1)
        return
    time.sleep(seconds)
    lock.unlink()


def main() -> None:
    """Train."""
    part = Part()
    cache = directory() / f"extensions.{part.process}"
    cache.mkdir()
    while part.step():
        if part.struck():
            if part.given.fault:
                (cache / "lock").touch()
            with stagewatch.stage("train"):
                build(cache, part.given.pause)
        with stagewatch.stage("train"):
            time.sleep(0.5)
            part.all_reduce()


if __name__ == "__main__":
    main()
