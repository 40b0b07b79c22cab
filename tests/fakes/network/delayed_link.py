"""Carries packets between TUN devices on two hosts, each packet a while later.

delayed_link.py PID-ON-ONE-HOST PID-ON-THE-OTHER MILLISECONDS
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import select
import struct
import sys
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


def tun_on(pid: str) -> int:
    """A TUN device named `delayed` in the network namespace of a process."""
    with Path(f"/proc/{pid}/ns/net").open() as namespace:
        if ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError("setns")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"delayed", IFF_TUN | IFF_NO_PI))
    return device


def main() -> None:
    one, two = tun_on(sys.argv[1]), tun_on(sys.argv[2])
    delay = int(sys.argv[3]) / 1000
    other = {one: two, two: one}
    order = itertools.count()
    under_way: list[tuple[float, int, int, bytes]] = []
    while True:
        wait = under_way[0][0] - time.monotonic() if under_way else None
        ready, _, _ = select.select([one, two], [], [], None if wait is None else max(0.0, wait))
        for device in ready:
            try:
                packet = os.read(device, 65536)
            except OSError:
                continue
            arrives = time.monotonic() + delay
            heapq.heappush(under_way, (arrives, next(order), other[device], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(under_way)
            try:
                os.write(device, packet)
            except OSError:
                continue


main()
