"""The facts about one rank at one moment, from any source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from stagewatch.gpu.device_state import Device
from stagewatch.judgement.limits import (
    MARKING_SECONDS,
    MIN_SECONDS,
    STEPLESS_SECONDS,
    STILL_SECONDS,
)
from stagewatch.ranks.nccl.layout import Communicator
from stagewatch.ranks.stacks import Stack
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.ranks.waits.blocking_calls import Whom
from stagewatch.ranks.waits.naming import ENDED

_STILL = (WaitClass.PARKED, WaitClass.POLL, WaitClass.STOPPED)
"""Wait classes in which a rank does no work, whatever its stage."""
NO_STACK = Stack()
ANYBODY = "whoever asks"
"""The name of what a server without clients waits for."""
ABANDONED = "a read of a pipe or a socket that no other process holds"
"""How a rank waits for a thread of its own, or for a process that has ended."""


@dataclass(frozen=True, slots=True)
class Inside:
    """A collective, a send or a receive that a rank has entered and not left."""

    op: str
    seconds: float
    peer: int | None = None
    """The other rank of a send or a receive."""
    elements: int | None = None
    """Elements of the tensor, if the operation wants the same number from all members."""


@dataclass(frozen=True, slots=True)
class KernelWait:
    """A wait of a rank as the kernel shows it: for a rank of its job, for a process that is no
    rank, or for an address on another node.  If none of these is set, it waits for nobody."""

    how: str
    """The call in words, as `a read of a pipe`; empty if the kernel was asked and showed none."""
    role: str = ""
    rank: int | None = None
    process: str = ""
    """Command and pid, as `vllm serve (pid 4711)`; or `ANYBODY`."""
    address: str = ""
    through: str = ""
    """The process that the waiting rank has asked.  To answer, it may need data from `rank`."""

    @property
    def has_ended(self) -> bool:
        """Whether the awaited process has ended."""
        return ENDED in self.process

    @property
    def waits_for_nobody(self) -> bool:
        """Whether the rank sleeps, or waits for a process or thread of its own."""
        return self.rank is None and not self.outsider

    @property
    def outsider(self) -> str:
        """The awaited process or address that is not a rank of the job; empty if there is none."""
        return self.process or self.address or self.through


class RecordState(str, Enum):
    """Whether a rank keeps a stage record, or why it keeps none."""

    KEPT = "kept"
    NONE = "none"
    """Its program does not use stagewatch, or cannot write to the directory."""
    NO_ROOM = "no_room"
    """The directory has no room for a record."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank at one moment.  An unknown value is `None`, as most are without a record."""

    job_id: str
    role: str
    rank: int
    pid: int
    world_size: int | None = None
    stage: str | None = None
    substage: str = ""
    stage_open_seconds: float | None = None
    step: int | None = None
    progress_age_seconds: float | None = None
    budget_seconds: float | None = None
    """How long this stage may go without a mark of progress, as learnt from all ranks of the
    role."""
    collectives: Mapping[str, int] = field(default_factory=dict)
    """Number of collectives entered, by process group."""
    state: str = ""
    wait_channel: str = ""
    cpu_ratio: float | None = None
    wait_class: WaitClass = WaitClass.UNKNOWN
    first_failure: str = ""
    first_failure_time: float | None = None
    first_failure_age_seconds: float | None = None
    record: RecordState = RecordState.KEPT
    inside: Mapping[str, Inside] = field(default_factory=dict)
    """The calls that it is inside of, by group; sends and receives are in `POINT_TO_POINT`."""
    calls: Mapping[str, float] = field(default_factory=dict)
    """Duration of the oldest call in flight in seconds, by the name of the tool, environment or
    reward function."""
    group_sizes: Mapping[str, int] = field(default_factory=dict)
    """Number of members of its process groups, where known."""
    started: float | None = None
    """When its record began, as Unix time."""
    expected_seconds: float | None = None
    """The remaining time of a pause that the trainer has announced."""
    gaps: int | None = None
    """Number of gaps between marks of progress in its record."""
    stages: frozenset[str] = frozenset()
    """The stages in which its record has a gap between marks."""
    at_work: bool = False
    """Whether it or a child of it takes memory or moves bytes."""
    step_age_seconds: float | None = None
    """How long it has been at its step; `None` if its record does not say."""
    storage_wait_seconds: float = 0.0
    """How long it has been in one uninterruptible sleep or storage wait without running."""
    stack: Stack = NO_STACK
    """Its Python stack, if one was taken."""
    left_seconds: float | None = None
    """How long ago it left its node after closing its record, or without one; `None` for a rank
    that is there, alive or dead.  The wait class of a rank that has left is `GONE`."""
    node: str = ""
    """Where it runs; empty if all facts are of one node."""
    node_lost: bool = False
    """Whether it has left and the agent of its node does not answer any more."""
    behind: bool = False
    """Whether it is in a stage that most of its peers have completed one more time."""
    unmarked: bool = False
    """Whether it has never made a mark of progress, so that only its collectives show that it goes
    on; in a job without any marks, only the memory that it takes and the bytes that it moves."""
    dead_seconds: float | None = None
    """How long it has been known to be dead; `None` if it lives, or at a first look."""
    marking_seconds: float | None = None
    """How long it has made marks of progress without a pause, if it has begun to only lately."""
    gpu: str = ""
    device: Device | None = None
    """What its GPU does."""
    gpu_kernel: str = ""
    """The kernel on its GPU, by a core dump that its user has asked for."""
    kernel_waits: tuple[KernelWait, ...] = ()
    """Its waits, if an agent has asked the kernel."""
    heard_seconds: float | None = None
    """How long ago data came in on a connection that it has opened."""
    nccl: tuple[Communicator, ...] = ()
    """The open or last operation of its communicators, if a library below its program shows it."""

    @property
    def shows_only_activity(self) -> bool:
        """Whether it shows neither marks nor collectives, only the use of memory and bytes."""
        return self.unmarked and not (self.collectives or self.inside)

    @property
    def computes(self) -> bool:
        """Whether its GPU computes."""
        return self.device is Device.WORKS

    @property
    def awaits_peers(self) -> bool:
        """Whether its GPU spins or its stack is in a call for its peers: it is in a collective,
        even if its program does not record that.  If no GPU is seen, a sleep in a GPU call counts
        too, since a backward pass on the host sleeps only for its peers."""
        sleeps = self.device is None and self.wait_class in (WaitClass.PARKED, WaitClass.POLL)
        calls = (Whom.PEERS, Whom.DEVICE) if sleeps else (Whom.PEERS,)
        return self.device is Device.SPINS or self.stack.whom in calls

    @property
    def awaits_ranks(self) -> bool:
        """Whether it waits for peers, as above, or the kernel shows that it waits directly for a
        rank, with no process in between."""
        direct = any(wait.rank is not None and not wait.through for wait in self.kernel_waits)
        return direct or self.awaits_peers

    @property
    def stands_alone(self) -> bool:
        """Whether it cannot go on by itself and waits for nobody.

        The kernel shows that it waits for nobody, and its stack does not wait for another process
        (which must then have ended).  If the kernel shows nothing because other threads poll, its
        stack stays in a lock or an event of its own."""
        waits, whom = self.kernel_waits, self.stack.whom
        if any(wait.how for wait in waits):
            return whom != Whom.PROCESS and all(
                wait.waits_for_nobody and wait.how for wait in waits
            )
        return bool(waits) and self.stack.still and whom == Whom.OWN

    @property
    def is_abandoned(self) -> bool:
        """Whether the process that it waits for may have ended."""
        return any(wait.how == ABANDONED for wait in self.kernel_waits)

    @property
    def is_answered(self) -> bool:
        """Whether the kernel shows no wait, and data has come in since it was overdue: it may
        repeat a request that a server refuses for now."""
        shown = not self.kernel_waits or any(wait.how for wait in self.kernel_waits)
        heard, late = self.heard_seconds, self.late_seconds
        return not shown and heard is not None and late is not None and heard < late

    @property
    def marks(self) -> bool:
        """Whether it has just made a mark of progress."""
        return self.progress_age_seconds is not None and self.progress_age_seconds <= MIN_SECONDS

    @property
    def keeps_marking(self) -> bool:
        """Whether it has made marks for a while: a single one may be the end of its stage."""
        lately = self.marking_seconds is not None and self.marking_seconds < MARKING_SECONDS
        return self.marks and not lately

    @property
    def stepless(self) -> bool:
        """Whether it keeps making marks, but no step for long."""
        return self.keeps_marking and (self.step_age_seconds or 0.0) > STEPLESS_SECONDS

    @property
    def overdue(self) -> bool:
        """Whether it has gone without progress for longer than its stage may."""
        return self.late_seconds is not None

    @property
    def call(self) -> tuple[str, float] | None:
        """Name and seconds of its longest call in flight; `None` below `MIN_SECONDS`, since a
        healthy job has short calls all the time."""
        name = max(self.calls, key=lambda name: self.calls[name], default="")
        return (name, self.calls[name]) if self.calls.get(name, 0.0) >= MIN_SECONDS else None

    @property
    def late_seconds(self) -> float | None:
        """How long it has been overdue; `None` if it is not."""
        age, budget = self.progress_age_seconds, self.budget_seconds
        if age is None or budget is None or age <= budget or self.expected_seconds:
            return None
        return age - budget


