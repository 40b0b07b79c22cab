"""The stage record: one small file per rank that its trainer maps and the node agent reads.

The file holds little-endian 64-bit words and zero-padded UTF-8 strings.  Ages come from
`CLOCK_BOOTTIME` in nanoseconds, displayed times from the wall clock.  This module alone knows the
offsets; it uses the standard library alone, since trainers import it.

    header       identity, closing state, pause the trainer expects, first and last failure
    failures     exceptions counted by (stage, type)
    collectives  per process group: entries, when last entered and left, operation, size
    scalars      the last value per name
    lanes        one per thread: open stages, progress, totals per stage
    names        what stages and exceptions in the ring are called
    ring         the latest events, each a time, what happened, a value and the same time again
    work         tokens, FLOPs and samples per stage
    calls        of tools and the like, per name: in flight, since when, failed, durations
    job name     what its user calls the job
    batches      per lane: time that its thread has waited for batches of data
    steps        per lane: when the latest steps began, and how long it had waited by then

A lane has exactly one writer, its thread, so nothing is locked.  Its sequence number is odd while
that thread writes; a reader that sees it odd, or changed after copying, copies again.  The threads
share the ring: each takes the next place in one step of the interpreter, and stores the time of its
event first and last, so that an entry with two different times is a torn one.

The writer also holds a POSIX lock on the whole file for as long as the process lives: the kernel
thereby vouches for the writer's pid (in the reader's own PID namespace) and for its being alive.
"""

from __future__ import annotations

from stagewatch.stages import STAGES

DEFAULT_DIRECTORY = "/run/stagewatch/ranks"
"""The directory of records unless `STAGEWATCH_DIR` names another one."""

MAGIC = b"STGWATCH"
VERSION = 3
WORD = 8

# Header words.
H_MAGIC, H_VERSION, H_SIZE = 0, 1, 2
H_SEQUENCE = 3  # odd while identity or failures are being written
H_PID, H_PID_NAMESPACE, H_START_TICKS = 4, 5, 6
H_CREATED_WALL, H_CREATED_BOOT = 7, 8
H_RANK, H_LOCAL_RANK, H_WORLD_SIZE = 9, 10, 11  # -1 where unknown
H_CLOSED = 12  # 1 once the process closed its record itself
H_DROPPED = 13  # stages, scalars, groups and threads that found no room
H_EXPECTED = 14  # boot time until which the trainer expects a pause; 0: it expects none
H_CLOSED_AT = 15  # boot time at which the process closed its record; 0: unknown
H_FIRST_FAILURE, H_LAST_FAILURE = 16, 20  # four words each: wall, boot, stage code, step

# Header strings: byte offset, length.
S_BOOT_ID = (192, 40)
S_JOB_ID = (232, 64)
S_ROLE = (296, 32)
S_FRAMEWORK = (328, 32)
S_HOST = (360, 64)
S_GPU = (424, 96)
S_FIRST_ERROR = (520, 64)
S_FIRST_MESSAGE = (584, 256)
S_LAST_ERROR = (840, 64)
S_LAST_MESSAGE = (904, 120)
HEADER_SIZE = 1024

# Tables: entries of fixed size that begin with a name.
FAILURES = 16
FAILURE_SIZE = 64  # type, stage code, count
FAILURE_TYPE_SIZE = 48
FAILURES_AT = HEADER_SIZE

COLLECTIVES = 32
GROUP_SIZE = 32
# Words after the group's name.  The boot time of the last entry stands last and is stored first: a
# reader that copies upwards and finds the old time has copied the rest before it changed.
C_SEQUENCE, C_LEFT = 0, 1  # entries; boot time when the last was left
C_CALL = 2  # position of the operation in OPS + END_KNOWN + (peer's rank + 1) * PEER
C_SIZE = 3  # members of the group, 0 where unknown
C_ELEMENTS = 4  # of the tensor, where all members must have as many; else 0
C_ENTERED = 5
COLLECTIVE_SIZE = GROUP_SIZE + 6 * WORD
END_KNOWN = 1 << 8
"""In `C_CALL`: the writer records the end of the entry."""
PEER = 1 << 16
"""In `C_CALL`: the unit of the peer of a send or receive; 0 without a peer."""
COLLECTIVES_AT = FAILURES_AT + FAILURES * FAILURE_SIZE

