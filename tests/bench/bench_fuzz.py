"""A million changed inputs for the parsers of what others write; or FUZZ_INPUTS of them."""

from __future__ import annotations

import argparse
import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.as_installed import confined, need_users
from tests.bench.fuzzing.target import Target
from tests.bench.fuzzing.targets import targets
from tests.running import clean_environ

INPUTS = int(os.environ.get("FUZZ_INPUTS", "1000000"))
SEED = 20260101
PROGRESS_SECONDS = 5.0
SHOWN = 3
"""Most crashes of a parser that are shown."""
AGENT_UID = 60_051


@dataclass(slots=True)
class Outcome:
    """What became of a target's inputs."""

    name: str
    inputs: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    grown: int = 0
    """Bytes of memory that this process holds longer."""
    crashes: list[str] = field(default_factory=list)


def main(arguments: Sequence[str] = ()) -> None:
    """Prints a line now and then, and a table; ends with an error where a parser crashed."""
    parser = argparse.ArgumentParser(prog='make bench ARGS="fuzz ..."', description=__doc__)
    parser.add_argument("--only", default="", help="part of a parser's name: all inputs are for it")
    parser.add_argument(
        "--as-installed",
        action="store_true",
        help="under the user, capabilities, limits and system calls of the node agent's unit",
    )
    given = parser.parse_args(arguments)
    if given.as_installed:
        _as_installed("--only", given.only)
        return
    with targets() as all_targets:
        every = [target for target in all_targets if given.only in target.name]
        weights = sum(target.weight for target in every)
        outcomes = [fuzz(target, round(INPUTS * target.weight / weights)) for target in every]
    print(
        f"\n{'parser':<24}{'inputs':>10}{'refused':>10}{'crashes':>9}{'1/s':>10}{'slowest':>12}{'memory':>12}"
    )
    for one in outcomes:
        print(
            f"{one.name:<24}{one.inputs:>10,}{one.refused:>10,}{len(one.crashes):>9}"
            f"{one.inputs / one.seconds:>10,.0f}{1000 * one.slowest:>9.1f} ms"
            f"{one.grown / 2**20:>+8.0f} MiB"
        )
    inputs = sum(one.inputs for one in outcomes)
    seconds = sum(one.seconds for one in outcomes)
    crashes = sum(len(one.crashes) for one in outcomes)
    print(f"{inputs:,} inputs in {seconds:.0f} s, {crashes} crashes, seed {SEED}")
    if crashes:
        raise SystemExit(1)


def _as_installed(*arguments: str) -> None:
    """This benchmark again as the agent's user; ends as it does."""
    need_users()
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        command = [sys.executable, "-m", "tests.bench.bench_fuzz"]
        command = confined("stagewatch-node.service", Path(name), AGENT_UID, *command)
        environ = clean_environ({"HOME": "/", "TMPDIR": name, "FUZZ_INPUTS": str(INPUTS)})
        done = subprocess.run([*command, *arguments], env=environ, check=False)
    raise SystemExit(done.returncode)


def fuzz(target: Target, inputs: int) -> Outcome:
    """Give a parser that many inputs, the same ones each time."""
    chance = random.Random(f"{SEED} {target.name}")
    outcome = Outcome(target.name)
    began = shown = time.monotonic()
    for seed in target.seeds:
        target.run(seed)  # what is sound must be read
    held = _memory()
    for _ in range(inputs):
        data = target.change(target.seeds, chance)
        started = time.monotonic()
        try:
            target.run(data)
        except target.allowed:
            outcome.refused += 1
        except Exception as error:
            outcome.crashes.append(f"{type(error).__name__}: {error}")
            if len(outcome.crashes) <= SHOWN:
                print(f"{target.name}: {outcome.crashes[-1]:.200} for {data[:300]!r}", flush=True)
        now = time.monotonic()
        outcome.inputs += 1
        outcome.slowest = max(outcome.slowest, now - started)
        if now - shown > PROGRESS_SECONDS:
            print(f"{target.name}: {outcome.inputs:,} of {inputs:,}", flush=True)
            shown = now
    outcome.seconds = time.monotonic() - began
    outcome.grown = _memory() - held
    return outcome


def _memory() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


if __name__ == "__main__":
    main(sys.argv[1:])
