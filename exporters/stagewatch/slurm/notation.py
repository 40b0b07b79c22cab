"""Parsers of Slurm's notations: lists of numbers and hosts, GPUs, names of states and reasons.

TRES are `gres/gpu:h200=8`, GRES `gpu:h200:8(S:0-1)`, hosts `h[001-003,7],m1`.  Users control some
of it: lists have a size limit, and an invalid name becomes UNKNOWN or `other`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

from stagewatch.core.words import indices_of, spans

GpuCounts = tuple[tuple[str, int], ...]
"""GPUs by type in lower case, sorted; the type is empty if none was named."""


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one type in a node."""

    type: str
    configured: int
    allocated: int
    indices: tuple[int, ...] = ()
    """Indices of the allocated GPUs, if Slurm says."""


_ITEMS = re.compile(r"(?:[^,(\[]|\[[^\]]*\]|\([^)]*\))+")
"""Items between commas; commas in brackets do not separate."""
MAX_HOSTS = 200_000
"""A longer list is refused: users can write host lists."""
_FEW = 256
"""Longest list in the large cache; the cache of longer lists is small."""


@lru_cache(maxsize=4096)
def array_tasks(text: str) -> int:
    """The number of tasks in `3`, `0-9%2` or `1,4-20:4`.  Raises `ValueError`."""
    return sum(map(len, spans(text.partition("%")[0])))


def expand(text: str) -> tuple[str, ...]:
    """The host names of a list, in its order.  Raises `ValueError` for any other text."""
    names = _few(text)
    return _many(text) if names is None else names


@lru_cache(maxsize=8192)
def _few(text: str) -> tuple[str, ...] | None:
    """The names of a list of at most `_FEW` names, with a large cache; else `None`."""
    names = tuple(islice(_names(text), _FEW + 1))
    return names if len(names) <= _FEW else None


@lru_cache(maxsize=16)
def _many(text: str) -> tuple[str, ...]:
    names = tuple(islice(_names(text), MAX_HOSTS + 1))
    if len(names) > MAX_HOSTS:
        raise ValueError(f"host list of more than {MAX_HOSTS} names: {text[:60]!r}")
    return names


def _names(text: str) -> Iterator[str]:
    if text in ("", "(null)", "None assigned", "N/A"):
        return iter(())
    items = _ITEMS.findall(text)
    if ",".join(items) != text:
        raise ValueError(f"not a host list: {text[:60]!r}")
    return chain.from_iterable(map(_expand_item, items))


def expand_or_none(text: str) -> tuple[str, ...]:
    """The host names of a list; none for other text."""
    try:
        return expand(text)
    except ValueError:
        return ()


def _expand_item(item: str) -> Iterator[str]:
    """Expand one item; several bracket groups multiply."""
    before, bracket, rest = item.partition("[")
    ranges, _, after = rest.partition("]")
    if re.search(r"[\s\]]", before):
        raise ValueError(f"not a host name: {item[:60]!r}")
    if not bracket:
        yield item
        return
    for part in ranges.split(","):
        (numbers,) = spans(part)
        width = len(part.partition("-")[0])
        for number in numbers:
            for tail in _expand_item(after) if after else ("",):
                yield f"{before}{number:0{width}}{tail}"


_SUFFIX = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_COUNT = re.compile(r"(\d+)([KMGT]?)")


def count(text: str) -> int:
    """A count such as `8` or `2K`.  Raises `ValueError`."""
    match = _COUNT.fullmatch(text)
    if not match:
        raise ValueError(f"not a count: {text[:40]!r}")
    return int(match[1]) * _SUFFIX[match[2]]


