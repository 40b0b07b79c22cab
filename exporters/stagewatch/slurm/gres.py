"""Reads Slurm's notations for resources: TRES (`gres/gpu:h200=8`), GRES (`gpu:h200:8(S:0-1)`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from stagewatch.slurm.model import GpuCounts, NodeGpus

_OUTSIDE_BRACKETS = re.compile(r",(?![^()\[\]]*[)\]])")
_SUFFIX = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_COUNT = re.compile(r"(\d+)([KMGT]?)")
_MAX_INDEX = 4096


def count(text: str) -> int:
    """A count such as `8` or `2K`.  Raises `ValueError`."""
    match = _COUNT.fullmatch(text)
    if not match:
        raise ValueError(f"not a count: {text[:40]!r}")
    return int(match[1]) * _SUFFIX[match[2]]


@lru_cache(maxsize=4096)
def gpus_of_tres(text: str) -> GpuCounts | None:
    """The GPUs of a TRES list; `None` if it mentions none.

    What `gres/gpu` counts beyond the typed entries is of no named type.
    """
    total: int | None = None
    typed: dict[str, int] = {}
    for name, number in _pairs(text):
        if name == "gres/gpu":
            total = number
        elif name.startswith("gres/gpu:"):
            kind = name[9:].lower()
            typed[kind] = typed.get(kind, 0) + number
    if total is None and not typed:
        return None
    rest = max(0, (total or 0) - sum(typed.values()))
    return _counts(typed | ({"": rest} if rest else {}))


def _pairs(text: str) -> Iterator[tuple[str, int]]:
    for item in text.split(","):
        name, _, number = item.partition("=")
        if not name.startswith("gres/"):
            continue
        try:
            yield name, count(number)
        except ValueError:
            continue


@lru_cache(maxsize=4096)
def gpus_of_request(
    per_node: str, per_job: str, per_task: str, nodes: int, tasks: int
) -> GpuCounts:
    """The GPUs a job asks for, from its `--gpus...` options, where its TRES do not say."""
    if per_job:
        return _counts(dict(_gpu_items(per_job, 1)))
    if per_node:
        return _counts(dict(_gpu_items(per_node, max(1, nodes))))
    return _counts(dict(_gpu_items(per_task, max(1, tasks))))


def _gpu_items(text: str, times: int) -> Iterator[tuple[str, int]]:
    """Types and counts of `gres:gpu:h200:2`, `gres/gpu:2`, `gpu`, separated by commas."""
    totals: dict[str, int] = {}
    for item in _OUTSIDE_BRACKETS.split(text):
        parts = re.split(
            r"[:=]", item.partition("(")[0].removeprefix("gres:").removeprefix("gres/")
        )
        if parts[0] != "gpu":
            continue
        kind = ":".join(parts[1:])
        number = 1
        if len(parts) > 1 and _COUNT.fullmatch(parts[-1]):
            kind, number = ":".join(parts[1:-1]), count(parts[-1])
        totals[kind.lower()] = totals.get(kind.lower(), 0) + number * times
    yield from totals.items()


def _counts(counts: Mapping[str, int]) -> GpuCounts:
    return tuple(sorted((kind, number) for kind, number in counts.items() if number))


@lru_cache(maxsize=4096)
def node_gpus(configured: str, used: str) -> tuple[NodeGpus, ...]:
    """A node's GPUs by type, from its `Gres` and `GresUsed`.

    A node whose configured types are used under no type (or the other way round) is kept honest:
    the used count goes to the only type there is.
    """
    have = {kind: number for kind, number, _ in _node_items(configured)}
    allocated: dict[str, int] = {}
    indices: dict[str, tuple[int, ...]] = {}
    for kind, number, held in _node_items(used):
        target = kind if kind in have or len(have) != 1 else next(iter(have))
        allocated[target] = allocated.get(target, 0) + number
        indices[target] = (*indices.get(target, ()), *held)
    return tuple(
        NodeGpus(kind, number, allocated.get(kind, 0), indices.get(kind, ()))
        for kind, number in sorted(have.items())
        if number
    )


def _node_items(text: str) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Type, count and indices of each GPU entry; entries of one type are added up."""
    totals: dict[str, tuple[int, tuple[int, ...]]] = {}
    for item in _OUTSIDE_BRACKETS.split(text.replace(":(null)", "")):  # of no named type
        name, _, detail = item.partition("(")
        parts = name.split(":")
        if parts[0] != "gpu" or len(parts) < 2:
            continue
        try:
            number = count(parts[-1])
        except ValueError:
            continue
        kind = ":".join(part for part in parts[1:-1] if part != "no_consume").lower()
        before, seen = totals.get(kind, (0, ()))
        totals[kind] = (before + number, seen + _indices(detail))
    for kind, (number, held) in totals.items():
        yield kind, number, held


def _indices(detail: str) -> tuple[int, ...]:
    match = re.match(r"IDX:([\d,-]+)\)", detail)
    return expand_indices(match[1]) if match else ()


def expand_indices(text: str) -> tuple[int, ...]:
    """The numbers of a list such as `0-2,5`; empty for any other text."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return ()
        low, high = int(first), int(last or first)
        if high - low > _MAX_INDEX:
            return ()
        numbers += range(low, high + 1)
    return tuple(numbers)


def indices_of(gres: str) -> tuple[int, ...]:
    """The GPU indices in `gpu:h200:2(IDX:3-4)`."""
    by_type = node_gpus(re.sub(r"\([^)]*\)", "", gres), gres)
    return tuple(sorted(index for gpus in by_type for index in gpus.indices))


def total(counts: Iterable[tuple[str, int]]) -> int:
    """The number of GPUs of all types."""
    return sum(number for _, number in counts)
