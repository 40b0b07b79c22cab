"""Stands in for a GPU: its memory is a real, shared account with a limit, and a lock.

Processes that share the device take from the same 80 GB; one that asks for more than is left gets
PyTorch's error message.  No number here was measured on a GPU.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stagewatch_lab.rl.plan import GIB

CAPACITY = 80 * GIB
TRAIN_MEMORY = 75 * GIB
"""Model and optimiser of a train worker."""
ACTIVATIONS = 2 * GIB
ROLLOUT_MEMORY = 40 * GIB

Account = dict[str, dict[str, float]]


class OutOfDeviceMemory(RuntimeError):
    """As torch.cuda.OutOfMemoryError, which is a RuntimeError too."""


class Device:
    """One GPU as a process sees it; `file` is the account that its processes share."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._me = str(os.getpid())

    def take(self, size: int) -> None:
        """Allocate bytes.  Raises `OutOfDeviceMemory`."""
        with self._account() as account:
            used = sum(int(entry["bytes"]) for entry in account.values())
            if used + size > CAPACITY:
                raise OutOfDeviceMemory(
                    f"CUDA out of memory. Tried to allocate {size / GIB:.2f} GiB (GPU 0; "
                    f"{CAPACITY / GIB:.2f} GiB total capacity; {used / GIB:.2f} GiB already "
                    f"allocated; {(CAPACITY - used) / GIB:.2f} GiB free)"
                )
            self._mine(account)["bytes"] += size

    def give(self, size: int) -> None:
        """Free bytes."""
        with self._account() as account:
            self._mine(account)["bytes"] -= size

    def work(self, share: float) -> None:
        """Set the share of time that this process keeps the device busy from now on."""
        with self._account() as account:
            self._mine(account)["busy"] = share

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Allocate bytes for the duration of a block."""
        self.take(size)
        try:
            yield
        finally:
            self.give(size)

    def state(self) -> tuple[int, float, list[int]]:
        """Bytes in use, busy share, and the processes that hold memory."""
        with self._account() as account:
            holders = [int(pid) for pid, entry in account.items() if entry["bytes"]]
            used = sum(int(entry["bytes"]) for entry in account.values())
            busy = max((entry["busy"] for entry in account.values()), default=0.0)
            return used, busy, holders

    def _mine(self, account: Account) -> dict[str, float]:
        return account.setdefault(self._me, {"bytes": 0, "busy": 0.0})

    @contextmanager
    def _account(self) -> Iterator[Account]:
        """The entries of live processes; the driver frees what a dead one held."""
        with self._file.open("a+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            file.seek(0)
            entries: dict[str, Any] = json.loads(file.read() or "{}")
            account = {pid: entry for pid, entry in entries.items() if Path("/proc", pid).exists()}
            yield account
            file.truncate(0)
            file.write(json.dumps(account))
