"""Slurm's names for states, flags and reasons, and how they are made bounded."""

from __future__ import annotations

import re
from functools import lru_cache

JOB_STATES = frozenset(
    [
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
    ]
)
"""Base states of jobs."""

JOB_FLAGS = (
    "COMPLETING",
    "STAGE_OUT",
    "CONFIGURING",
    "EXPEDITING",
    "POWER_UP_NODE",
    "RESIZING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "STOPPED",
    "REVOKED",
    "RESV_DEL_HOLD",
    "SIGNALING",
)
"""What squeue shows in place of the base state, the first that applies winning."""

ENDED_STATES = JOB_STATES - {"PENDING", "RUNNING", "SUSPENDED"}

NODE_STATES = frozenset(["IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "FUTURE", "UNKNOWN"])
"""Base states of nodes."""

NODE_FLAGS = frozenset(
    [
        "BLOCKED",
        "CLOUD",
        "COMPLETING",
        "DRAIN",
        "DYNAMIC_FUTURE",
        "DYNAMIC_NORM",
        "EXTERNAL",
        "FAIL",
        "INVALID",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "PERFCTRS",
        "PLANNED",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_DRAIN",
        "POWER_UP",
        "REBOOT_CANCEL",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "RESERVED",
        "RESUME",
        "UNDRAIN",
        "UPDATE",
    ]
)
_FLAG_ALIASES = {
    "MAINT": "MAINTENANCE",
    "RES": "RESERVED",
    "REBOOT": "REBOOT_REQUESTED",
    "REBOOT^": "REBOOT_ISSUED",
    "NO_RESPOND": "NOT_RESPONDING",
    "NOT RESPONDING": "NOT_RESPONDING",
    "POWERDOWN": "POWERED_DOWN",
    "POWER_SAVING": "POWERED_DOWN",
    "DYNAMIC": "DYNAMIC_NORM",
    "DRAINED": "DRAIN",
    "DRAINING": "DRAIN",
}
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
"""A node with one of these does not respond on purpose."""

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

    UNKNOWN is none of them: every idle node is so from a start of slurmctld until it has answered
    it (sinfo(1)).  Its flags are kept, and one that is dead becomes NOT_RESPONDING.
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


def node_state_of_list(names: list[str]) -> tuple[str, frozenset[str]]:
    """Base state and flags of a JSON list such as `["IDLE", "DRAIN"]`, in any order."""
    upper = [name.upper() for name in names]
    base = next((name for name in upper if name in NODE_STATES), "")
    if not base:
        base = next((name for name in upper if name not in NODE_FLAGS), "UNKNOWN")
    return node_state("+".join([base, *(name for name in upper if name != base)]))


def job_state_of_list(names: list[str]) -> str:
    """The state squeue would show for a JSON list such as `["RUNNING", "COMPLETING"]`."""
    upper = {name.upper() for name in names}
    for flag in JOB_FLAGS:
        if flag in upper:
            return flag
    states = sorted(upper & JOB_STATES)
    return states[0] if states else _bounded(next(iter(sorted(upper)), "UNKNOWN"))


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
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("not_responding", r"not responding|unreachable|no contact|ping fail"),
        ("kill_task_failed", r"kill task failed|unkillable|step.*not.*kill"),
        ("prolog_epilog", r"prolog|epilog"),
        ("rebooted", r"unexpectedly rebooted|reboot"),
        (
            "config_mismatch",
            r"low (real)?(memory|cpus|sockets?|cores?|tmp ?disk|procs)|gres/gpu "
            r"count|count (changed|reported)|invalid (reg|config)|doesn't match",
        ),
        ("gpu", r"\bxid\b|gpu|nvidia|nvlink|nvswitch|\becc\b|cuda|dcgm|row.?remap|fell off"),
        ("network", r"infiniband|\bib\d?\b|\bnic\b|link (down|flap)|network|ethernet|roce|efa|mlx"),
        ("storage", r"nfs|lustre|gpfs|weka|beegfs|mount|file ?system|disk|nvme|\bfull\b|scratch"),
        ("memory", r"\bdimm\b|memory|\boom\b|\bmce\b"),
        ("health_check", r"health|\bnhc\b|\bhc\b|\bcheck(s)? fail"),
        ("maintenance", r"maint|upgrade|update|replac|repair|\brma\b|ticket|firmware|patch|test"),
    )
)
REASON_CLASSES = (*(name for name, _ in _CLASSES), "none", "other")


@lru_cache(maxsize=4096)
def reason_class(reason: str) -> str:
    """A coarse class for the free text that says why a node is out of service."""
    if not reason.strip() or reason.strip().lower() in ("none", "(null)", "unknown"):
        return "none"
    for name, pattern in _CLASSES:
        if pattern.search(reason):
            return name
    return "other"


_SIGNALS = {2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 11: "SEGV"}
_SIGNALS |= {13: "PIPE", 15: "TERM", 24: "XCPU"}


def exit_class(code: int, signal: int) -> str:
    """A bounded name for how a program failed.

    A signal that a shell reports as 128 + n is that signal; `exit_0` is a job that failed without
    its program saying so (a node, a prolog, a time limit of a step).
    """
    if not signal and code > 128:
        signal, code = code - 128, 0
    if signal:
        return f"SIG{_SIGNALS[signal]}" if signal in _SIGNALS else "signal_other"
    return f"exit_{code}" if code in (0, 1, 2, 126, 127) else "exit_other"
