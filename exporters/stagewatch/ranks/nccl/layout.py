"""Parses the file of our profiler plugin for NCCL: `layout.h` of `stagewatch_nccl`.

The writer does not wait, and other users write such files too: nothing in a file is trusted, and a
single copy may be torn.  An operation that is the same in two copies, some seconds apart, stands
still.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from stagewatch.core.words import printable

MAGIC = 0x314C43434E574753
VERSION = 1
_COMMUNICATORS, _CHANNELS, _PROXIES, _OPERATIONS, _NAME, _WINDOW = 32, 64, 128, 256, 32, 8
_HEADER = Struct("<QIIQQ32s192x")
_ABOUT = Struct("<QIIIII4x32s")
_CHANNEL, _SERVICE, _OPERATION = Struct("<II"), Struct("<QQ8s"), Struct("<QQ")
_SERVICES_AT = _ABOUT.size + _CHANNELS * _CHANNEL.size
_OPERATIONS_AT = _SERVICES_AT + _PROXIES * _SERVICE.size
_BLOCK = _OPERATIONS_AT + _OPERATIONS * _OPERATION.size
SIZE = _HEADER.size + _COMMUNICATORS * _BLOCK

MAX_MEMBERS = 1 << 24
MAX_TRANSFERS = 16
"""The most transfers of one operation."""
KINDS = (
    *("unknown", "all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"),
    *("send", "recv", "all_to_all", "gather", "scatter"),
)
"""The operations by the plugin's number, in the words of the client."""
MESSAGES = ("send", "recv")

IDLE, CALLED, LAUNCHED, BEGUN = "idle", "called", "launched", "begun"
"""How far an operation is: all launched ones have ended; the program is inside NCCL's call; the
kernel waits for the GPU; the kernel runs."""
STATES = (IDLE, CALLED, LAUNCHED, BEGUN)
PLUGIN, FLIGHT_RECORDER, RAS = "plugin", "flight_recorder", "ras"
"""The source of a communicator: our profiler plugin, PyTorch's flight recorder, NCCL's RAS."""
RECEIVE, CREDIT, NETWORK = "receive", "credit", "network"
"""What a transfer waits for: bytes of the peer; a buffer of the peer; the network, to send the
bytes that it has."""
_WAITS = {(False, 10): RECEIVE, (True, 20): CREDIT, (True, 9): NETWORK}
"""What a transfer waits for, by whether it sends, and by NCCL's number of its state."""


class CorruptFile(Exception):
    """The bytes cannot have come from a plugin of this version."""


@dataclass(frozen=True, slots=True, order=True)
class Transfer:
    """What the proxy of a rank waits for in its oldest transfer with a peer."""

    waits: str
    """`receive`, `credit` or `network`."""
    peer: int
    """The number of the peer in the communicator."""
    network: str = ""
    """The network device, if NCCL may use only one."""


@dataclass(frozen=True, slots=True)
class Communicator:
    """One communicator of a rank, with its open operation, or else its last one."""

    id: str
    """Equal on all ranks of the communicator."""
    name: str
    member: int
    members: int
    op: str
    """`unknown` if the plugin does not know it."""
    sequence: int
    """The number of the collective; for a send or receive, of the last collective before it."""
    size: int
    """Size of the operation on this rank in bytes; from the flight recorder, in elements."""
    state: str
    transfers: tuple[Transfer, ...] = ()
    witness: str = PLUGIN

    @property
    def open(self) -> bool:
        """Whether the rank has launched an operation that has not ended."""
        return self.state in (LAUNCHED, BEGUN)

    @property
    def collective(self) -> bool:
        """Whether the operation is one that all members must enter."""
        return self.op not in (*MESSAGES, "unknown")


def parse(raw: bytes) -> tuple[Communicator, ...]:
    """The communicators that exist.  Raises `CorruptFile`."""
    if len(raw) != SIZE:
        raise CorruptFile(f"it has {len(raw)} bytes, and not {SIZE}")
    magic, version, _, _, _, network = _HEADER.unpack_from(raw)
    if magic != MAGIC or version != VERSION:
        raise CorruptFile(f"magic {magic:x}, version {version}")
    device = _text(network)
    places = range(_HEADER.size, SIZE, _BLOCK)
    return tuple(one for at in places if (one := _communicator(raw, at, device)) is not None)


def _text(padded: bytes) -> str:
    return printable(padded.partition(b"\0")[0].decode("utf-8", "replace"))


def _communicator(raw: bytes, at: int, network: str) -> Communicator | None:
    """A communicator; None if the place has none, or if the ring lacks its latest operations."""
    identity, member, members, _, exists, inside, name = _ABOUT.unpack_from(raw, at)
    if not exists:
        return None
    if not (exists == 1 and inside in (0, 1) and member < members <= MAX_MEMBERS):
        raise CorruptFile(f"rank {member} of {members}")
    known = dict(_operations(raw[at + _OPERATIONS_AT : at + _BLOCK]))
    if not known:
        return _communicator_with(
            identity, name, member, members, (0, 0, 0), CALLED if inside else IDLE
        )
    launched = max(known)
    begun, running = 0, []
    for began, done in _CHANNEL.iter_unpack(raw[at + _ABOUT.size : at + _SERVICES_AT]):
        if began <= launched:  # else the ring was copied too early
            begun = max(begun, began)
            running += [began] if began != done else []
    if running:
        open_, state = min(running), BEGUN
    elif begun < launched:
        open_, state = begun + 1, LAUNCHED
    else:
        open_, state = launched, CALLED if inside else IDLE
    if open_ not in known:
        return None
    services = raw[at + _SERVICES_AT : at + _OPERATIONS_AT]
    waits = _transfers(services, open_, members, network) if state == BEGUN else ()
    return _communicator_with(identity, name, member, members, known[open_], state, tuple(waits))


def _communicator_with(
    identity: int,
    name: bytes,
    member: int,
    members: int,
    operation: tuple[int, int, int],
    state: str,
    waits: tuple[Transfer, ...] = (),
) -> Communicator:
    kind, sequence, size = operation
    return Communicator(
        f"{identity:016x}",
        _text(name),
        *(member, members, KINDS[kind], sequence, size, state),
        tuple(sorted(set(waits)))[:MAX_TRANSFERS],
    )


def _operations(ring: bytes) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """The latest operations: number, and kind, sequence and bytes; torn ones are left out."""
    for place, (number, what) in enumerate(_OPERATION.iter_unpack(ring)):
        ordinal, kind = number >> 32, what >> 40 & 0xF
        lap = ordinal // _OPERATIONS & 0xF
        if not ordinal or lap != what >> 44 & 0xF:
            continue
        if kind >= len(KINDS) or ordinal % _OPERATIONS != place:
            raise CorruptFile(f"operation {ordinal} of kind {kind} at place {place}")
        yield ordinal, (kind, number & 0xFFFF_FFFF, what & (1 << 40) - 1)


def _transfers(services: bytes, of: int, members: int, network: str) -> Iterator[Transfer]:
    """The oldest transfer of each service of an operation, with what it waits for."""
    for word, progress, states in _SERVICE.iter_unpack(services):
        peer, sends = word >> 8 & 0xFF_FFFF, bool(word & 1)
        done, steps = progress >> 32, progress & 0xFFFF_FFFF
        waits = _WAITS.get((sends, states[done % _WINDOW]))
        if word >> 32 == of and peer < members and done < steps and waits:
            yield Transfer(waits, peer, network)
