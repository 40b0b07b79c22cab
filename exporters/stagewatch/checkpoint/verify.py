"""Whether a checkpoint is whole, and what it lacks."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from stagewatch.checkpoint.formats import FORMATS, Fault, Undecided
from stagewatch.checkpoint.headers import CHECKS, Unknown
from stagewatch.checkpoint.inventory import Inventory
from stagewatch.checkpoint.names import STEP, TEMPORARY

MOST_FAULTS = 1000
"""Faults that are listed; further ones are only counted."""
SIZE_RATIO = 0.8
"""A file with less than this share of its size in the previous checkpoint was cut short."""
_TOLD = ("-of-", "world_size_", "rank", "rng_state_")
"""Parts of names of files that may be missing because the job is smaller now."""


class TimeIsUp(Exception):
    """There was no time to look at all files."""


@dataclass(slots=True)
class Report:
    """The result for one checkpoint."""

    files: int = 0
    bytes: int = 0
    checked: int = 0
    """Number of files that are whole by their header, size or place in metadata."""
    faults: list[Fault] = field(default_factory=list)
    lacking: int = 0
    """Number of all faults, also those beyond `MOST_FAULTS`."""
    doubts: list[str] = field(default_factory=list)
    """What the check could not decide, or what may be on purpose."""

    @property
    def whole(self) -> bool:
        """Whether nothing is known to be wrong."""
        return not self.lacking


def verify(
    files: Inventory,
    before: Inventory | None = None,
    *,
    until: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> Report:
    """Look at every file of a checkpoint; `before`: the files of the previous one.

    Nothing is loaded: headers and metadata are read, up to a limit.  Raises `TimeIsUp` once the
    clock shows `until`, and `OSError` if a file cannot be read.
    """
    report = Report(len(files.sizes), sum(files.sizes.values()))
    found: dict[str, Fault] = {}
    good: set[str] = set()
    for name, size in sorted(files.sizes.items()):
        if clock() > until:
            raise TimeIsUp
        _header(files, name, size, report, found, good)
    beyond = 0
    for format_name, faults in FORMATS.items():
        try:
            for fault in faults(files):
                if len(found) < MOST_FAULTS:
                    found.setdefault(fault.name, fault)
                else:
                    beyond += 1
                if clock() > until:
                    raise TimeIsUp
        except Undecided as error:
            report.doubts.append(f"{format_name}: {error}")
    if not found and any(name.endswith(".distcp") for name in files.sizes):
        good |= {name for name in files.sizes if name.endswith(".distcp")}
    report.checked = len(good - found.keys())
    if before is not None:
        for fault in _compared(files, before, good, report):
            found.setdefault(fault.name, fault)
    report.doubts += [f"{name} may not be read" for name in files.unreadable[:10]]
    report.faults = sorted(found.values(), key=lambda one: (one.kind != "missing", one.name))
    report.lacking = len(found) + beyond
    return report


def _header(
    files: Inventory,
    name: str,
    size: int,
    report: Report,
    found: dict[str, Fault],
    good: set[str],
) -> None:
    path = PurePosixPath(name)
    if TEMPORARY.search(path.name):
        report.doubts.append(f"{name} was begun and not finished")
        return
    check = CHECKS.get(path.suffix)
    if size == 0 and (check or path.suffix == ".distcp"):
        found[name] = Fault("short", name, "it is empty")
    elif check:
        try:
            with files.open(name) as file:
                wrong = check(file, size)
        except Unknown:
            return
        except FileNotFoundError:
            wrong = "it has gone while it was looked for"
        except OSError as error:
            if error.errno == errno.EIO:
                wrong = "it cannot be read: an error of input or output"
            else:
                raise
        if wrong:
            found[name] = Fault("short" if "cut short" in wrong else "unreadable", name, wrong)
        else:
            good.add(name)


def _compared(files: Inventory, before: Inventory, good: set[str], report: Report) -> list[Fault]:
    """Faults by comparison with the previous checkpoint, by names without their step."""
    now = {_stepless(name): name for name in files.sizes}
    faults = []
    for old, size in sorted(before.sizes.items()):
        suffix = PurePosixPath(old).suffix
        if size == 0 or TEMPORARY.search(old) or not (suffix in CHECKS or suffix == ".distcp"):
            continue
        name = now.get(_stepless(old))
        if name is None:
            if suffix == ".distcp":
                continue
            if any(part in old for part in _TOLD):
                report.doubts.append(f"{old} of the one before has no successor: fewer ranks?")
            else:
                faults.append(Fault("missing", old, "the one before has it"))
        elif name not in good and files.sizes[name] < SIZE_RATIO * size:
            why = f"{files.sizes[name]:,} bytes; it had {size:,} in the one before"
            faults.append(Fault("smaller", name, why))
    return faults


def _stepless(name: str) -> str:
    return STEP.sub("", name)
