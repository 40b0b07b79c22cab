"""Sockets made in the network namespaces of other processes, such as those of containers."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from stagewatch.core.errors import SourceError

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def namespace_of(proc: Path, pid: int | str) -> int | None:
    """The inode of a process's network namespace; `None` if it is gone or not ours to look at."""
    try:
        return os.stat(f"{proc}/{pid}/ns/net").st_ino  # noqa: PTH116 - followed on purpose
    except OSError:
        return None


class NamespaceSockets:
    """One socket for each namespace, kept as long as a process of interest lives there.

    A socket belongs to the namespace it was made in.  Making one elsewhere takes a thread that
    enters it (which needs CAP_SYS_ADMIN) and ends there; no other thread is touched.
    """

    def __init__(self, make: Callable[[], socket.socket], proc: Path) -> None:
        self._make = make
        self._proc = proc
        self._own = namespace_of(proc, "self")
        self._sockets: dict[int, socket.socket] = {}

    def get(self, namespace: int, pid: int) -> socket.socket:
        """The socket in this namespace, which `pid` is in.  Raises `SourceError`."""
        found = self._sockets.get(namespace)
        if found is None:
            found = self._make() if namespace == self._own else self._make_in(pid)
            self._sockets[namespace] = found
        return found

    def drop(self, namespace: int) -> None:
        """Close a socket that no longer works."""
        found = self._sockets.pop(namespace, None)
        if found is not None:
            found.close()

    def keep(self, namespaces: Iterable[int]) -> None:
        """Close all but these: an open socket would keep a namespace alive after its container."""
        for namespace in self._sockets.keys() - set(namespaces):
            self.drop(namespace)

    def _make_in(self, pid: int) -> socket.socket:
        made: list[socket.socket] = []
        errors: list[str] = []

        def enter_and_make() -> None:
            try:
                descriptor = os.open(f"{self._proc}/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                finally:
                    os.close(descriptor)
                made.append(self._make())
            except (OSError, SourceError) as error:
                errors.append(str(error))

        thread = threading.Thread(target=enter_and_make, name="enter-namespace", daemon=True)
        thread.start()
        thread.join()
        if not made:
            raise SourceError(f"network namespace of process {pid}: {errors[0]}")
        return made[0]