SCALARS = 64
SCALAR_SIZE = 56  # name, value (double), boot time
SCALAR_NAME_SIZE = 40
SCALARS_AT = COLLECTIVES_AT + COLLECTIVES * COLLECTIVE_SIZE

REPLICA = "replica/"
"""The prefix of scalars with checks of replicas, as `replica/16/weights@world`: the slot, what is
checked, and the group of ranks that must agree.  The value is the step, modulo 2**21, times 2**32,
plus a checksum of 32 bits; a double holds this exactly."""
REPLICA_SLOTS = (1, 16, 256)
"""A slot keeps the latest check whose step is a multiple of its number.  As ranks are read one
after the other, only the slower slots of a fast job stay the same for long enough."""
REPLICA_STEPS = 1 << 21
NONFINITE = "replica/nonfinite"
"""The scalar with the first step in which a gradient of this rank alone was NaN or infinite."""

# Lanes.
LANES = 8
LANES_AT = SCALARS_AT + SCALARS * SCALAR_SIZE

# Lane words, from the start of the lane.
L_SEQUENCE, L_THREAD = 0, 1  # thread id as the process sees it; 0: lane never used
L_PROGRESS, L_MARKS, L_STEP = 2, 3, 4  # boot time and number of progress marks, last step (-1)
# Nanoseconds that the thread has waited for its device, which `T_WAITED` has as well; while it
# waits, less the boot time since when, likewise.  0 of a writer that does not know it.
L_DEVICE = 5
L_FRAMES = 8

FRAMES = 8
F_START, F_CODE, F_STEP, F_SUBSTAGE = 0, 1, 2, 4  # start 0: free; substage[32]
FRAME_WORDS = 8
SUBSTAGE_SIZE = 32

# Totals per stage and lane.
L_TOTALS = L_FRAMES + FRAMES * FRAME_WORDS
T_DURATION_SUM, T_GAP_SUM = 0, 1  # nanoseconds
T_GAP_LONGEST, T_GAP_RECENT = 2, 3  # nanoseconds; recent: fades by GAP_MEMORY
T_GAP_FIRST = 4  # nanoseconds: the gaps that the sum and the buckets leave out
# Nanoseconds that the thread was inside of collectives, or waited for its device, while the stage
# was its innermost one.  While it does, less the boot time since when: one word, so that no reader
# sees half of a change, and negative, since nobody has waited for longer than the machine has run.
T_WAITED = 5
T_DURATIONS = 6
BUCKETS = 20
T_GAPS = T_DURATIONS + BUCKETS
TOTAL_WORDS = T_GAPS + BUCKETS

LANE_WORDS = L_TOTALS + len(STAGES) * TOTAL_WORDS
RECORD_SIZE = LANES_AT + LANES * LANE_WORDS * WORD
"""The size of the part that describes the present."""

# Events.
NAMES = 256  # as long as a substage; the first one is empty, for a name that found no room
NAMES_AT = RECORD_SIZE
EVENTS = 4096
EVENT_SIZE = 4 * WORD
EVENTS_AT = NAMES_AT + NAMES * SUBSTAGE_SIZE
EVENTS_END = EVENTS_AT + EVENTS * EVENT_SIZE

# Work: per stage, in the order of their codes, doubles that only grow.
WORK_AT = EVENTS_END
W_TOKENS, W_FLOPS, W_SAMPLES = 0, 1, 2
WORK_WORDS = 3