def silent_seconds(
    mark_age: float | None, inside: Mapping[str, Inside], *, taught: bool
) -> float | None:
    """How long a rank has made no progress, in seconds.

    In a stage that is not `taught`, entering a collective counts as a mark: the first hand-over of
    weights is a series of collectives."""
    if mark_age is None or taught or not inside:
        return mark_age
    return min(mark_age, *(call.seconds for call in inside.values()))


_OF_A_CLUSTER = (
    *("node", "node_lost", "behind", "unmarked", "dead_seconds"),
    *("gpu", "device", "gpu_kernel", "kernel_waits", "marking_seconds", "heard_seconds", "nccl"),
)
"""Facts that only a cluster's series give, and no single look at a node."""


def as_json(fact: RankFacts) -> dict[str, Any]:
    """The facts of a rank on this node for programs, without its stack, which has a key of its
    own."""
    content = asdict(replace(fact, stack=NO_STACK))
    for name in ("stack", "left_seconds", *_OF_A_CLUSTER):
        del content[name]
    return content | {"overdue": fact.overdue, "stages": sorted(fact.stages)}


def is_still(rank: RankFacts) -> bool:
    """Whether the rank waits or is inside a collective, so that it does no long work."""
    return seems_still(
        rank.wait_class, rank.inside, rank.storage_wait_seconds, at_work=rank.at_work
    )


def seems_still(
    wait_class: WaitClass,
    inside: Mapping[str, Inside],
    storage_wait_seconds: float,
    *,
    at_work: bool,
) -> bool:
    """Whether a rank with these facts waits or is inside a collective.

    A rank that writes a little at a time sleeps at most looks, and still works (`at_work`).  Slow
    storage lets a rank run between two requests; a dead mount does not."""
    sleeps = wait_class in _STILL and not at_work
    return sleeps or bool(inside) or storage_wait_seconds > STILL_SECONDS


BLANK = RankFacts(job_id="", role="train", rank=-1, pid=0)
"""The facts of an unknown rank."""