@lru_cache(maxsize=4096)
def gpus_of_tres(text: str) -> GpuCounts | None:
    """The GPUs of a TRES list; `None` if it mentions none.

    GPUs that `gres/gpu` counts beyond the typed entries have no type.
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
    per_node: str,
    per_job: str,
    per_socket: str,
    per_task: str,
    nodes: int,
    sockets: int,
    tasks: int,
) -> GpuCounts:
    """The GPUs that a job requests by its `--gpus...` options, if its TRES do not say.

    `sockets` is the number per node; Slurm requires it for --gpus-per-socket (sbatch(1)).
    """
    for text, times in (
        (per_job, 1),
        (per_node, nodes),
        (per_socket, nodes * sockets),
        (per_task, tasks),
    ):
        if "gpu" in text:
            return _counts({kind: number * times for kind, number, _ in _gpu_items(text)})
    return ()


def _counts(counts: Mapping[str, int]) -> GpuCounts:
    return tuple(sorted((kind, number) for kind, number in counts.items() if number))


@lru_cache(maxsize=4096)
def node_gpus(configured: str, used: str) -> tuple[NodeGpus, ...]:
    """A node's GPUs by type, from its `Gres` and `GresUsed`.

    If the configured GPUs have a type and the used ones have none (or vice versa), the used count
    goes to the only type.
    """
    have = {kind: number for kind, number, _ in _gpu_items(configured)}
    allocated: dict[str, int] = {}
    indices: dict[str, tuple[int, ...]] = {}
    for kind, number, held in _gpu_items(used):
        target = kind if kind in have or len(have) != 1 else next(iter(have))
        allocated[target] = allocated.get(target, 0) + number
        indices[target] = (*indices.get(target, ()), *held)
    return tuple(
        NodeGpus(kind, number, allocated.get(kind, 0), indices.get(kind, ()))
        for kind, number in sorted(have.items())
        if number
    )


def _gpu_items(text: str) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Type, count and indices of the GPU entries; entries of one type are summed up.

    Entries are `gpu:h200:2(IDX:3-4)`, `gres:gpu:2`, `gres/gpu=2` or `gpu`, which is one.
    """
    totals: dict[str, tuple[int, tuple[int, ...]]] = {}
    for item in _ITEMS.findall(text.replace(":(null)", "")):  # of no named type
        name, _, detail = item.partition("(")
        first, *parts = re.split("[:=]", name.removeprefix("gres:").removeprefix("gres/"))
        if first != "gpu":
            continue
        number = count(parts.pop()) if parts and _COUNT.fullmatch(parts[-1]) else 1
        kind = ":".join(part for part in parts if part != "no_consume").lower()
        indices = re.match(r"IDX:([\d,-]+)\)", detail)
        before, seen = totals.get(kind, (0, ()))
        totals[kind] = (before + number, seen + (indices_of(indices[1]) if indices else ()))
    for kind, (number, held) in totals.items():
        yield kind, number, held


def total(counts: Iterable[tuple[str, int]]) -> int:
    """The number of GPUs of all types."""
    return sum(number for _, number in counts)


ENDED_STATES = frozenset({
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
    "DEADLINE", "OUT_OF_MEMORY",
})  # fmt: skip

