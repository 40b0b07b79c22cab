"""What is known of one rank at one moment, whoever has gathered it."""

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
"""Classes of a rank that does no work, whatever its stage."""
NO_STACK = Stack()
ANYBODY = "whoever asks"
"""For whom a server without clients waits."""
ABANDONED = "a read of a pipe or a socket that no other process holds"
"""How a rank waits for a thread of its own, or for a process that has ended."""


@dataclass(frozen=True, slots=True)
class Inside:
    """A collective, a send or a receive that a rank is inside of."""

    op: str
    seconds: float
    peer: int | None = None
    """The rank that a send or receive is with."""
    elements: int | None = None
    """Of the tensor, where all members must have as many."""


@dataclass(frozen=True, slots=True)
class KernelWait:
    """What the kernel shows a rank to wait in, and for whom: a rank of its job, a process that is
    no rank, or an address on another node.  With none of these it waits for nobody."""

    how: str
    """In words: `a read of a pipe`; empty where the kernel was asked, and shows nothing."""
    role: str = ""
    rank: int | None = None
    process: str = ""
    """Command and process, as `vllm serve (pid 4711)`; or `ANYBODY`."""
    address: str = ""
    through: str = ""
    """The process that is asked, and that may wait for this rank to bring what is asked for."""

    @property
    def has_ended(self) -> bool:
        """Whether it waits for a process that is not there any more."""
        return ENDED in self.process

    @property
    def nobody(self) -> bool:
        """Whether the rank sleeps, or waits for a process or thread of its own."""
        return self.rank is None and not self.beyond

    @property
    def beyond(self) -> str:
        """Whom or what it waits for that is no rank of its job."""
        return self.process or self.address or self.through


