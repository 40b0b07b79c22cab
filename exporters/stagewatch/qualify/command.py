"""Measures this node for a minute and says whether it is fit for jobs: pass, warn or fail.

  stagewatch qualify
  stagewatch qualify --python /opt/pytorch/bin/python --gpus 8 --storage /scratch --timeout 90s
      as a prolog, or after a repair, with the environment that has PyTorch

Nothing else should run on the node. Parts (--skip leaves some out):

  clock       synchronised, and off by less than 10 ms
  storage     a file is written, synced and read back in each directory of --storage
  memory      a large block is copied within the memory of each GPU, all at once, and compared
  product     two matrices are multiplied on every GPU, all at once; all bits must be the same
  all_reduce  NCCL adds up numbers of all GPUs of the node; the sum must be right

Without a GPU the last three run on the CPU (over gloo); without PyTorch they are skipped, with the
reason. A figure is the best of several runs. It is compared with the median of the last 20 figures
with which the device passed, once there are three, and with the peak of the GPU's model if that is
known. The command ends within --timeout: a part that has not answered by then fails and is killed.

exit status:
  0  pass: all parts that were not skipped are well
  1  nothing could be measured
  2  an option cannot be used
  3  warn
  4  fail
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from stagewatch.core import config
from stagewatch.core.adjtimex import adjtimex
from stagewatch.core.config import add_options, listing, option, options_of
from stagewatch.core.words import printable
from stagewatch.qualify.judge import Level, Result, judged, verdict
from stagewatch.qualify.measure import Deadline, Found, ask, meet
from stagewatch.qualify.past import Past
from stagewatch.qualify.peaks import peaks

PARTS = ("clock", "storage", "memory", "product", "all_reduce")
STATUS = {Level.SKIPPED: 1, Level.PASS: 0, Level.WARN: 3, Level.FAIL: 4}
CLOCK_SECONDS = 0.01
UNSYNCHRONISED = 0x40
"""STA_UNSYNC of <linux/timex.h>."""
MICROSECONDS_ARE_NANO = 0x2000
"""STA_NANO: the offset is in ns."""


def part(value: object) -> str:
    """clock, storage, memory, product or all_reduce"""
    if value not in PARTS:
        raise ValueError
    return str(value)


@dataclass(frozen=True, slots=True)
class QualifyOptions:
    """Options of `stagewatch qualify`."""

    timeout: float = option(60.0, "end within this time, whatever hangs", parse=config.duration)
    seconds: float = option(2.0, "how long each figure is measured", parse=config.duration)
    python: str = option(
        "", "Python that has PyTorch, a path that only root can change; if none, stagewatch's own"
    )
    gpus: int = option(0, "GPUs that the node must have; 0: any number", parse=config.integer)
    storage: tuple[Path, ...] = option(
        (), "directories to write a file in", parse=listing(config.absolute_path)
    )
    skip: tuple[str, ...] = option((), "parts to leave out", parse=listing(part))
    history: Path = option(
        Path("/var/lib/stagewatch-qualify/history.json"), "file of earlier figures"
    )
    json: bool = option(False, "print JSON", parse=config.boolean)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch qualify`."""
    add_options(parser, {"qualify": QualifyOptions})


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and return the exit status."""
    options = options_of(arguments, QualifyOptions, "qualify")
    past = Past(options.history)
    results = list(_results(options, past, Deadline(options.timeout)))
    passed = {
        each.series: each.value
        for each in results
        if each.level is Level.PASS and each.series and each.value
    }
    kept = past.add(passed) if passed else True
    worst = verdict(results)
    if options.json:
        rows = [{**asdict(each), "level": each.level.name.lower()} for each in results]
        print(json.dumps({"verdict": worst.name.lower(), "kept": kept, "results": rows}, indent=2))
    else:
        print("\n".join([*map(line, results), _last(results, worst)]))
    return STATUS[worst]


def _results(options: QualifyOptions, past: Past, deadline: Deadline) -> Iterator[Result]:
    wanted = [each for each in PARTS if each not in options.skip]
    if "clock" in wanted:
        yield clock()
    if "storage" in wanted:
        directories = [{"directory": str(each)} for each in options.storage]
        told = ask("", "storage", directories, deadline)
        for one, found in zip(options.storage, told, strict=True):
            yield judged("storage", str(one), f"storage {one}", found, past)
        if not directories:
            yield Result("storage", "", Level.SKIPPED, "no --storage DIR was given")
    wanted = [each for each in wanted if each not in ("clock", "storage")]
    if not wanted:
        return
    python = options.python or sys.executable
    (there,) = ask(python, "devices", [{}], deadline)
    if problem := _lacking(there, options):
        level = Level.SKIPPED if "missing" in there and not options.gpus else Level.FAIL
        yield from (Result(each, "", level, problem) for each in wanted)
        return
    gpus = there["gpus"]
    for each in wanted:
        if each == "all_reduce":
            yield _all_reduce(python, gpus, past, options, deadline)
            continue
        numbers: list[int | None] = [*range(len(gpus))] or [None]
        asked = [{"gpu": at, "seconds": options.seconds} for at in numbers]
        for at, found in zip(numbers, ask(python, each, asked, deadline), strict=True):
            name = gpus[at]["name"] if at is not None else ""
            device = f"GPU {at}" if at is not None else "CPU"
            own = gpus[at]["uuid"] if at is not None else _cpu()
            yield judged(each, device, f"{each} {own}", found, past, peaks(name).get(each))


def _all_reduce(
    python: str, gpus: list[dict[str, str]], past: Past, options: QualifyOptions,
    deadline: Deadline,
) -> Result:  # fmt: skip
    if len(gpus) == 1:
        return Result("all_reduce", "", Level.SKIPPED, "there is one GPU")
    found = meet(python, len(gpus), options.seconds, deadline)
    # After a failed rank the others wait; otherwise the slowest counts and all must be right.
    worst: Found = next((each for each in found if "error" in each), {}) or next(
        (each for each in found if "value" not in each), {}
    )
    if not worst:
        same = all(each.get("same") for each in found)
        worst = {"value": min(each["value"] for each in found), "same": same}
    device = f"{len(gpus)} GPUs" if gpus else "2 processes"
    own = " ".join(sorted(each["uuid"] for each in gpus)) or _cpu()
    return judged("all_reduce", device, f"all_reduce {own}", worst, past)


def _lacking(there: Found, options: QualifyOptions) -> str:
    """Why GPUs cannot be measured; empty if they can, or if the CPU is wanted."""
    if "missing" in there:
        return f"{there['missing']} is not installed: --python names a Python that has PyTorch"
    if "late" in there:
        return "PyTorch did not answer in time"
    if "error" in there:
        return printable(str(there["error"]), 200)
    count = len(there["gpus"])
    if options.gpus and count != options.gpus:
        return f"PyTorch reaches {count} of {options.gpus} GPUs"
    if there.get("unreached"):
        return "the node has a GPU, but this PyTorch reaches none"
    return ""


def clock() -> Result:
    """Whether the kernel says its clock is synchronised, and its largest error."""
    try:
        _, offset, _, status = adjtimex()
    except OSError as error:
        return Result("clock", "", Level.SKIPPED, error.strerror or "adjtimex fails")
    seconds = abs(offset) / (1e9 if status & MICROSECONDS_ARE_NANO else 1e6)
    if status & UNSYNCHRONISED:
        return Result("clock", "", Level.WARN, "not synchronised")
    if seconds > CLOCK_SECONDS:
        return Result("clock", "", Level.WARN, f"off by {seconds * 1000:.1f} ms")
    return Result("clock", "", Level.PASS)


def _cpu() -> str:
    return f"{platform.machine()} CPU"


def line(result: Result) -> str:
    """One line about a part."""
    told = []
    if result.value is not None:
        told.append(_figure(result.part, result.value))
    if result.peak and result.value is not None:
        told.append(f"{result.value / result.peak:.0%} of its model's peak")
    if result.usual and result.value is not None:
        told.append(f"{result.value / result.usual:.0%} of its past ({result.runs} runs)")
    if result.why and not any(result.why in each for each in told):
        told.append(result.why)
    head = f"{result.part:<11} {result.device:<12} {result.level.name.lower():<8}"
    return printable(f"{head}{', '.join(told)}".rstrip())


def _figure(part: str, value: float) -> str:
    unit = "FLOP/s" if part == "product" else "B/s"
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _last(results: list[Result], worst: Level) -> str:
    bad = [each for each in results if each.level is worst and worst >= Level.WARN]
    told = "; ".join(f"{each.part} {each.device}".rstrip() + f": {each.why}" for each in bad)
    skipped = ", ".join(each.part for each in results if each.level is Level.SKIPPED)
    if worst is Level.PASS and skipped:
        told = f"{skipped} skipped"
    return printable(f"{worst.name.lower()}{f': {told}' if told else ''}")
