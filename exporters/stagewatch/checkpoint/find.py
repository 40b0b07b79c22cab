"""Chooses the checkpoint of a directory: the directory itself, or the newest one in it."""

from __future__ import annotations

import re
import stat
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from stagewatch.checkpoint.names import TEMPORARY, step_of

_SHARD = re.compile(r"\.(?:safetensors|distcp|pt|pth|bin|ckpt|pkl)$|^\.metadata$|\.index\.json$")


@dataclass(frozen=True, slots=True)
class Found:
    """The files or the directory of a checkpoint, and those of the previous one."""

    paths: tuple[Path, ...]
    before: tuple[Path, ...] = ()
    pointer: str = ""
    """The file that names it."""
    lost: str = ""
    """What that file names, if it does not exist."""


def find(directory: Path) -> Found | None:
    """The checkpoint to resume from, as a trainer would take it; `None` without any.

    Raises `OSError`.
    """
    if not directory.is_dir():
        return Found((directory,))
    groups: dict[str, list[Path]] = defaultdict(list)
    order: dict[str, tuple[float, int]] = {}
    own = False
    for path in sorted(directory.iterdir()):
        try:
            status = path.stat()
        except OSError:
            continue
        kind, step = step_of(path.name)
        file = stat.S_ISREG(status.st_mode)
        single = kind == 1 and path.stem.isdigit()
        if step is not None and (kind == 2 or single) and not TEMPORARY.search(path.name):
            if not file or _SHARD.search(path.name):
                key = str(step)
                groups[key].append(path)
                order[key] = max(order.get(key, (0.0, 0)), (status.st_mtime, step))
        elif file and _SHARD.search(path.name):
            own = True
    steps = sorted(groups, key=lambda key: order[key])
    pointer, target = _pointer(directory)
    if pointer and not (own and pointer == "latest"):
        return _pointed(directory, pointer, target, groups, steps)
    if own and (pointer or not steps):
        return Found((directory,), _before(directory))
    if steps:
        before = tuple(groups[steps[-2]]) if len(steps) > 1 else ()
        return Found(tuple(groups[steps[-1]]), before)
    shards = (path for path in directory.glob("*/*") if _SHARD.search(path.name))
    return Found((directory,), _before(directory)) if any(shards) else None


def _before(directory: Path) -> tuple[Path, ...]:
    """The directory beside this one that has the next lower step."""
    mine = step_of(directory.resolve().name)
    beside: dict[int, Path] = {}
    if mine[1] is not None:
        for path in directory.resolve().parent.iterdir():
            kind, step = step_of(path.name)
            if kind == mine[0] and step is not None and step < mine[1] and path.is_dir():
                beside[step] = path
    return (beside[max(beside)],) if beside else ()


def _pointed(
    directory: Path, pointer: str, target: str, groups: dict[str, list[Path]], steps: list[str]
) -> Found:
    """The checkpoint that a pointer names: a directory, or Megatron's number of an iteration."""
    step = str(int(target)) if target.isdecimal() and len(target) < 13 else ""
    named = [directory / target] if target not in ("", ".", "..") and "/" not in target else []
    paths = groups.get(step) or [path for path in named if path.is_dir()]
    if not paths:
        lost = f"iter_{int(step):07}" if step else target
        return Found((), pointer=pointer, lost=lost[:200])
    mine = {path.name for path in paths}
    key = next((key for key in steps if {path.name for path in groups[key]} & mine), None)
    before = steps[: steps.index(key)] if key else []
    return Found(tuple(paths), tuple(groups[before[-1]]) if before else (), pointer)


def _pointer(directory: Path) -> tuple[str, str]:
    """The file that names the last complete checkpoint, and its content."""
    for name in ("latest_checkpointed_iteration.txt", "latest"):
        file = directory / name
        try:
            if stat.S_ISREG(file.stat().st_mode):
                with file.open("rb") as opened:
                    text = opened.read(4096).decode("utf-8", "replace").strip()
                return name, text
        except OSError:
            continue
    return "", ""
