"""A link to a worker in its own network namespace that can delay and lose packets.

`python -m stagewatch_lab.rl.wire DEVICE HERE THERE CONTROL` makes a TUN device with address HERE,
one with address THERE in a new network namespace that lasts as long as this process, and carries
packets between them.  CONTROL is JSON: `delay`, `jitter` (seconds), `loss` (share) and `port`; it
is for packets that leave the worker for that TCP port.  Not every kernel has netem.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

from stagewatch_lab.rl import namespaces

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
MTU = 576
"""Small, so that loss and delay add up even over the few kilobytes of a shard."""
TCP = 6


def missing() -> str:
    """What this machine lacks for it, empty if nothing."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "needs root, and /dev/net/tun"
    return namespaces.missing("net", "ip")


class Trouble:
    """The faults of the link at this moment."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._seen = -1
        self.delay = self.jitter = self.loss = 0.0
        self.port = 0

    def look(self) -> None:
        """Read the control file if it has changed."""
        try:
            changed = self._control.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if changed != self._seen:
            self._seen = changed
            found = json.loads(self._control.read_text())
            self.delay, self.jitter = found["delay"], found["jitter"]
            self.loss, self.port = found["loss"], found["port"]

    def strikes(self, packet: bytes) -> bool:
        """Whether the faults apply to a packet."""
        if len(packet) < 24 or packet[0] >> 4 != 4 or packet[9] != TCP:
            return False
        at = (packet[0] & 15) * 4 + 2
        return int.from_bytes(packet[at : at + 2], "big") == self.port


def carry(here: int, there: int, trouble: Trouble) -> None:
    """Carry packets both ways for ever."""
    other = {here: there, there: here}
    order = itertools.count()
    under_way: list[tuple[float, int, int, bytes]] = []
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for device in select.select([here, there], [], [], wait)[0]:
            packet = os.read(device, 65536)
            trouble.look()
            arrives = time.monotonic()
            if device == there and trouble.strikes(packet):
                if random.random() < trouble.loss:  # noqa: S311
                    continue
                arrives += trouble.delay + random.uniform(-1, 1) * trouble.jitter  # noqa: S311
            heapq.heappush(under_way, (arrives, next(order), other[device], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(under_way)
            os.write(device, packet)


def _tun(name: str, address: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    _ip("address", "add", f"{address}/30", "dev", name)
    _ip("link", "set", name, "mtu", str(MTU), "up")
    return device


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def main(name: str, here: str, there: str, control: Path) -> None:
    """Make the link, report that it is there, and carry packets."""
    near = _tun(name, here)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _ip("link", "set", "lo", "up")
    far = _tun(name, there)
    control.with_suffix(".ready").touch()
    carry(near, far, Trouble(control))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