NODE_STATES = frozenset({"IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "FUTURE", "UNKNOWN"})
"""Base states of nodes."""
_FLAG_ALIASES = {
    "MAINT": "MAINTENANCE", "RES": "RESERVED", "REBOOT": "REBOOT_REQUESTED", "REBOOT^":
    "REBOOT_ISSUED", "NO_RESPOND": "NOT_RESPONDING", "NOT RESPONDING": "NOT_RESPONDING",
    "POWERDOWN": "POWERED_DOWN", "POWER_SAVING": "POWERED_DOWN", "DYNAMIC": "DYNAMIC_NORM",
    "DRAINED": "DRAIN", "DRAINING": "DRAIN",
}  # fmt: skip
_BASE_ALIASES = {"ALLOC": "ALLOCATED", "MIX": "MIXED", "UNK": "UNKNOWN"}
_COMPOUND = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("MIXED", "DRAIN"),
    "FAILING": ("MIXED", "FAIL"),
    "RESERVED": ("IDLE", "RESERVED"),
    "MAINT": ("IDLE", "MAINTENANCE"),
    "PLANNED": ("IDLE", "PLANNED"),
    "COMPLETING": ("IDLE", "COMPLETING"),
}
_SUFFIXES = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN"}
_SUFFIXES |= {"%": "POWERING_DOWN", "$": "MAINTENANCE", "@": "REBOOT_REQUESTED"}
_SUFFIXES |= {"^": "REBOOT_ISSUED", "-": "PLANNED"}

_POWER = frozenset(["POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "POWER_UP", "POWER_DOWN"])
"""A node with one of these is silent on purpose."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_SENTENCES = (
    (re.compile(r"nodes required for job are", re.I), "NodesUnavailable"),
    (re.compile(r"launch failed", re.I), "JobLaunchFailure"),
    (re.compile(r"requeued?.*held|held.*requeue", re.I), "RequeuedHeld"),
    (re.compile(r"burst.?buffer", re.I), "BurstBuffer"),
    (re.compile(r"job is at or exceeds qos", re.I), "QOSLimit"),
    (re.compile(r"job is at or exceeds association", re.I), "AssociationLimit"),
    (re.compile(r"reservation .* has ended", re.I), "ReservationEnded"),
)


def node_availability(state: str, flags: frozenset[str]) -> str | None:
    """The reason a node takes no new jobs: `down`, `fail` or `drain`; `None` if it takes them.

    UNKNOWN is none of them: after a start of slurmctld every idle node is UNKNOWN until it has
    answered (sinfo(1)). It keeps its flags, and a dead node becomes NOT_RESPONDING.
    """
    if state in ("DOWN", "ERROR"):
        return "down"
    if "NOT_RESPONDING" in flags and not flags & _POWER:
        return "down"
    if "FAIL" in flags:
        return "fail"
    return "drain" if "DRAIN" in flags else None


@lru_cache(maxsize=1024)
def node_state(text: str) -> tuple[str, frozenset[str]]:
    """Base state and flags of `MIXED+DRAIN`, `DOWN*+DRAIN+INVALID_REG` or sinfo's `idle~`."""
    head, *rest = text.upper().split("+")
    flags: set[str] = set()
    while head and head[-1] in _SUFFIXES:
        flags.add(_SUFFIXES[head[-1]])
        head = head[:-1]
    base = _BASE_ALIASES.get(head, head)
    if base in _COMPOUND and base not in NODE_STATES:
        base, flag = _COMPOUND[base]
        flags.add(flag)
    flags.update(_FLAG_ALIASES.get(flag, flag) for flag in rest if flag)
    return (base if _NAME.fullmatch(base) else "UNKNOWN"), frozenset(map(_bounded, flags))


@lru_cache(maxsize=4096)
def job_state(text: str) -> str:
    """A state as squeue or sacct prints it; `CANCELLED by 1000` is CANCELLED."""
    return _bounded(text.strip().partition(" ")[0].rstrip("+").upper())


def _bounded(name: str) -> str:
    return name if _NAME.fullmatch(name) else "UNKNOWN"


@lru_cache(maxsize=4096)
def pending_reason(text: str) -> str:
    """A bounded name for why a job is pending.

    Details after the name (`ReqNodeNotAvail, UnavailableNodes:n[1-9]`) are cut off; a sentence
    becomes one of a few names, or `other`.
    """
    head = text.strip().strip("()")
    head = re.split(r"[,:(]", head, maxsplit=1)[0].strip()
    if head in ("", "None"):
        return "None"
    spaced = text.replace("_", " ")  # scontrol prints sentences with underscores
    for pattern, name in _SENTENCES:
        if pattern.search(spaced):
            return name
    return head if _NAME.fullmatch(head) else "other"


_CLASSES = tuple(
    (name, re.compile(rf"(?<![a-z])(?:{starts})|(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE))
    for name, starts, words in (
        ("not_responding", "not responding|unreachable|no contact|ping fail", "no response"),
        ("kill_task_failed", "kill task failed|unkillable", "step.*not.*kill(?:ed)?"),
        ("prolog_epilog", "prolog|epilog", "job env setup error"),
        ("rebooted", "reboot", "unexpectedly rebooted"),
        (
            "config_mismatch",
            r"low (?:real)?(?:memory|cpus|sockets?|cores?|tmp ?disk|procs)|gres/gpu count|"
            r"count (?:changed|reported)|invalid (?:reg|config)|doesn't match",
            "corespec differ",
        ),
        (
            "gpu",
            r"gpu|nvidia|nvlink|nvswitch|cuda|dcgm|row.?remap|fell off",
            "[sv]?xids?|[vi]gpus?|ecc",
        ),
        (
            "network",
            r"infiniband|link (?:down|flap)|network|ethernet|mlx",
            r"ib\d?|nics?|roce|efa",
        ),
        (
            "storage",
            r"nfs|lustre|gpfs|weka|beegfs|file ?system|nvme|scratch",
            r"(?:un|re|auto)?mount(?:s|ed|ing|points?)?|disks?|full",
        ),
        ("memory", "memory", "dimms?|oom|mce"),
        ("health_check", "(?:un)?health|checks? fail", "nhc|hc"),
        (
            "maintenance",
            "maint|upgrad|updat|replac|repair|ticket|firmware",
            "rma|patch(?:es|ed|ing)?|test(?:s|ed|ing)?",
        ),
    )
)
"""Beginnings of words, and whole words: `process` must not match roce, nor `amount` mount."""
REASON_CLASSES = (*(name for name, _ in _CLASSES), "none", "other")


@lru_cache(maxsize=4096)
def reason_class(reason: str) -> str:
    """A coarse class of a node's reason, which is free text."""
    if not reason.strip() or reason.strip().lower() in ("none", "(null)", "unknown"):
        return "none"
    for name, pattern in _CLASSES:
        if pattern.search(reason):
            return name
    return "other"
