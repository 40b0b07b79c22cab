"""Jobs that hang, or only look so, as data: what makes their ranks differ, and the right verdict.

The judge is given all of them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from stagewatch.gpu.device_state import Device
from stagewatch.judgement.facts import (
    ABANDONED,
    ANYBODY,
    Inside,
    KernelWait,
    RankFacts,
    RecordState,
    is_still,
)
from stagewatch.judgement.limits import DEFAULT, FACTOR, STILL_SECONDS, UNTAUGHT_SECONDS
from stagewatch.ranks.nccl.layout import Communicator, Transfer
from stagewatch.ranks.stacks import Stack
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.ranks.waits.naming import ENDED
from tests.judgement.jobs import job

Differences = dict[str, Any]

SPIN, PARKED, POLL, IO, STOPPED, COMPUTE, TRACED, UNKNOWN, GONE = (
    {"wait_class": wait_class}
    for wait_class in (
        WaitClass.SPIN,
        WaitClass.PARKED,
        WaitClass.POLL,
        WaitClass.IO,
        WaitClass.STOPPED,
        WaitClass.COMPUTE,
        WaitClass.TRACED,
        WaitClass.UNKNOWN,
        WaitClass.GONE,
    )
)
LATE: Differences = {"progress_age_seconds": 412.0} | SPIN
OF_FIVE: Differences = {"world_size": 5}
MARKS: Differences = {"progress_age_seconds": 2.0, "wait_class": WaitClass.COMPUTE}


def member(*groups: tuple[str, int, int]) -> Differences:
    """Of groups by name, with collectives entered and size (0: not known)."""
    return {
        "collectives": {name: sequence for name, sequence, _ in groups},
        "group_sizes": {name: size for name, _, size in groups if size},
        "inside": {},
    }


def inside(
    group: str,
    sequence: int,
    size: int,
    op: str = "all_reduce",
    elements: int | None = None,
    *others: tuple[str, int, int],
) -> Differences:
    """Inside the `sequence`th collective of a group, a member of it and of the others."""
    call = Inside(op, 400.0, None, elements)
    return member((group, sequence, size), *others) | {"inside": {group: call}}


def sends(op: str, peer: int) -> Differences:
    """Inside a send or a receive."""
    return {"inside": {"p2p": Inside(op, 400.0, peer)}}


def absent(seconds: float = 60.0) -> Differences:
    """Has left so long ago, and shows nothing any more."""
    return GONE | {
        "left_seconds": seconds,
        "stage": None,
        "stage_open_seconds": None,
        "step": None,
        "progress_age_seconds": None,
        "collectives": {},
        "group_sizes": {},
        "inside": {},
    }


def stands(where: str, *, still: bool = True) -> Differences:
    """In this stack when somebody looked, twice unless it moved."""
    return {"stack": Stack(where * 8, still, f"{where}.py:1 in {where}")}


@dataclass(frozen=True, slots=True)
class Case:
    """One role of a job, and what is right to say of it."""

    size: int
    common: Differences
    special: dict[int, Differences]
    culprits: dict[int, str]
    """Evidence by rank."""
    unnamed: str = ""
    """What is known where it is stalled and nobody can be named; empty otherwise."""
    stalled: bool = True

    def ranks(self, job_id: str, role: str = "train") -> list[RankFacts]:
        """As `inspect` finds them."""
        special = {f"rank_{rank}": change for rank, change in self.special.items()}
        ranks = job(self.size, self.common, role=role, job_id=job_id, **special)
        return [with_budget(rank) for rank in ranks]


def with_budget(rank: RankFacts) -> RankFacts:
    """As if `train` had shown gaps up to four seconds, and other stages none."""
    stage = rank.stage or ""
    if rank.record is RecordState.NONE:
        budget = DEFAULT.bare_seconds
    elif long := DEFAULT.long(stage):
        budget = STILL_SECONDS if is_still(rank) else long
    else:
        budget = FACTOR * 0.99 * 4 if stage == "train" else UNTAUGHT_SECONDS
    return dataclasses.replace(rank, budget_seconds=budget)


def hang(
    size: int, common: Differences, special: dict[int, Differences], culprits: dict[int, str]
) -> Case:
    """A hang in which these ranks are at fault."""
    return Case(size, LATE | common, special, culprits)


def nobody(size: int, common: Differences, special: dict[int, Differences], why: str) -> Case:
    """A hang in which naming anybody would be a guess."""
    return Case(size, LATE | common, special, {}, why)


def well(size: int, common: Differences, special: dict[int, Differences]) -> Case:
    """A job that is left alone."""
    return Case(size, LATE | common, special, {}, "", False)


def reads(role: str, *ranks: int) -> Differences:
    """Outside of collectives, and the kernel shows it to read what these ranks write."""
    waits = tuple(KernelWait("a read of a pipe", role, rank) for rank in ranks)
    return NO_GROUP | PARKED | {"kernel_waits": waits}


def asks(process: str, *others: tuple[str, int]) -> Differences:
    """Waits for an answer of a process that is no rank, and that others may have to feed."""
    how = "a receive from a socket"
    waits = (
        KernelWait(how, through=process) if others else KernelWait(how, process=process),
        *(KernelWait(how, role, rank, through=process) for role, rank in others),
    )
    return NO_GROUP | PARKED | {"kernel_waits": waits}


def has_open(
    member: int,
    *transfers: Transfer,
    state: str = "begun",
    sequence: int = 220,
    size: int = 2 << 20,
    of: tuple[str, int] = ("world", 8),
) -> Communicator:
    """What NCCL shows of a member of a communicator, by name and size."""
    name, members = of
    identity, waits = name.encode().ljust(8, b".").hex(), tuple(sorted(transfers))
    return Communicator(
        *(identity, name, member, members, "all_reduce", sequence, size, state, waits)
    )


def below(*communicators: Communicator) -> Differences:
    """As the profiler plugin shows it."""
    return {"nccl": tuple(sorted(communicators, key=lambda one: one.id))}


def all_begun(**differs: Differences) -> dict[int, Differences]:
    """Eight ranks whose kernels run, but for what is told of some (`rank_5=...`)."""
    return {rank: differs.get(f"rank_{rank}", below(has_open(rank))) for rank in range(8)}


def around(*lost: int, free: int = -1) -> dict[int, Differences]:
    """A ring in which each waits for bytes of the one before it, but for one that is free; what
    some have sent, the network does not bring."""
    found = {}
    for rank in range(8):
        waits = [] if rank == free else [Transfer("receive", (rank - 1) % 8, "mlx5_2")]
        waits += [Transfer("network", (rank + 1) % 8, "mlx5_2")] if rank in lost else []
        found[rank] = below(has_open(rank, *waits))
    return found


BETWEEN: Differences = {"stage": "idle"}
"""Two stages."""
NO_GROUP: Differences = {"collectives": {}, "group_sizes": {}, "inside": {}}
QUEUE = KernelWait("a receive from a connection", through="broker (pid 7)")
ASKED = KernelWait("a receive from a connection", through="vllm serve (pid 7)")
INWARD = {"kernel_waits": (KernelWait("a wait for a thread or process of its own"),)}
SLEEPS = NO_GROUP | PARKED | {"kernel_waits": (KernelWait("a sleep"),)}
"""The kernel shows it to wait for nobody."""
WORLD = inside("world", 220, 8)
NOT_COME = member(("world", 219, 8)) | PARKED
RETRIES = member(("world", 219, 4)) | MARKS | {"step_age_seconds": 60.0}
SEARCHES: Differences = {"calls": {"search": 400.0}} | PARKED
"""Inside a call of a tool."""
PAIR = inside("world", 220, 2)
BARE = inside("world", 220, 2, "unknown")
BARE_BEFORE = inside("world", 219, 2, "unknown")
FORMING = inside("init", 1, 4, "init_process_group") | PARKED
BEGINS = (
    NO_GROUP
    | PARKED
    | {"stage": "init", "stages": frozenset(), "step": None, "progress_age_seconds": 130.0}
)
TOLD_NOTHING = member() | {
    "stage": "idle",
    "stage_open_seconds": None,
    "step": None,
    "progress_age_seconds": None,
}
UNTOLD = (
    TOLD_NOTHING
    | PARKED
    | {"unmarked": True, "stage": "init", "stages": frozenset(), "progress_age_seconds": 130.0}
)
"""Has a record, and tells nothing in it; has stood still for so long."""
BARE_STILL = UNTOLD | {
    "record": RecordState.NONE,
    "stage": None,
    "progress_age_seconds": 412.0,
    "world_size": 4,
}
ASLEEP = {"kernel_waits": (KernelWait(""),)}
ON_ITSELF = {"kernel_waits": (KernelWait("a wait for a thread or process of its own"),)}
"""As the kernel shows it: sleeps; waits for itself."""
IN_A_CALL: Differences = {
    "stack": Stack("a1", True, "a.py:3", call="all_reduce of torch.distributed", whom="peers")
}
FOR_ITS_GPU: Differences = {
    "stack": Stack("b2", True, "a.py:5", call="torch.cuda.synchronize", whom="device")
}
IN_BACKWARD: Differences = {
    "stack": Stack("d4", True, "a.py:9", call="backward of autograd", whom="device")
}
ELSEWHERE: Differences = {"stack": Stack("c3", True, "a.py:7")}
IN_A_QUEUE: Differences = {
    "stack": Stack("d4", True, "a.py:9", call="multiprocessing.Queue.get", whom="process")
}
IN_A_LOCK: Differences = {
    "stack": Stack("e5", True, "a.py:11", call="wait of a lock or event", whom="own")
}
GPU_IDLE: Differences = {"device": Device.IDLE}
GPU_SPINS: Differences = {"device": Device.SPINS}
BARE_LEFT = absent() | {"record": RecordState.NONE}
CHAIN = {0: sends("recv", 1), 1: member() | IO, 2: sends("recv", 1)}
"""Two wait to receive from the second, which waits for storage."""


def tensor(number: int, world: int, sequence: int) -> Differences:
    """Waits in the tensor-parallel group of this number, having been in `world` so often."""
    return inside(f"tp:{number}", sequence, 2, "all_gather", None, ("world", world, 8))


def after_tensor(number: int, world: int, sequence: int) -> Differences:
    """Has been through its tensor-parallel group, and waits in the world."""
    return inside("world", world, 8, "all_reduce", None, (f"tp:{number}", sequence, 2))


NESTED = {rank: after_tensor(rank // 2, 100, 70) for rank in range(8)}
"""Eight ranks in four tensor-parallel pairs: all wait in the world's hundredth collective."""
PIPELINE = {
    0: inside("dp:0", 9, 2, "all_reduce", None, ("world", 50, 4)),
    1: inside("dp:0", 9, 2, "all_reduce", None, ("world", 50, 4)),
    2: sends("recv", 0) | {"collectives": {"world": 50}},
    3: sends("recv", 1) | {"collectives": {"world": 50}},
}

