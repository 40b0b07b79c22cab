"""Why a job died: the first failure of its processes that does not follow from another one.

A dying process takes its peers along: their collectives fail with the connection to it, or wait
until they time out, and the launcher ends the rest.  Such an echo may be recorded before the death
itself, since the kernel closes connections first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from math import inf

ECHO_SECONDS = 10.0
"""How much earlier than its cause an echo may be recorded."""
DEATH_SECONDS = 1.0
"""How much earlier than a death an exception that follows from it may be recorded."""


class Death(Enum):
    """What a job dies of; the value is for programs, `words` are for people."""

    GPU_MEMORY = "gpu_memory", "out of GPU memory"
    HOST_MEMORY = "host_memory", "out of host memory"
    COLLECTIVE_TIMEOUT = "collective_timeout", "a collective timed out"
    GPU = "gpu", "a GPU or its driver failed"
    NETWORK = "network", "the network, or a peer, was lost"
    STORAGE = "storage", "storage failed"
    PREEMPTION = "preemption", "preempted, or asked to end"
    TIME_LIMIT = "time_limit", "the time limit was reached"
    NODE = "node", "a node failed"
    CODE = "code", "the program failed"
    USER = "user", "ended by its user, or by wrong input"
    UNKNOWN = "unknown", "no evidence says why"

    def __new__(cls, value: str, words: str) -> Death:
        """`words` are for a sentence that begins with them."""
        one = object.__new__(cls)
        one._value_ = value
        one.words = words
        return one

    words: str


class Kind(IntEnum):
    """Kinds of causes, the likeliest first."""

    OWN = 0
    """An exception, the death of a rank, or what the kernel or Slurm did to it."""
    HELPER = 1
    """The death of a process that is not a rank: of a data loader's worker, of a server."""
    LEFT = 2
    """A rank that ended by itself while others went on."""
    WAITED = 3
    """A wait for others that timed out."""
    ECHO = 4
    """An exception for the end of another process."""
    ASKED = 5
    """The death of a rank by a signal that launchers send."""
    STATUS = 6
    """An exit status that says no more than that something failed."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that ended a process."""

    kind: Kind
    time: float
    """Unix time, seconds; for a log without times, a number that orders its lines."""
    whom: str
    what: str
    death: Death = Death.CODE
    sure: bool = True
    """Whether it proves the class of death; else it only suggests it."""
    rank: int | None = None
    node: str = ""
    place: str = ""
    """The place in a log: `train.log:123`."""
    killed: bool = False
    """Whether a fatal signal ended the process."""
    ended: float = inf
    """When the process of an exception ended, Unix time; infinite if unknown."""


def first(causes: Iterable[Cause]) -> Cause | None:
    """The cause from which the others follow."""
    by_kind: dict[Kind, Cause] = {}
    ordered = sorted(causes, key=lambda one: (one.time, one.kind))
    for cause in ordered:
        by_kind.setdefault(cause.kind, cause)
    own, echo = _own(ordered), by_kind.get(Kind.ECHO)
    waited = by_kind.get(Kind.WAITED)
    if (
        own is not None
        and (echo is None or own.time <= echo.time + ECHO_SECONDS)
        and (waited is None or own.time <= waited.time)
    ):
        return own if own.sure else _with_sure_class(own, ordered)
    follows = [one.time for one in (echo, waited) if one is not None]
    left = by_kind.get(Kind.LEFT)
    if left is not None and (not follows or left.time > min(follows)):
        left = None
    found = by_kind.get(Kind.HELPER) or left or waited or echo or own or by_kind.get(Kind.ASKED)
    return found or by_kind.get(Kind.STATUS)


def _own(ordered: Iterable[Cause]) -> Cause | None:
    """The first cause of kind `OWN`.

    A death by a signal precedes the exception of a process that outlived it, if both came within a
    second."""
    causes = [one for one in ordered if one.kind is Kind.OWN]
    for one in causes:
        if one.killed and one.time <= min(causes[0].time + DEATH_SECONDS, causes[0].ended):
            return one
    return causes[0] if causes else None


def _with_sure_class(likely: Cause, ordered: Iterable[Cause]) -> Cause:
    """A likely cause, with the class that the kernel or Slurm is sure of, if any."""
    for other in ordered:
        if other.kind is Kind.OWN and other.sure and other.death not in (Death.CODE, Death.USER):
            told = replace(likely, death=other.death, sure=True)
            return told if other.death is likely.death else replace(other, rank=likely.rank)
    return likely
