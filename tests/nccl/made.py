"""Files of the profiler plugin as bytes: `layout.h` of `stagewatch_nccl` says what is where."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from stagewatch.ranks.nccl.layout import KINDS, MAGIC, SIZE, VERSION
from tests.bench.fuzzing.mutations import mutated

HEADER, BLOCK = 256, 7744
CHANNELS_AT, PROXIES_AT, RING_AT = 64, 64 + 512, 64 + 512 + 3072
RING = 256


def made(operations: int = 300, *, begun: int = 300, done: int = 299, open_: int = 1) -> bytes:
    """A communicator of eight ranks with so many all-reduces; two proxies wait in the latest."""
    file = bytearray(SIZE)
    struct.pack_into("<QIIQQ32s", file, 0, MAGIC, VERSION, 5, 4711, 0, b"mlx5_2")
    struct.pack_into("<QIIIII4x32s", file, HEADER, 0x5EED, 3, 8, 2, open_, 0, b"world")
    for channel in range(2):
        struct.pack_into("<II", file, HEADER + CHANNELS_AT + 8 * channel, begun, done)
    for place, (peer, sends, state) in enumerate(((2, 0, 10), (4, 1, 9))):
        of = operations << 32 | peer << 8 | sends
        states = bytes([0, 0, 0, state, 0, 0, 0, 0])
        at = HEADER + PROXIES_AT + 24 * place
        struct.pack_into("<QQ8s", file, at, of, 3 << 32 | 14, states)
    kind = KINDS.index("all_reduce")
    for number in range(max(1, operations - RING + 1), operations + 1):
        what = 0xFFFF << 48 | (number // RING & 15) << 44 | kind << 40 | 2 << 20
        at = HEADER + RING_AT + 16 * (number % RING)
        struct.pack_into("<QQ", file, at, number << 32 | number, what)
    return bytes(file)


SEEDS = (made(), made(7, begun=7, done=7), made(9, begun=8, done=8), made(0, begun=0, done=0))


def changed(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """One of them with changes where something lies, and most often of the right size."""
    used = HEADER + BLOCK
    data = mutated([seed[:used] for seed in seeds], chance)
    if chance.random() < 0.95:
        data = data[:used].ljust(used, b"\0")
    return data + bytes(SIZE - used)