BOTH = inside("experts", 27, 4, "reduce_scatter", None, ("world", 26, 4))
"""In two groups of the same four members by turns."""
AFTER_BOTH = inside("world", 27, 4, "all_reduce", None, ("experts", 26, 4))
LOOP = {n: inside(f"dp:{n % 2}", 38, 3, "unknown", None, (f"tp:{n // 2}", 38, 2)) for n in range(4)}
"""In the loop of six ranks, in two groups each and never yet in the world."""
END = {
    n: inside("world", 1, 6, "barrier", None, (f"dp:{n % 2}", 37, 3), ("tp:2", 37, 2))
    | {"stage": "cleanup"}
    for n in (4, 5)
}
"""Two more that are in the last barrier."""
LAST: Differences = {"inside": {"world": Inside("barrier", 400.0)}, "stage": "cleanup"}
CASES: dict[str, Case] = {
    # One group.
    "one-has-not-come": hang(8, WORLD, {5: NOT_COME}, {5: "awaited"}),
    "one-in-an-earlier-collective": hang(8, WORLD, {5: inside("world", 219, 8)}, {5: "awaited"}),
    "two-have-not-come": hang(8, WORLD, {2: NOT_COME, 5: NOT_COME}, {2: "awaited", 5: "awaited"}),
    "one-of-two-spins-as-those-inside-do": hang(
        8, WORLD, {2: NOT_COME, 5: NOT_COME | SPIN}, {2: "awaited"}
    ),
    "one-tries-again-and-another-sleeps-as-those-inside-do": hang(
        4,
        inside("world", 220, 4) | PARKED,
        {0: member(("world", 219, 4)) | PARKED, 1: RETRIES},
        {1: "livelock"},
    ),
    "one-is-a-step-ahead-in-the-same-collective": hang(
        8, inside("world", 220, 8, "unknown"), {6: {"step": 221}}, {6: "mismatch"}
    ),
    "half-are-a-step-ahead-in-the-same-collective": nobody(
        4, inside("world", 220, 4, "unknown"), {2: {"step": 221}, 3: {"step": 221}}, "mismatch"
    ),
    "one-has-left-out-a-broadcast-that-another-is-still-in": hang(
        4,
        inside("world", 3, 4, "all_gather"),
        {1: inside("world", 2, 4, "broadcast"), 3: inside("world", 2, 4, "all_gather")},
        {3: "mismatch"},
    ),
    "one-of-eight-has-left-out-a-broadcast": hang(
        8,
        inside("world", 3, 8, "barrier"),
        {1: inside("world", 2, 8, "broadcast"), 3: inside("world", 2, 8, "barrier")},
        {3: "mismatch"},
    ),
    "receives-in-the-next-step": hang(
        4,
        inside("world", 220, 4),
        {3: member(("world", 219, 4)) | sends("recv", 2) | {"step": 221}},
        {3: "mismatch"},
    ),
    "goes-on-to-the-next-step-without-one-that-has-left-the-loop": hang(
        3,
        inside("ddp:world", 31, 3, "backward", None, ("world", 30, 3)) | {"step": 221},
        {
            0: inside("world", 31, 3, "barrier", None, ("ddp:world", 30, 3))
            | {"step": 220, "stage": "cleanup"}
        },
        {0: "mismatch"},
    ),
    "one-has-left-a-backward-pass-that-most-are-in": hang(
        4,
        inside("ddp:world", 29, 4, "backward", None, ("world", 28, 4)),
        {2: inside("world", 29, 4, "all_gather", None, ("ddp:world", 29, 4))},
        {2: "mismatch"},
    ),
    "one-has-left-a-broadcast-that-most-are-in": nobody(
        4,
        inside("pairs", 29, 4, "broadcast", None, ("world", 28, 4)),
        {2: inside("world", 29, 4, "all_gather", None, ("pairs", 29, 4))},
        "cycle",
    ),
    "one-has-gone-over-to-another-stage-and-all-wait": hang(
        4,
        inside("replicate:0", 30, 2, "all_reduce", None, ("shard:0", 60, 2)),
        {
            1: inside("replicate:1", 30, 2, "all_reduce", None, ("shard:0", 60, 2)),
            2: inside("shard:1", 59, 2, "all_gather", None, ("replicate:0", 29, 2)),
            3: inside("world", 1, 4, "all_gather", None, ("shard:1", 58, 2), ("replicate:1", 29, 2))
            | {"stage": "eval"},
        },
        {3: "stage_differs"},
    ),
    "two-receive-from-each-other-and-two-wait-for-them": hang(
        4,
        {},
        {
            0: sends("recv", 1) | {"collectives": {"dp:0": 29}, "group_sizes": {"dp:0": 2}},
            1: sends("recv", 0) | {"collectives": {"dp:1": 29}, "group_sizes": {"dp:1": 2}},
            2: inside("dp:0", 30, 2),
            3: inside("dp:1", 30, 2),
        },
        {0: "circle", 1: "circle"},
    ),
    "most-have-not-come": nobody(
        4, member(("world", 219, 4)), {3: inside("world", 220, 4)}, "mismatch"
    ),
    "not-come-and-in-a-call": hang(8, WORLD, {5: NOT_COME | SEARCHES}, {5: "awaited"}),
    "never-came-to-the-making-of-groups": hang(4, FORMING, {2: member() | PARKED}, {2: "awaited"}),
    "half-of-the-world-has-never-come": dataclasses.replace(
        nobody(4, BEGINS | {"world_size": 8}, {}, "not_started"),
        culprits=dict.fromkeys(range(4, 8), "not_started"),
    ),
    "more-have-never-come-than-have": nobody(4, BEGINS | {"world_size": 9}, {}, "group_only"),
    "those-that-never-came-were-not-needed": nobody(
        4, BEGINS | {"world_size": 8, "stages": frozenset({"train"})}, {}, "group_only"
    ),
    # No rank of these jobs tells anything: what they do alone shows whether they go on.
    "nobody-tells-anything-and-half-of-the-world-has-never-come": dataclasses.replace(
        nobody(4, UNTOLD | {"world_size": 8}, {}, "not_started"),
        culprits=dict.fromkeys(range(4, 8), "not_started"),
    ),
    "nobody-tells-anything-and-all-have-come": well(4, UNTOLD | {"world_size": 4}, {}),
    "nobody-tells-anything-and-few-have-come": well(4, UNTOLD | {"world_size": 9}, {}),
    "nobody-tells-anything-and-one-of-half-the-world-loads": well(
        4, UNTOLD | {"world_size": 8}, {2: {"at_work": True}}
    ),
    "nobody-tells-anything-and-one-has-died": hang(
        4,
        UNTOLD | {"world_size": 4},
        {2: GONE | {"progress_age_seconds": None}},
        {2: "process_gone"},
    ),
    "one-without-a-record-has-gone": hang(4, BARE_STILL, {1: BARE_LEFT}, {1: "missing"}),
    "none-without-a-record-has-gone": well(4, BARE_STILL, {}),
    "most-without-a-record-have-gone": well(4, BARE_STILL, dict.fromkeys(range(3), BARE_LEFT)),
    "one-without-a-record-has-just-gone": well(
        4, BARE_STILL, {1: absent(20.0) | {"record": RecordState.NONE}}
    ),
    "one-without-a-record-has-gone-and-one-was-at-work-lately": well(
        4, BARE_STILL, {1: BARE_LEFT, 2: {"progress_age_seconds": 200.0}}
    ),
    "one-without-a-record-has-gone-and-a-gpu-computes": well(
        4, BARE_STILL, {1: BARE_LEFT, 2: {"device": Device.WORKS}}
    ),
    "one-without-a-record-has-gone-of-a-world-seen-in-part": well(
        4, BARE_STILL | {"world_size": 8}, {1: BARE_LEFT}
    ),
    "one-without-a-record-waits-unlike-the-others": hang(
        4, BARE_STILL | SPIN, {2: PARKED}, {2: "waits_unlike"}
    ),
    "one-without-a-record-stands-while-the-gpus-of-all-others-spin": hang(
        4, BARE_STILL | ASLEEP | GPU_SPINS, {2: GPU_IDLE}, {2: "not_launched"}
    ),
    "two-without-records-stand-while-gpus-spin-and-one-waits-for-the-other": hang(
        4,
        BARE_STILL | ASLEEP | GPU_SPINS,
        {1: GPU_IDLE, 2: GPU_IDLE | {"kernel_waits": (KernelWait("a lock", "train", 1),)}},
        {1: "awaited"},
    ),
    "two-without-records-stand-while-gpus-spin": nobody(
        4, BARE_STILL | ASLEEP | GPU_SPINS, {1: GPU_IDLE, 2: GPU_IDLE}, "group_only"
    ),
    "the-gpus-of-all-without-records-spin": nobody(
        4, BARE_STILL | ASLEEP | GPU_SPINS, {}, "group_only"
    ),
    "gpus-spin-while-all-others-without-records-wait-for-one-server": nobody(
        4,
        BARE_STILL | ASLEEP | GPU_IDLE | asks("vllm serve (pid 7)", ("train", 2)),
        {0: ASLEEP | GPU_SPINS, 2: asks("vllm serve (pid 7)", ("train", 1))},
        "outsider",
    ),
    "one-without-a-record-is-outside-of-the-call-that-all-others-are-in": hang(
        4, BARE_STILL | ASLEEP | IN_A_CALL, {1: ELSEWHERE}, {1: "not_launched"}
    ),
    "one-without-a-record-waits-for-its-gpu-and-may-have-launched-what-the-others-are-in": hang(
        4, BARE_STILL | ASLEEP | IN_A_CALL, {1: FOR_ITS_GPU}, {1: "stack_differs"}
    ),
    "an-engine-without-records-waits-for-whoever-asks-and-its-gpus-spin": well(
        4,
        BARE_STILL | ASLEEP | GPU_SPINS,
        {0: GPU_IDLE | {"kernel_waits": (KernelWait("a wait", process=ANYBODY),)}},
    ),
    "one-without-a-record-sleeps-while-the-backward-passes-of-all-others-do": hang(
        3,
        BARE_STILL | PARKED | ASLEEP | IN_BACKWARD | {"world_size": 3},
        {0: reads("train", 1, 2) | IN_BACKWARD, 1: ELSEWHERE, 2: ON_ITSELF},
        {1: "awaited"},
    ),
    "half-without-a-record-wait-unlike-the-others": well(
        4, BARE_STILL | SPIN, {1: PARKED, 2: PARKED}
    ),
    "one-without-a-record-waits-for-itself-by-the-kernel": hang(
        4, BARE_STILL | ASLEEP, {3: ON_ITSELF}, {3: "stands_alone"}
    ),
    "all-without-records-wait-for-themselves-by-the-kernel": well(4, BARE_STILL | ON_ITSELF, {}),
    "one-without-a-record-is-awaited-by-the-kernel": hang(
        4,
        BARE_STILL | {"kernel_waits": (KernelWait("a read of a pipe", "train", 1),)},
        {1: ON_ITSELF},
        {1: "awaited"},
    ),
    "one-without-a-record-waits-for-whoever-asks": well(
        4,
        BARE_STILL | ASLEEP,
        {2: {"kernel_waits": (KernelWait("a wait for the next request", process=ANYBODY),)}},
    ),
    "one-without-a-record-waits-for-a-process-that-is-stuck": nobody(
        4,
        BARE_STILL | ASLEEP,
        {2: {"kernel_waits": (KernelWait("a receive from a socket", process="tool (pid 7)"),)}},
        "outsider",
    ),
    "one-without-a-record-is-awaited-and-another-has-gone": hang(
        4,
        BARE_STILL | ASLEEP,
        {0: {"kernel_waits": (KernelWait("a lock in shared memory", "train", 1),)}, 3: BARE_LEFT},
        {3: "missing"},
    ),
    "one-without-a-record-is-stuck-by-the-kernel-and-another-has-gone": hang(
        4,
        BARE_STILL | {"kernel_waits": (KernelWait("a read of a pipe", "train", 1),)},
        {1: ON_ITSELF, 3: BARE_LEFT},
        {1: "awaited"},
    ),
    "one-without-a-record-reads-a-queue-that-only-it-still-holds-and-another-has-gone": hang(
        4,
        BARE_STILL | {"kernel_waits": (KernelWait("a read of a pipe", "train", 1),)},
        {1: ON_ITSELF | IN_A_QUEUE, 3: BARE_LEFT},
        {3: "missing"},
    ),
    # It has kept the end that a process it started was to write to.
    "one-without-a-record-reads-a-pipe-that-no-other-holds-and-another-has-gone": hang(
        4,
        BARE_STILL | {"kernel_waits": (KernelWait("a read of a pipe", "train", 1),)},
        {1: {"kernel_waits": (KernelWait(ABANDONED),)}, 3: BARE_LEFT},
        {3: "missing"},
    ),
    "one-without-a-record-reads-a-pipe-that-no-other-holds": hang(
        4,
        BARE_STILL | {"kernel_waits": (KernelWait("a read of a pipe", "train", 1),)},
        {1: {"kernel_waits": (KernelWait(ABANDONED),)}},
        {1: "awaited"},
    ),
    # The last two ask a server that the others do not know.
    "some-without-records-wait-for-ranks-that-a-server-does-not-answer": nobody(
        4,
        BARE_STILL | {"kernel_waits": (KernelWait("a read of a pipe", "train", 3),)},
        {
            2: asks("sandbox (pid 7)", ("train", 3)),
            3: asks("sandbox (pid 7)", ("train", 2)),
        },
        "outsider",
    ),
    "all-without-records-ask-a-server-that-does-not-answer": well(
        4, BARE_STILL | asks("queue (pid 7)", ("train", 0), ("train", 1)), {}
    ),
    "all-ask-between-two-stages-for-what-a-server-would-bring-that-has-ended": nobody(
        4, BETWEEN | asks(f"master (pid 7){ENDED}"), {}, "outsider"
    ),
    "one-without-a-record-is-in-a-lock-of-its-own-while-its-threads-poll": hang(
        4, BARE_STILL | ASLEEP, {3: ASLEEP | IN_A_LOCK}, {3: "stands_alone"}
    ),
    "one-begins-and-the-others-of-its-world-have-never-come": nobody(
        1, BEGINS | {"world_size": 4}, {}, "group_only"
    ),
    "told-nothing-yet": hang(4, FORMING, {2: TOLD_NOTHING | PARKED}, {2: "awaited"}),
    "told-nothing-yet-and-keeps-a-core-busy": well(4, FORMING, {2: TOLD_NOTHING | SPIN}),
    "told-nothing-yet-and-is-at-work": well(
        4, FORMING, {2: TOLD_NOTHING | PARKED | {"at_work": True}}
    ),
    "a-pair-in-two-collectives": nobody(2, PAIR, {1: inside("world", 219, 2)}, "mismatch"),
    "a-pair-in-two-bare-calls": hang(2, BARE, {1: BARE_BEFORE}, {1: "awaited"}),
    "half-in-earlier-bare-calls": hang(
        4,
        inside("world", 220, 4, "unknown"),
        {1: inside("world", 219, 4, "unknown"), 2: inside("world", 219, 4)},
        {1: "awaited"},
    ),
    "beside-one-in-io-that-nobody-waits-for": hang(
        4, {}, CHAIN | {3: member() | IO}, {1: "io_blocked", 3: "io_blocked"}
    ),
    "beside-one-in-io-and-stopped": hang(4, {}, CHAIN | {3: member() | STOPPED}, {1: "io_blocked"}),
    "beside-a-stopped-one-that-nobody-waits-for": hang(
        4,
        {},
        CHAIN | {1: member() | STOPPED, 3: member() | STOPPED},
        {1: "odd_one_out", 3: "odd_one_out"},
    ),
    "bare-calls-most-behind": nobody(
        8, inside("world", 219, 8, "unknown"), {3: inside("world", 220, 8, "unknown")}, "mismatch"
    ),
    # Mismatches.
    "another-operation": hang(8, WORLD, {3: inside("world", 220, 8, "broadcast")}, {3: "mismatch"}),
    "another-size": hang(
        8,
        inside("world", 220, 8, "all_reduce", 512),
        {3: inside("world", 220, 8, "all_reduce", 511)},
        {3: "mismatch"},
    ),
    "another-operation-of-two": nobody(
        2, PAIR, {1: inside("world", 220, 2, "barrier")}, "mismatch"
    ),
    "one-passed-a-collective": hang(
        8, inside("world", 219, 8), {3: inside("world", 220, 8)}, {3: "mismatch"}
    ),
    "half-passed-a-collective": nobody(
        4,
        inside("world", 219, 4),
        {0: inside("world", 220, 4), 1: inside("world", 220, 4)},
        "mismatch",
    ),
    # Nested groups: who waits is never accused.
    "a-victim-in-a-sub-group": hang(
        8,
        {},
        NESTED | {4: tensor(2, 99, 70), 5: member(("tp:2", 69, 2), ("world", 99, 8))},
        {5: "awaited"},
    ),
    "a-cycle": nobody(
        4,
        {},
        {
            0: inside("a", 5, 2, "all_reduce", None, ("b", 4, 2)),
            1: inside("b", 5, 2, "all_reduce", None, ("a", 4, 2)),
            2: inside("a", 5, 2),
            3: inside("b", 5, 2),
        },
        "cycle",
    ),
    "one-of-a-cycle-has-left-out-a-collective": hang(
        8, {}, NESTED | {4: tensor(2, 99, 70), 5: after_tensor(2, 100, 69)}, {5: "mismatch"}
    ),
    "one-of-a-cycle-has-left-out-two": hang(
        8, {}, NESTED | {4: tensor(2, 99, 70), 5: after_tensor(2, 100, 68)}, {5: "mismatch"}
    ),
    "a-cycle-of-a-pair-with-counts-of-its-own": nobody(
        8, {}, NESTED | {4: tensor(2, 99, 61), 5: after_tensor(2, 100, 60)}, "cycle"
    ),
    "two-of-two-cycles-take-another-turn": hang(
        8,
        {},
        {
            n: inside(f"row:{n // 4}", 28, 4, "all_to_all", None, (f"column:{n % 4}", 27, 2))
            for n in range(8)
        }
        | {
            n: inside(f"column:{n % 4}", 28, 2, "all_reduce", None, (f"row:{n // 4}", 27, 4))
            for n in (3, 6)
        },
        {3: "mismatch", 6: "mismatch"},
    ),
    "one-of-a-cycle-has-a-group-of-its-own": nobody(
        8,
        {},
        {n: after_tensor(n // 2, 100, 69) for n in range(8)}
        | {4: inside("tp:2", 70, 2, "all_reduce", None, ("world", 99, 8), ("io", 5, 1))},
        "cycle",
    ),
    "half-have-left-out-what-the-others-wait-in": nobody(
        4, BOTH, {2: AFTER_BOTH, 3: AFTER_BOTH}, "cycle"
    ),
    "some-wait-at-the-end-for-those-in-the-loop": hang(
        6, {}, LOOP | END, {4: "left_loop_early", 5: "left_loop_early"}
    ),
    "half-wait-at-the-end": nobody(
        4,
        {},
        {n: member(("world", 1, 4), (f"dp:{n}", 37, 2)) | LAST for n in (0, 1)}
        | {n + 2: inside(f"dp:{n}", 38, 2) for n in (0, 1)},
        "cycle",
    ),
    "two-groups-of-one-name": nobody(4, inside("tp", 7, 2), {0: inside("tp", 6, 2)}, "cycle"),
    # Sends and receives.
    "a-receive-that-nobody-sends": hang(
        4,
        {"collectives": {}},
        {0: sends("recv", 1), 2: sends("recv", 0), 3: sends("recv", 2)},
        {1: "awaited"},
    ),
    "a-send-and-its-receive": nobody(
        2, {"collectives": {}}, {0: sends("send", 1), 1: sends("recv", 0)}, "group_only"
    ),
    "receives-in-a-ring": nobody(
        3,
        {"collectives": {}},
        {0: sends("recv", 1), 1: sends("recv", 2), 2: sends("recv", 0)},
        "cycle",
    ),
    "a-send-to-one-who-is-not-here": nobody(
        2, {"collectives": {}}, {0: sends("send", 1), 1: sends("send", 7)}, "missing"
    ),
    "started-again-and-not-come": hang(
        8,
        WORLD | {"started": 1000.0},
        {3: member(("world", 4, 8)) | {"started": 1200.0}},
        {3: "awaited"},
    ),
    # Counted by nobody: three wait where two have not come, which wait in the world for them.
    "few-wait-in-another-group-than-most-of-theirs": hang(
        5,
        inside("saver", 3, 5, "broadcast", None, ("world", 1, 5)) | OF_FIVE,
        {rank: inside("world", 2, 5, "barrier", None, ("saver", 2, 5)) | OF_FIVE for rank in (1, 4)}
        | {2: inside("saver", 4, 5, "all_gather", None, ("world", 1, 5)) | OF_FIVE},
        {1: "awaited", 4: "awaited"},
    ),
    "two-and-two-wait-in-two-groups-of-theirs": nobody(
        4,
        inside("saver", 3, 4, "broadcast", None, ("world", 1, 4)) | {"world_size": 4},
        {
            rank: inside("world", 2, 4, "barrier", None, ("saver", 2, 4)) | {"world_size": 4}
            for rank in (1, 3)
        },
        "cycle",
    ),
    # The first stage of a pipeline has no experts.
    "as-many-are-in-no-such-group-as-these-lack": hang(
        6,
        {"world_size": 6},
        {
            rank: inside("world", 2, 6)
            if rank < 2
            else inside(f"experts:{rank % 2}", 1, 3, "all_reduce", None, ("world", 1, 6))
            for rank in range(6)
        },
        {0: "mismatch", 1: "mismatch"},
    ),
    "more-are-in-no-such-group-than-it-lacks": nobody(
        6,
        {"world_size": 6} | inside("world", 2, 6),
        {rank: inside("experts", 1, 4, "all_reduce", None, ("world", 1, 6)) for rank in (3, 4, 5)},
        "missing",
    ),
    "one-has-started-again-and-is-in-no-group-yet": hang(
        5,
        inside("world", 29, 5) | OF_FIVE | {"started": 1000.0},
        {4: NO_GROUP | PARKED | OF_FIVE | {"started": 1080.0}},
        {4: "awaited"},
    ),
    "started-together": hang(
        8,
        WORLD | {"started": 1000.0},
        {3: member(("world", 4, 8)) | {"started": 1059.0}},
        {3: "awaited"},
    ),
    "pipeline-behind-one-that-hangs": hang(
        4, {}, PIPELINE | {1: member(("dp:0", 8, 2), ("world", 50, 4))}, {1: "awaited"}
    ),
    # Members that are not here.
    "members-missing": nobody(6, inside("world", 220, 8), {}, "missing"),
    "one-gone": hang(8, WORLD, {5: GONE}, {5: "process_gone"}),
    # Ranks that have left.
    "one-left": hang(8, WORLD, {5: absent()}, {5: "missing"}),
    "most-left": hang(
        8, WORLD, dict.fromkeys(range(5), absent()), dict.fromkeys(range(5, 8), "mismatch")
    ),
    "most-left-and-one-of-the-last-is-in-no-collective": hang(
        8,
        WORLD,
        dict.fromkeys(range(5), absent()) | {7: {"collectives": {}, "inside": {}}},
        {5: "mismatch", 6: "mismatch"},
    ),
    "all-others-left": hang(
        4,
        inside("world", 220, 4, "barrier") | {"world_size": 4},
        dict.fromkeys((1, 2, 3), absent()),
        {0: "mismatch"},
    ),
    "all-others-left-what-may-have-ended": hang(
        4,
        inside("world", 220, 4, "unknown") | {"world_size": 4},
        dict.fromkeys((1, 2, 3), absent()),
        {0: "alone"},
    ),
    "all-others-just-left": nobody(
        4,
        inside("world", 220, 4, "barrier") | {"world_size": 4},
        dict.fromkeys((1, 2, 3), absent(20.0)),
        "missing",
    ),
    "some-just-left": hang(8, WORLD, {4: absent(20.0), 5: absent()}, {5: "missing"}),
    "one-left-beside-one-that-has-not-come": hang(
        8, WORLD, {5: absent(), 2: NOT_COME}, {2: "awaited"}
    ),
    "one-left-a-group-that-nobody-waits-in": nobody(
        8, {"collectives": {}}, {5: absent()}, "group_only"
    ),
    "one-left-that-was-to-be-sent-to": hang(
        2, member() | {"world_size": 2}, {0: sends("send", 1), 1: absent()}, {1: "missing"}
    ),
    "weak-evidence-after-one-left": hang(
        8, {"collectives": {}}, {5: absent(), 3: {"stage": "reward"}}, {3: "stage_differs"}
    ),
    "weak-evidence-just-after-one-left": nobody(
        8, {"collectives": {}}, {5: absent(20.0), 3: {"stage": "reward"}}, "other_role"
    ),
    # Without collectives.
    "all-spin": nobody(8, {"collectives": {}}, {}, "group_only"),
    "a-node-stopped": hang(
        4, {"collectives": {}}, {2: STOPPED, 3: STOPPED}, {2: "odd_one_out", 3: "odd_one_out"}
    ),
    "in-a-stage-of-its-own": hang(
        8, {"collectives": {}}, {5: {"stage": "reward"}}, {5: "stage_differs"}
    ),
    # Calls of tools, environments and reward functions.
    "all-in-calls": nobody(4, {"collectives": {}} | SEARCHES, {}, "call"),
    "in-calls-and-all-inside": nobody(8, WORLD | SEARCHES, {}, "group_only"),
    "in-calls-and-in-a-cycle": nobody(
        4, SEARCHES | inside("tp", 7, 2), {0: inside("tp", 6, 2)}, "cycle"
    ),
    # Stacks, where nothing else tells.
    "a-stack-of-its-own": hang(
        8, {"collectives": {}} | stands("a"), {5: stands("b")}, {5: "stack_differs"}
    ),
    "a-stack-of-its-own-while-it-spins-in-bare-calls": hang(
        3, inside("world", 220, 3, "unknown") | stands("a"), {1: stands("b")}, {1: "stack_differs"}
    ),
    "all-inside-one-in-a-stack-of-its-own": nobody(
        8, WORLD | stands("a"), {5: stands("b")}, "group_only"
    ),
    # Marks of progress by who is at fault.
    "marks-without-steps": hang(
        8,
        WORLD,
        {5: member(("world", 219, 8)) | MARKS | {"step_age_seconds": 60.0}},
        {5: "livelock"},
    ),
    "seen-to-stand-still-a-moment-after-the-others": well(
        4,
        inside("world", 220, 4) | {"progress_age_seconds": 13.0},
        {1: {"progress_age_seconds": 9.0, "step_age_seconds": 60.0}},
    ),
    "goes-on-without-the-others": hang(
        8, WORLD, {5: member(("world", 219, 8)) | MARKS}, {5: "awaited"}
    ),
    # Excuses.
    "at-work-for-a-moment": well(
        8, WORLD | {"progress_age_seconds": 60.0}, {5: NOT_COME | {"at_work": True}}
    ),
    "at-work-for-too-long": hang(
        8, WORLD, {5: NOT_COME | COMPUTE | {"at_work": True}}, {5: "awaited"}
    ),
    "nobody-waits-and-one-is-at-work": well(
        8, {"collectives": {}, "progress_age_seconds": 60.0}, {5: {"at_work": True}}
    ),
    "suspended": well(4, {"collectives": {}} | STOPPED, {}),
    "idle-since-one-has-died": hang(
        4, {"collectives": {}, "stage": "idle"} | PARKED, {1: GONE}, {1: "process_gone"}
    ),
    "idle": well(4, {"collectives": {}, "stage": "idle"} | PARKED, {}),
    "inside-a-collective-outside-of-stages": nobody(
        4, inside("world", 9, 4) | {"stage": "idle"} | PARKED, {}, "group_only"
    ),
    "all-are-asleep-and-count-steps-without-a-stage": nobody(
        4,
        PARKED
        | {"collectives": {}, "stage": "idle", "step_age_seconds": 412.0, "stages": frozenset()},
        {},
        "group_only",
    ),
    # What NCCL shows, while all programs say that they have entered the same collective.
    "one-has-not-launched": hang(
        8,
        WORLD,
        all_begun(rank_5=below(has_open(5, state="idle", sequence=219))),
        {5: "not_launched"},
    ),
    "one-stays-inside-of-the-call-of-nccl": hang(
        8,
        WORLD,
        all_begun(rank_5=below(has_open(5, state="called", sequence=219))),
        {5: "not_launched"},
    ),
    "one-gpu-has-not-begun": hang(
        8, WORLD, all_begun(rank_2=below(has_open(2, state="launched"))), {2: "not_begun"}
    ),
    "the-network-loses-what-one-sends": hang(8, WORLD, around(3), {3: "no_bytes"}),
    "one-proxy-gets-no-buffer-of-the-next": hang(
        8, WORLD, all_begun(rank_5=below(has_open(5, Transfer("credit", 6)))), {6: "no_bytes"}
    ),
    "one-gpu-sends-nothing-more": hang(8, WORLD, around(free=6), {6: "no_bytes"}),
    "one-launches-another-size": hang(
        8, WORLD, all_begun(rank_2=below(has_open(2, size=1 << 20))), {2: "mismatch"}
    ),
    "one-has-not-launched-as-its-pair-has-not-begun": hang(
        8,
        WORLD,
        all_begun(
            rank_4=below(
                has_open(4, state="idle", sequence=219),
                has_open(0, state="launched", of=("tp:2", 2)),
            ),
            rank_5=below(has_open(5, state="idle", sequence=219), has_open(1, of=("tp:2", 2))),
        ),
        {4: "not_begun"},
    ),
    "no-gpu-has-begun": nobody(
        8, WORLD, {rank: below(has_open(rank, state="launched")) for rank in range(8)}, "group_only"
    ),
    "one-has-no-plugin": nobody(
        8, WORLD, all_begun(rank_5=below(has_open(5, state="launched")), rank_7={}), "group_only"
    ),
    # What the kernel shows.
    "all-read-a-pipe-of-one-that-sleeps": hang(4, reads("train", 2), {2: SLEEPS}, {2: "awaited"}),
    "two-read-of-each-other": nobody(2, {}, {0: reads("train", 1), 1: reads("train", 0)}, "cycle"),
    "one-asks-a-process-that-is-no-rank": nobody(
        4,
        inside("world", 220, 4),
        {1: asks("vllm serve (pid 7)") | {"collectives": {"world": 219}}},
        "outsider",
    ),
    "all-but-one-ask-a-queue": hang(
        4,
        asks("redis-server (pid 7)", ("train", 0), ("train", 1), ("train", 2), ("train", 3)),
        {3: SLEEPS},
        {3: "awaited_through"},
    ),
    "one-is-in-a-collective-that-its-peers-have-stepped-past-and-ask-a-queue": hang(
        4,
        asks("broker (pid 7)", *(("train", n) for n in range(4)))
        | member(("world", 219, 4))
        | {"step": 74},
        {2: inside("world", 220, 4) | {"step": 73}},
        {2: "mismatch"},
    ),
    "one-is-in-a-collective-and-its-peers-ask-a-queue-in-the-same-step": nobody(
        4,
        asks("broker (pid 7)", *(("train", n) for n in range(4)))
        | member(("world", 219, 4))
        | {"step": 73},
        {2: inside("world", 220, 4)},
        "outsider",
    ),
    # Any that may fill the queue would do, so that all of them are stuck.
    "two-of-four-ask-a-queue": hang(
        4,
        asks("redis-server (pid 7)", ("train", 2), ("train", 3)),
        {2: SLEEPS, 3: SLEEPS},
        {2: "awaited_through", 3: "awaited_through"},
    ),
    "two-of-four-ask-a-queue-of-two-one-of-which-shows-nothing": nobody(
        4,
        asks("redis-server (pid 7)", ("train", 2), ("train", 3)),
        {2: SLEEPS, 3: SLEEPS | {"kernel_waits": (KernelWait(""),)}},
        "outsider",
    ),
    "two-wait-for-each-other-and-one-asks-a-queue-that-they-may-fill": nobody(
        3,
        asks("broker (pid 7)", ("train", 0), ("train", 1)),
        {
            0: SLEEPS | {"kernel_waits": (KernelWait("a read of a pipe", "train", 1),)},
            1: SLEEPS | {"kernel_waits": (KernelWait("a read of a pipe", "train", 0),)},
        },
        "group_only",
    ),
    "two-of-five-ask-a-queue-that-one-may-yet-fill": well(
        5,
        asks("redis-server (pid 7)", ("train", 2), ("train", 3), ("train", 4)),
        {2: SLEEPS, 3: SLEEPS, 4: NO_GROUP | MARKS},
    ),
    # A thread of its library listens to a peer; that peer waits for it by name.
    "polls-beside-a-thread-that-listens-to-a-peer": hang(
        4,
        inside("world", 220, 4),
        {2: member(("world", 219, 4)) | POLL | {"kernel_waits": (KernelWait("x", "train", 3),)}},
        {2: "awaited"},
    ),
}
"""By name."""


def saves(seconds: float) -> Case:
    """Ranks that have been asleep in a checkpoint for so long, and are suspected."""
    saving = PARKED | {"stage": "checkpoint", "progress_age_seconds": seconds}
    return nobody(2, {"collectives": {}} | saving, {}, "group_only")


def gives_way(size: int, common: Differences, special: dict[int, Differences]) -> Case:
    """A hang in which one stands out that may wait for another role."""
    return nobody(size, common, special, "other_role")


WAITS_IN_A_QUEUE = member(("world", 219, 4)) | PARKED | {"stage": "idle"}
AWAIT_WORK: Differences = {"collectives": {}, "stage": "rollout"} | PARKED
MEETS_ENGINES = inside("weights", 1, 3, "broadcast", None, ("world", 0, 3))
TRIO: Differences = {"world_size": 3}
SYNC = inside("sync", 9, 4, "broadcast")
BEFORE_SYNC = member(("sync", 8, 4))
ROLLOUTS = WORLD | {"stage": "rollout"}
STANDS = AWAIT_WORK | stands("a")
WHOLE = {0: "role_differs", 1: "role_differs"}
RETRYING: Differences = {"collectives": {}} | MARKS | {"step_age_seconds": 412.0}
LATELY: Differences = {"progress_age_seconds": 62.0, "step_age_seconds": 62.0}
TELLS_NOTHING: Differences = {"collectives": {}, "gaps": 0, "progress_age_seconds": None}
MEETS_ROLLOUTS = inside("transfer", 11, 3, "broadcast", None, ("world", 71, 3))
NOT_MET = member(("transfer", 10, 3))
ROLES: dict[str, dict[str, Case]] = {
    "a-role-waits-for-one-whose-ranks-are-all-in-calls": {
        "train": nobody(3, {"collectives": {}} | PARKED, {}, "other_role"),
        "rollout": nobody(2, AWAIT_WORK | SEARCHES, {}, "call"),
    },
    "a-role-waits-for-a-save-of-another": {
        "train": saves(119.0),
        "rollout": well(3, AWAIT_WORK, {}),
    },
    # Where and how a rank waits tells less than what another role shows.
    "left-the-loop-beside-a-livelock": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": hang(2, AWAIT_WORK, {1: MARKS | {"step_age_seconds": 60.0}}, {1: "livelock"}),
    },
    "left-the-loop-beside-one-that-is-gone": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": Case(3, MARKS, {1: GONE}, {1: "process_gone"}, "", False),
    },
    "a-stage-of-its-own-beside-one-that-has-not-come": {
        "train": gives_way(8, {"collectives": {}}, {5: {"stage": "reward"}}),
        "rollout": hang(8, ROLLOUTS, {3: NOT_COME}, {3: "awaited"}),
    },
    "a-stack-of-its-own-beside-one-that-has-not-come": {
        "train": gives_way(8, {"collectives": {}} | stands("a"), {5: stands("b")}),
        "rollout": hang(8, ROLLOUTS, {3: NOT_COME}, {3: "awaited"}),
    },
    "between-two-stages-beside-one-that-waits-unlike-those-inside": {
        "train": gives_way(4, inside("world", 220, 4) | POLL, {0: WAITS_IN_A_QUEUE | POLL}),
        "rollout": hang(
            4,
            AWAIT_WORK | inside("world", 220, 4) | POLL,
            {1: WAITS_IN_A_QUEUE},
            {1: "left_loop_early"},
        ),
    },
    "between-two-stages-in-two-roles": {
        "train": gives_way(4, inside("world", 220, 4) | POLL, {0: WAITS_IN_A_QUEUE | POLL}),
        "rollout": gives_way(
            4, AWAIT_WORK | inside("world", 220, 4) | POLL, {1: WAITS_IN_A_QUEUE | POLL}
        ),
    },
    "handing-over-weights-beside-a-role-that-has-made-no-step-since": {
        "train": gives_way(4, inside("world", 220, 4), {0: NOT_COME | {"stage": "weights_update"}}),
        "rollout": well(2, WAITS_IN_A_QUEUE | {"step_age_seconds": 412.0}, {}),
    },
    "handing-over-weights-to-a-role-that-waits-for-them": {
        "train": hang(
            4, inside("world", 220, 4), {0: NOT_COME | {"stage": "weights_update"}}, {0: "awaited"}
        ),
        "rollout": nobody(
            2, WAITS_IN_A_QUEUE | POLL | {"stage": "weights_update"}, {}, "group_only"
        ),
    },
    "handing-over-weights-alone": {
        "train": hang(
            4, inside("world", 220, 4), {0: NOT_COME | {"stage": "weights_update"}}, {0: "awaited"}
        ),
        "rollout": well(2, {"collectives": {}} | MARKS, {}),
    },
    "a-role-makes-marks-and-no-steps-and-all-others-wait": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": well(3, WAITS_IN_A_QUEUE, {}),
        "collector": Case(1, RETRYING, {}, {0: "livelock"}, "", False),
    },
    "a-role-makes-marks-and-no-steps-for-a-minute": {
        "train": gives_way(4, inside("world", 220, 4) | LATELY, {0: WAITS_IN_A_QUEUE | LATELY}),
        "collector": Case(1, RETRYING | {"step_age_seconds": 61.0}, {}, {0: "livelock"}, "", False),
    },
    "a-role-makes-marks-and-no-steps-for-less-than-a-minute": {
        "train": gives_way(4, inside("world", 220, 4) | LATELY, {0: WAITS_IN_A_QUEUE | LATELY}),
        "collector": well(1, RETRYING | {"step_age_seconds": 59.0}, {}),
    },
    "a-role-makes-marks-and-no-steps-beside-one-that-stands": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": nobody(3, STANDS, {}, "group_only"),
        "collector": well(1, RETRYING, {}),
    },
    "a-role-makes-marks-at-work-and-all-others-wait": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": well(3, WAITS_IN_A_QUEUE, {}),
        "collector": well(1, RETRYING | {"at_work": True}, {}),
    },
    "between-two-stages-beside-a-role-that-steps-in-place": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": well(
            2, {"collectives": {}} | MARKS | {"step_age_seconds": 408.0}, {1: {"at_work": True}}
        ),
    },
    "between-two-stages-beside-a-role-that-has-stepped-since": {
        "train": hang(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}, {0: "left_loop_early"}),
        "rollout": well(
            2,
            {"collectives": {}} | MARKS | {"step_age_seconds": 408.0},
            {1: {"step_age_seconds": 406.0}},
        ),
    },
    "between-two-stages-beside-one-of-two-that-stays-in-its-stage": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": hang(
            2,
            {"collectives": {}, "stage": "idle"} | POLL,
            {1: {"stage": "rollout"}},
            {1: "stage_differs"},
        ),
    },
    "between-two-stages-beside-two-roles-of-which-one-stays-in-a-stage": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": nobody(
            2, {"collectives": {}, "stage": "idle"} | POLL, {1: {"stage": "rollout"}}, "group_only"
        ),
        "reward": nobody(1, AWAIT_WORK | {"stage": "reward"}, {}, "group_only"),
    },
    "in-a-bare-collective-beside-one-that-is-alone-in-a-stage": {
        "train": nobody(
            2,
            {"collectives": {}, "stage": "idle"} | POLL,
            {0: inside("x", 3, 0, "unknown") | {"stage": "train"}},
            "missing",
        ),
        "rollout": nobody(1, AWAIT_WORK, {}, "group_only"),
    },
    "left-the-loop-in-two-roles": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": gives_way(4, AWAIT_WORK | inside("world", 220, 4), {1: WAITS_IN_A_QUEUE}),
    },
    "between-two-stages-beside-a-role-that-goes-on": {
        "train": hang(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE | POLL}, {0: "awaited"}),
        "rollout": well(8, WORLD, {3: NOT_COME, 4: {"progress_age_seconds": 2.0}}),
    },
    "left-the-loop-beside-a-role-that-is-idle": {
        "train": hang(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}, {0: "left_loop_early"}),
        "rollout": nobody(2, {"collectives": {}, "stage": "idle"} | POLL, {}, "group_only"),
    },
    "left-the-loop-beside-a-role-that-goes-on": {
        "train": hang(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}, {0: "left_loop_early"}),
        "rollout": well(8, WORLD, {3: NOT_COME, 4: {"progress_age_seconds": 2.0}}),
    },
    "all-of-a-group-of-two-roles-but-one-have-come": {
        "train": gives_way(3, SYNC, {}),
        "rollout": hang(1, AWAIT_WORK | BEFORE_SYNC, {}, {0: "awaited"}),
    },
    "all-of-a-group-of-two-roles-but-one-of-two-have-come": {
        "train": gives_way(2, SYNC, {}),
        "rollout": hang(2, AWAIT_WORK, {0: BEFORE_SYNC, 1: SYNC}, {0: "awaited"}),
    },
    "all-of-a-group-of-two-roles-have-come": {
        "train": nobody(2, SYNC, {}, "group_only"),
        "rollout": nobody(2, AWAIT_WORK | SYNC, {}, "group_only"),
    },
    "another-operation-in-a-group-of-two-roles": {
        "train": nobody(1, SYNC, {}, "group_only"),
        "rollout": hang(
            3, AWAIT_WORK | SYNC, {2: inside("sync", 9, 4, "barrier")}, {2: "mismatch"}
        ),
    },
    "a-role-stands-at-one-place-beside-one-that-is-all-idle": {
        "train": well(4, WAITS_IN_A_QUEUE, {}),
        "rollout": hang(2, STANDS, {}, WHOLE),
    },
    "a-role-stands-at-one-place-beside-one-that-never-had-a-stage": {
        "train": well(4, WAITS_IN_A_QUEUE | {"stages": frozenset({"idle"})}, {}),
        "rollout": nobody(2, STANDS, {}, "group_only"),
    },
    "a-role-stands-at-one-place-beside-one-that-is-within-its-budget": {
        "train": well(4, WAITS_IN_A_QUEUE | {"progress_age_seconds": 2.0}, {}),
        "rollout": nobody(2, STANDS, {}, "group_only"),
    },
    "a-role-stands-at-one-place-beside-one-at-work": {
        "train": well(4, WAITS_IN_A_QUEUE, {0: {"at_work": True, "progress_age_seconds": 60.0}}),
        "rollout": nobody(2, STANDS, {}, "group_only"),
    },
    "a-role-stands-in-two-stages": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": nobody(2, STANDS, {1: {"stage": "reward"}}, "group_only"),
    },
    "a-role-stands-in-a-stage-of-another": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": nobody(2, STANDS | {"stage": "train"}, {}, "group_only"),
    },
    "a-role-stands-inside-of-its-calls": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": nobody(2, STANDS | SEARCHES, {}, "call"),
    },
    "the-only-rank-of-a-role-stands": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": hang(1, AWAIT_WORK, {}, {0: "role_differs"}),
    },
    "two-roles-stand-at-one-place": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}),
        "rollout": nobody(2, STANDS, {}, "group_only"),
        "reward": nobody(1, AWAIT_WORK | {"stage": "reward"}, {}, "group_only"),
    },
    "a-role-stands-beside-one-whose-ranks-wait-for-each-other": {
        "train": nobody(
            2,
            {},
            {
                0: inside("a", 2, 2, "all_reduce", None, ("b", 1, 2)),
                1: inside("b", 2, 2, "all_reduce", None, ("a", 1, 2)),
            },
            "cycle",
        ),
        "rollout": nobody(2, STANDS, {}, "group_only"),
    },
    "a-role-that-stands-is-missed-in-a-group-that-both-share": {
        "train": gives_way(3, inside("world", 72, 3), {0: MEETS_ROLLOUTS}),
        "rollout": hang(2, STANDS | NOT_MET, {}, WHOLE),
    },
    "a-role-that-stands-is-missed-in-a-group-of-unknown-size": {
        "train": gives_way(
            4,
            inside("world", 72, 4, "unknown"),
            {0: inside("transfer", 11, 0, "unknown", None, ("world", 71, 4))},
        ),
        "rollout": hang(2, STANDS | member(("transfer", 10, 0)), {}, WHOLE),
    },
    "a-role-stands-and-another-misses-a-rank-that-nobody-sees": {
        "train": nobody(3, inside("world", 72, 4), {}, "missing"),
        "rollout": nobody(2, STANDS, {}, "group_only"),
    },
    "a-role-stands-and-a-rank-has-left": {
        "train": nobody(
            4, {"world_size": 4} | inside("world", 220, 4), {0: WAITS_IN_A_QUEUE}, "other_role"
        ),
        "rollout": nobody(3, STANDS | {"world_size": 3}, {2: absent(100.0)}, "group_only"),
    },
    "a-role-has-left-and-all-others-wait": {
        "train": gives_way(4, inside("world", 220, 4) | LATELY, {0: WAITS_IN_A_QUEUE}),
        "rollout": well(3, WAITS_IN_A_QUEUE | LATELY, {}),
        "loader": Case(1, MARKS | {"world_size": 1}, {0: absent(100.0)}, {0: "missing"}, "", False),
    },
    "a-role-has-left-and-another-stands": {
        "train": gives_way(4, inside("world", 220, 4) | LATELY, {0: WAITS_IN_A_QUEUE}),
        "rollout": nobody(3, STANDS | LATELY, {}, "group_only"),
        "loader": Case(1, MARKS | {"world_size": 1}, {0: absent(100.0)}, {}),
    },
    "a-role-has-left-and-another-one-has-lost-a-rank": {
        "train": gives_way(4, inside("world", 220, 4) | LATELY, {0: WAITS_IN_A_QUEUE}),
        "rollout": well(3, WAITS_IN_A_QUEUE | LATELY, {2: absent(100.0)}),
        "loader": Case(1, MARKS | {"world_size": 1}, {0: absent(100.0)}, {}),
    },
    "between-two-stages-beside-a-role-that-tells-nothing": {
        "train": gives_way(4, inside("world", 220, 4) | POLL, {0: WAITS_IN_A_QUEUE | POLL}),
        "buffer": well(1, PARKED | TELLS_NOTHING, {}),
    },
    "a-message-to-a-rank-of-the-same-number-of-another-role": {
        "train": nobody(4, inside("world", 220, 4), {2: NOT_COME | sends("send", 2)}, "missing"),
        "rollout": hang(
            2, inside("tp", 30, 2) | POLL, {1: member(("tp", 29, 2)) | POLL}, {1: "awaited"}
        ),
    },
    "a-role-that-has-died-is-missed": {
        "train": nobody(3, inside("world", 1, 3, "barrier"), {0: MEETS_ENGINES}, "missing"),
        "rollout": Case(2, MARKS | GONE, {}, {0: "process_gone", 1: "process_gone"}, "", False),
    },
    "a-role-that-has-died-beside-a-group-of-unknown-size": {
        "train": nobody(3, inside("sync", 9, 0, "unknown"), {}, "group_only"),
        "rollout": Case(1, MARKS | GONE, {}, {0: "process_gone"}, "", False),
    },
    "left-the-loop-beside-a-role-in-a-collective-of-unknown-size": {
        "train": hang(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE | POLL}, {0: "awaited"}),
        "rollout": nobody(2, AWAIT_WORK | inside("sync", 9, 0, "unknown"), {}, "group_only"),
    },
    "a-role-that-has-died-beside-one-between-two-stages": {
        "train": gives_way(4, inside("world", 220, 4), {0: WAITS_IN_A_QUEUE | POLL}),
        "rollout": Case(2, MARKS | GONE, {}, {0: "process_gone", 1: "process_gone"}, "", False),
    },
    "a-role-that-has-died-beside-one-that-is-all-in-one-collective": {
        "train": nobody(4, inside("world", 220, 4), {}, "group_only"),
        "rollout": Case(2, MARKS | GONE, {}, {}, "process_gone", False),
    },
    "a-role-that-has-died-beside-one-in-its-stages": {
        "train": nobody(4, {"collectives": {}}, {}, "group_only"),
        "rollout": Case(1, MARKS | GONE, {}, {0: "process_gone"}, "", False),
    },
    "a-role-that-has-died-and-nobody-misses": {
        "train": hang(8, WORLD, {5: NOT_COME}, {5: "awaited"}),
        "rollout": Case(2, MARKS | GONE, {}, {}, "process_gone", False),
    },
    "a-role-that-has-died-beside-one-that-misses-a-rank-of-its-own": {
        "train": Case(4, LATE | inside("world", 220, 4), {3: GONE}, {3: "process_gone"}, "", True),
        "rollout": Case(2, MARKS | GONE, {}, {}, "process_gone", False),
    },
    "a-role-that-has-just-left-is-missed": {
        "train": nobody(3, TRIO | inside("world", 1, 5, "barrier"), {}, "missing"),
        "rollout": Case(2, MARKS | {"world_size": 2}, {0: absent(20.0), 1: absent(20.0)}, {}),
    },
    "a-role-has-left-and-another-has-died": {
        "train": nobody(3, TRIO | inside("world", 1, 5, "barrier"), {}, "missing"),
        "reward": Case(1, MARKS | GONE | {"world_size": 1}, {}, {}, "process_gone", False),
        "rollout": Case(1, MARKS | {"world_size": 1}, {0: absent()}, {0: "missing"}, "", False),
    },
    "weak-evidence-beside-a-role-that-one-has-left-and-a-debugger-holds": {
        "train": hang(8, {"collectives": {}}, {5: {"stage": "reward"}}, {5: "stage_differs"}),
        "rollout": well(8, WORLD, {5: absent(), 0: TRACED}),
    },
    "weak-evidence-beside-a-role-of-which-one-has-just-left": {
        "train": gives_way(8, {"collectives": {}}, {5: {"stage": "reward"}}),
        "rollout": well(3, MARKS | {"world_size": 3}, {1: absent(20.0)}),
    },
    "two-roles-save": {"train": saves(119.0), "rollout": saves(119.0)},
    # What the kernel shows.
    "one-reads-a-pipe-of-another-role": {
        "train": nobody(4, inside("world", 220, 4), {1: reads("rollout", 1)}, "other_role"),
        "rollout": hang(3, reads("train", 1), {1: SLEEPS}, {1: "awaited"}),
    },
    "one-reads-a-pipe-of-a-rank-whose-role-goes-on": {
        "train": nobody(2, reads("rollout", 0), {}, "other_role"),
        "rollout": Case(3, NO_GROUP | MARKS, {0: LATE | SLEEPS}, {0: "awaited"}, "", False),
    },
    "one-reads-a-pipe-of-a-rank-without-a-record": {
        "train": nobody(2, reads("rollout", 0), {}, "other_role"),
        "rollout": well(1, NO_GROUP | PARKED | TELLS_NOTHING, {}),
    },
    # Its frontend waits for all of them, so that one of the four has to begin.
    "one-asks-a-frontend-that-waits-for-all-who-wait-for-it": {
        "rollout": hang(
            4,
            inside("world", 63, 4),
            {2: asks("a queue (pid 7)", ("frontend", 0)) | member(("world", 62, 4)) | BETWEEN},
            {2: "awaited"},
        ),
        "frontend": Case(
            1,
            TELLS_NOTHING | asks("a queue (pid 8)", *(("rollout", n) for n in range(4))),
            {},
            {},
            "",
            False,
        ),
    },
    # The first trainer is a client of the engine, too, but asks it nothing now.
    "one-engine-owes-an-answer-that-all-wait-for": {
        "train": nobody(
            3,
            inside("world", 51, 3, "broadcast"),
            {0: asks("a queue (pid 8)", ("rollout", 0)) | BETWEEN | member(("world", 50, 3))},
            "other_role",
        ),
        "rollout": nobody(
            1, asks("vllm serve (pid 7)", ("train", 0)) | {"stage": "rollout"}, {}, "outsider"
        ),
    },
    # Who asks the queue does so within a stage, too, but that does not explain the others' wait.
    "one-engine-owes-an-answer-beside-a-queue-that-is-asked-in-a-stage": {
        "train": nobody(2, asks("a queue (pid 8)", ("rollout", 0)), {}, "other_role"),
        "rollout": nobody(
            1, NO_GROUP | PARKED | {"stage": "rollout", "kernel_waits": (ASKED,)}, {}, "outsider"
        ),
    },
    # The first trainer looks into a file, of which nobody tells.
    "one-asks-a-server-that-has-ended-while-its-peers-ask-a-queue": {
        "train": nobody(
            3,
            inside("world", 51, 3, "broadcast"),
            {0: member(("world", 50, 3)) | PARKED | BETWEEN},
            "other_role",
        ),
        "rollout": nobody(
            3,
            asks("a broker (pid 6)", ("rollout", 1)),
            {1: asks("vllm serve (pid 7), which has ended")},
            "outsider",
        ),
    },
    # A queue that one may have to fill who shows no wait is not told.
    "one-of-two-roles-asks-a-queue-that-the-other-may-fill": {
        "train": nobody(
            2, asks("a queue (pid 8)", ("rollout", 0), ("rollout", 1)), {}, "other_role"
        ),
        "rollout": well(2, NO_GROUP | PARKED | BETWEEN, {}),
    },
    # Either engine may be at fault.
    "two-engines-owe-answers-that-lead-to-each-other": {
        "train": nobody(2, asks("one (pid 8)", ("rollout", 0)), {}, "other_role"),
        "rollout": nobody(
            2, asks("another (pid 7)", ("train", 0)) | {"stage": "rollout"}, {}, "other_role"
        ),
    },
    "a-process-waits-for-a-role-that-has-died": {
        "prefill": Case(1, MARKS | GONE, {}, {0: "process_gone"}, "", False),
        "decode": nobody(
            4,
            inside("world", 34, 4),
            {0: asks("a server (pid 7)") | member(("world", 33, 4))},
            "other_role",
        ),
    },
    "trainers-ask-a-queue-that-a-rollout-fills": {
        "train": nobody(2, asks("redis-server (pid 7)", ("rollout", 0)), {}, "other_role"),
        "rollout": Case(3, NO_GROUP | MARKS, {0: LATE | SLEEPS}, {0: "awaited_through"}, "", False),
    },
    # Its peers wait for it by name, and it for whatever may come.
    "one-of-a-group-of-two-roles-listens-to-a-queue": {
        "train": nobody(
            3,
            inside("world", 51, 3, "broadcast"),
            {0: inside("sync", 26, 3, "broadcast", None, ("world", 50, 3))},
            "other_role",
        ),
        "rollout": hang(
            2,
            inside("sync", 26, 3, "broadcast"),
            {1: member(("sync", 25, 3)) | PARKED | {"stage": "idle", "kernel_waits": (QUEUE,)}},
            {1: "awaited"},
        ),
    },
    "one-left-behind-asks-a-process-as-its-peers-do": {
        "train": nobody(2, reads("rollout", 0), {}, "other_role"),
        "rollout": nobody(3, asks("vllm serve (pid 7)"), {0: {"behind": True}}, "outsider"),
    },
    "one-reads-a-pipe-of-a-rank-without-a-record-that-waits-for-nobody": {
        "train": nobody(2, reads("rollout", 0), {}, "other_role"),
        "rollout": Case(1, TELLS_NOTHING | SLEEPS, {}, {0: "awaited"}),
    },
    "one-reads-a-pipe-of-a-rank-without-a-record-that-keeps-a-core-busy": {
        "train": nobody(2, reads("rollout", 0), {}, "other_role"),
        "rollout": Case(
            1,
            TELLS_NOTHING | NO_GROUP | SPIN | {"kernel_waits": (KernelWait(""),)},
            {},
            {0: "awaited"},
        ),
    },
    # Each holds both ends of the queue, as children of one program do.
    "a-role-that-has-left-filled-a-queue-of-which-others-hold-both-ends": {
        "train": nobody(
            4,
            inside("world", 220, 4),
            {
                0: reads("train", 1) | member(("world", 219, 4)) | {"stage": "idle"},
                1: reads("train", 0) | member(("world", 219, 4)) | {"stage": "idle"},
            },
            "other_role",
        ),
        "data": Case(
            2,
            MARKS | {"world_size": 2},
            {0: absent(100.0), 1: absent(100.0)},
            {0: "missing", 1: "missing"},
            "",
            False,
        ),
    },
    # The orchestrator waits for a thread of its own, and that for what the dead one was to bring.
    "one-has-died-and-another-role-waits-within-itself": {
        "train": nobody(2, reads("orchestrator", 0), {}, "other_role"),
        "orchestrator": nobody(1, TELLS_NOTHING | SLEEPS, {}, "other_role"),
        "environment": hang(3, reads("orchestrator", 0), {2: GONE}, {2: "process_gone"}),
    },
    "all-wait-in-turn-through-queues-that-a-role-has-left": {
        "train": nobody(
            3,
            inside("world", 51, 3, "broadcast"),
            {0: asks("a queue (pid 8)", ("orchestrator", 0)) | BETWEEN | member(("world", 50, 3))},
            "other_role",
        ),
        "orchestrator": well(1, NO_GROUP | PARKED | BETWEEN | {"kernel_waits": (QUEUE,)}, {}),
        "environment": Case(
            1, MARKS | {"world_size": 1}, {0: absent(100.0)}, {0: "missing"}, "", False
        ),
    },
    # One of the environments has left, and a rollout reads what it was to send.
    "one-of-a-role-has-left-and-all-others-wait-for-what-it-was-to-bring": {
        "train": nobody(
            2,
            inside("world", 51, 2, "broadcast"),
            {0: asks("a queue (pid 7)", ("environment", 0)) | BETWEEN | member(("world", 50, 2))},
            "other_role",
        ),
        "rollout": well(2, NO_GROUP | PARKED | BETWEEN | {"kernel_waits": (QUEUE,)}, {}),
        "environment": Case(
            2,
            LATE | BETWEEN | asks("a queue (pid 9)", ("rollout", 0)) | {"world_size": 2},
            {1: absent(100.0)},
            {1: "missing"},
            "",
            False,
        ),
    },
    # The driver waits for the address of one that was never launched; the other has told its own.
    "one-of-a-role-that-idles-has-never-come": {
        "driver": nobody(
            1,
            {"world_size": 1, "stage": "init", "stages": frozenset({"init"})}
            | asks("a queue (pid 8)", ("rollout", 0)),
            {},
            "other_role",
        ),
        "rollout": Case(
            1,
            LATE | BEGINS | asks("a queue (pid 9)", ("driver", 0)) | {"world_size": 2} | BETWEEN,
            {},
            {1: "not_started"},
            "",
            True,
        ),
    },
    # They ask again and again, and a process behind the server that they ask is stopped.
    "a-role-reads-of-one-that-makes-no-step-and-asks-a-process": {
        "train": nobody(
            3,
            inside("world", 51, 3, "broadcast"),
            {0: member(("world", 50, 3)) | reads("rollout", 0, 1) | BETWEEN},
            "outsider",
        ),
        "rollout": well(2, asks("tokenizer (pid 9)") | MARKS | {"step_age_seconds": 412.0}, {}),
    },
    # The server answers each with an error.
    "a-role-reads-of-one-that-makes-no-step-as-it-asks-a-server": {
        "train": nobody(
            3,
            inside("world", 51, 3, "broadcast"),
            {0: reads("rollout", 0) | member(("world", 50, 3)) | BETWEEN},
            "outsider",
        ),
        "rollout": well(
            1,
            NO_GROUP
            | PARKED
            | MARKS
            | {"stage": "rollout", "step_age_seconds": 412.0, "kernel_waits": (ASKED,)},
            {},
        ),
    },
    # They try again and again, and were seen at two places of their loop.
    "one-of-those-that-are-read-of-makes-marks-at-another-place": {
        "train": nobody(2, reads("rollout", 0, 1, 2), {}, "other_role"),
        "rollout": well(3, MARKS | NO_GROUP | stands("sleep"), {2: stands("call")}),
    },
    # It asks the queue again every two seconds, and makes a mark each time.
    "one-asks-a-queue-with-marks-while-its-peers-wait-for-it": {
        "train": nobody(
            3,
            inside("world", 51, 3, "broadcast"),
            {
                0: asks("broker (pid 9)", ("rollout", 0))
                | member(("world", 50, 3))
                | MARKS
                | {"step_age_seconds": 412.0}
            },
            "other_role",
        ),
        "rollout": Case(
            1, LATE | NO_GROUP | PARKED | BETWEEN | INWARD, {}, {0: "awaited_through"}, "", False
        ),
    },
    # It may be a queue that this one has to fill.
    "a-role-makes-no-step-as-it-asks-a-server-that-one-of-it-does-not": {
        "train": nobody(2, reads("rollout", 0, 1), {}, "other_role"),
        "rollout": Case(
            3,
            MARKS | {"stage": "rollout", "step_age_seconds": 412.0},
            {
                0: asks("buffer (pid 9)", ("rollout", 1), ("rollout", 2)),
                1: asks("buffer (pid 9)", ("rollout", 0), ("rollout", 2)),
                2: LATE | SLEEPS,
            },
            {2: "awaited_through"},
            "",
            True,
        ),
    },
    # It hands over weights; the other clients of the server have nothing to do until it has.
    "one-asks-a-server-whose-other-clients-read-of-it": {
        "train": nobody(
            4,
            inside("world", 51, 4, "barrier") | {"stage": "weights_update"},
            {0: asks("engine (pid 7)", ("rollout", 0), ("rollout", 1)) | member(("world", 50, 4))},
            "outsider",
        ),
        "rollout": well(2, reads("train", 0) | BETWEEN, {}),
    },
    "two-roles-read-of-each-other": {
        "train": nobody(2, reads("rollout", 0), {}, "other_role"),
        "rollout": nobody(2, reads("train", 0), {}, "other_role"),
    },
}
"""Jobs of several roles, by name."""


def ranks_of(name: str) -> list[RankFacts]:
    """Those of all roles of a job."""
    return [rank for role, case in ROLES[name].items() for rank in case.ranks(name, role)]