class RecordState(str, Enum):
    """Whether a rank keeps a stage record, and why it may not."""

    KEPT = "kept"
    NONE = "none"
    """Its program does not use stagewatch, or could not write to the directory."""
    NO_ROOM = "no_room"
    """None, and the directory has no room for one."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank at one moment.  What cannot be known, as without a record, is `None`."""

    job_id: str
    role: str
    rank: int
    pid: int
    world_size: int | None
    stage: str | None
    substage: str
    stage_open_seconds: float | None
    step: int | None
    progress_age_seconds: float | None
    budget_seconds: float | None
    """How long this stage may go without a mark of progress, by what all ranks of its role on this
    node have shown of it."""
    collectives: Mapping[str, int]
    """Collectives entered, by process group."""
    state: str
    wait_channel: str
    cpu_ratio: float | None
    wait_class: WaitClass
    first_failure: str
    first_failure_time: float | None
    first_failure_age_seconds: float | None
    record: RecordState = RecordState.KEPT
    inside: Mapping[str, Inside] = field(default_factory=dict)
    """What it is inside of, by process group; sends and receives are in `POINT_TO_POINT`."""
    calls: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the oldest call in flight has lasted, by the name of the tool, environment or
    reward function."""
    group_sizes: Mapping[str, int] = field(default_factory=dict)
    """Members of its process groups, where known."""
    started: float | None = None
    """When its record was begun, as Unix time."""
    expected_seconds: float | None = None
    """What is left of a pause that the trainer has announced."""
    gaps: int | None = None
    """Gaps between marks of progress that its record has shown."""
    stages: frozenset[str] = frozenset()
    """The stages in which it has shown one."""
    at_work: bool = False
    """Whether it takes memory, moves bytes, or has children that do."""
    step_age_seconds: float | None = None
    """How long it has been at its step; `None` if its record does not say."""
    storage_wait_seconds: float = 0.0
    """How long somebody has watched it in one uninterruptible sleep or storage wait, in which it
    never ran."""
    stack: Stack = NO_STACK
    """What it was in, where somebody has looked."""
    left_seconds: float | None = None
    """How long ago it left its node, having closed its record or kept none; `None` of a rank that
    is there, alive or dead.  One that has left is `WaitClass.GONE` as well."""
    node: str = ""
    """Where it runs; empty where all facts are of one node."""
    node_lost: bool = False
    """Of a rank that has left: whether its node's agent does not answer any more."""
    behind: bool = False
    """Whether it is in a stage that most of its peers have completed once more."""
    unmarked: bool = False
    """Whether it has never made a mark of progress, and only its collectives show that it goes on;
    in a job without any marks, what it takes and moves."""
    apart_before: bool = False
    """Whether it stood in another stage than most of its role before the job stood still, too."""
    dead_seconds: float | None = None
    """Of a rank that has died: for how long that has been seen; `None` where nobody has looked
    before."""
    marking_seconds: float | None = None
    """For how long it has made marks of progress without a pause, where it has begun to only
    lately."""
    gpu: str = ""
    device: Device | None = None
    """What its GPU does."""
    gpu_kernel: str = ""
    """What its GPU runs, by a core dump of it that its user has asked for."""
    kernel_waits: tuple[KernelWait, ...] = ()
    """What it waits in and for whom, where an agent has asked the kernel."""
    heard_seconds: float | None = None
    """How long ago data came in on a connection that it has opened."""
    nccl: tuple[Communicator, ...] = ()
    """What its communicators have open or had last, if a library below its program says it."""

    @property
    def tells_nothing(self) -> bool:
        """Whether what it takes and moves alone shows that it goes on."""
        return self.unmarked and not (self.collectives or self.inside)

    @property
    def computes(self) -> bool:
        """Whether its GPU does."""
        return self.device is Device.WORKS

    @property
    def awaits_peers(self) -> bool:
        """Whether its GPU spins, or its stack is in a call for its peers: a collective has begun,
        which its program may not tell of.  Where no GPU is seen, a sleep in a call for one counts
        as well: a backward pass on the host sleeps only for its peers."""
        sleeps = self.device is None and self.wait_class in (WaitClass.PARKED, WaitClass.POLL)
        calls = (Whom.PEERS, Whom.DEVICE) if sleeps else (Whom.PEERS,)
        return self.device is Device.SPINS or self.stack.whom in calls

    @property
    def awaits_ranks(self) -> bool:
        """The same, or whether the kernel shows that it waits for ranks, and for no process that
        may stand between."""
        direct = any(wait.rank is not None and not wait.through for wait in self.kernel_waits)
        return direct or self.awaits_peers

    @property
    def stands_alone(self) -> bool:
        """Whether the kernel shows that it waits for nobody, and its stack not that it waits for
        another process, which must have ended; where the kernel shows nothing, as other threads of
        the process poll, whether its stack stays in a lock or an event of its own."""
        waits, whom = self.kernel_waits, self.stack.whom
        if any(wait.how for wait in waits):
            return whom != Whom.PROCESS and all(wait.nobody and wait.how for wait in waits)
        return bool(waits) and self.stack.still and whom == Whom.OWN

    @property
    def is_abandoned(self) -> bool:
        """Whether whoever it waits for may have ended."""
        return any(wait.how == ABANDONED for wait in self.kernel_waits)

    @property
    def is_answered(self) -> bool:
        """Whether it waits for nothing that the kernel shows, and somebody has answered it since it
        was overdue: it may ask again and again, of a server that refuses for now."""
        shown = not self.kernel_waits or any(wait.how for wait in self.kernel_waits)
        heard, late = self.heard_seconds, self.late_seconds
        return not shown and heard is not None and late is not None and heard < late

    @property
    def marks(self) -> bool:
        """Whether it has just made a mark of progress."""
        return self.progress_age_seconds is not None and self.progress_age_seconds <= MIN_SECONDS

    @property
    def keeps_marking(self) -> bool:
        """Whether it makes marks again and again: one alone may be the end of what it was in."""
        lately = self.marking_seconds is not None and self.marking_seconds < MARKING_SECONDS
        return self.marks and not lately

    @property
    def stepless(self) -> bool:
        """Whether it makes marks again and again, but no step for long."""
        return self.keeps_marking and (self.step_age_seconds or 0.0) > STEPLESS_SECONDS

    @property
    def overdue(self) -> bool:
        """Whether the rank has gone longer without progress than its stage may."""
        return self.late_seconds is not None

    @property
    def call(self) -> tuple[str, float] | None:
        """Name and seconds of the call in flight that has lasted longest, from `MIN_SECONDS` on:
        shorter ones come and go in a healthy job."""
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
    """How long a rank has made no progress: since its last mark, or, in a stage whose length it has
    not shown, since it entered a collective.  A first hand-over of weights is many of these."""
    if mark_age is None or taught or not inside:
        return mark_age
    return min(mark_age, *(call.seconds for call in inside.values()))


_OF_A_CLUSTER = (
    *("node", "node_lost", "behind", "unmarked", "apart_before", "dead_seconds"),
    *("gpu", "device", "gpu_kernel", "kernel_waits", "marking_seconds", "heard_seconds", "nccl"),
)
"""Facts that one look at a node does not give."""


def as_json(fact: RankFacts) -> dict[str, Any]:
    """The facts of a rank that is here, for programs; the stack stands elsewhere."""
    content = asdict(replace(fact, stack=NO_STACK))
    for name in ("stack", "left_seconds", *_OF_A_CLUSTER):
        del content[name]
    return content | {"overdue": fact.overdue, "stages": sorted(fact.stages)}


def is_still(rank: RankFacts) -> bool:
    """Whether the rank waits, or is inside a collective: nothing speaks for long work."""
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
    """A rank that writes a little at a time sleeps at most looks, and works.  Storage that is slow
    lets a rank run between two requests; a mount that is dead does not."""
    sleeps = wait_class in _STILL and not at_work
    return sleeps or bool(inside) or storage_wait_seconds > STILL_SECONDS


BLANK = RankFacts(
    job_id="",
    role="train",
    rank=-1,
    pid=0,
    world_size=None,
    stage=None,
    substage="",
    stage_open_seconds=None,
    step=None,
    progress_age_seconds=None,
    budget_seconds=None,
    collectives={},
    state="",
    wait_channel="",
    cpu_ratio=None,
    wait_class=WaitClass.UNKNOWN,
    first_failure="",
    first_failure_time=None,
    first_failure_age_seconds=None,
)
"""The facts of a rank about which nothing is known."""