# Calls: a table whose last entry, `other`, stands for all names that find no room.
CALLS = 16
CALL_NAME_SIZE = 32
OTHER_CALLS = "other"
K_OPEN, K_OLDEST = 0, 1  # calls in flight; boot time when the oldest of them began, 0: none
K_ERRORS, K_SUM = 2, 3  # exceptions; nanoseconds of all that have ended
K_DURATIONS = 4
CALL_SIZE = CALL_NAME_SIZE + (K_DURATIONS + BUCKETS) * WORD
CALLS_AT = WORK_AT + len(STAGES) * WORK_WORDS * WORD
CALLS_END = CALLS_AT + CALLS * CALL_SIZE

JOB_NAME_AT, JOB_NAME_SIZE = CALLS_END, 64

# Batches: a word a lane, nanoseconds that its thread has waited for data; while it waits, less the
# boot time since when, as `T_WAITED` has it.
BATCHES_AT = JOB_NAME_AT + JOB_NAME_SIZE
BATCHES_END = BATCHES_AT + LANES * WORD

# Steps: per lane, a ring of the beginnings of the latest ones, each a time, the sum of `T_WAITED`
# over all stages, and the same time again.  The sum is negative while the thread is inside of a
# collective, and `APART` where a stage has ended that belongs to no step: what ends or begins there
# is no step to be measured.
STEPS_AT = BATCHES_END
STEPS = 32
STEP_SIZE = 3 * WORD
APART = -1
FILE_SIZE = STEPS_AT + LANES * STEPS * STEP_SIZE

# Kinds, in the lowest byte of an event's second word, and what its third word holds.
E_ENTER, E_LEAVE = 1, 2  # the step; when the stage was entered, negative for a part of another
E_STEP, E_FAILURE = 3, 4  # the step
E_SCALAR = 5  # the value (double)
E_COLLECTIVE, E_WAIT = 6, 7  # the sequence number in the group
E_LEFT = 8  # when the collective was entered
E_FORGET = 9  # the place in the table is another group's from now on

# Above that byte, for a thread's events (up to `E_FAILURE`): lane, stage code, position in NAMES.
LANE_SHIFT, CODE_SHIFT, NAME_SHIFT = 8, 16, 24
THREAD_EVENT = "@qHH4xqq"
"""Format for `struct`: the time, kind and lane, code and name, the third word, the time again."""
# For the others: the byte offset of a scalar, or the first word after a group's name and `C_CALL`.
PLACE_SHIFT, CALL_SHIFT = 8, 24

BUCKET_UNIT_NS = 15_625_000
"""1/64 s: bucket k holds times below 2**k units, the last one everything longer."""

BUCKET_BOUNDS = tuple(2.0**k / 64 for k in range(BUCKETS - 1))
"""Upper bounds in seconds of all buckets but the last: 1/64 s to 4096 s."""

GAP_MEMORY = 47
"""Later gaps reduce a longest recent gap by the share (their sum) / 2**47 ns (39 h), at the latest
once they have taken a minute: a pause that returns within half a day stays, however many gaps are
in between."""

OPS = (
    "unknown",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "backward",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "init_process_group",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_coalesced",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)
"""Operations by code: the names of `torch.distributed`, and `backward` of a data-parallel model."""
OP_CODES = {name: code for code, name in enumerate(OPS)}

_MAX_PEER = 1 << 22

POINT_TO_POINT = "p2p"
"""The group for sends and receives; its sequence numbers cannot be compared between ranks."""


def call_of(op: str, peer: int = -1) -> int:
    """The value of `C_CALL` for an operation with this peer, without `END_KNOWN`."""
    return OP_CODES.get(op, 0) + (min(max(peer, -1), _MAX_PEER) + 1) * PEER


def pad(text: str, size: int) -> bytes:
    """The stored form of a text: UTF-8 cut between characters, zero-padded to `size` bytes."""
    raw = text[:size].encode("utf-8", "replace")[:size]
    return raw.decode("utf-8", "ignore").encode().ljust(size, b"\0")


def unpad(raw: bytes) -> str:
    """The text of a stored form; bytes that are no UTF-8 become replacement characters."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
