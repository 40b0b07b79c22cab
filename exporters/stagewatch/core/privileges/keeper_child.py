"""The process that keeps the privileges; `keeper` is the agent's side of it.

It forks the children that were named at its start, opens the kernel log and reads the clock; it
does nothing else, even for an attacker who controls the agent. A child shares memory with this
process, as the helper's workers do (`children.worker`), so this process has one thread and imports
little.

A message is one packet, and so is the answer. They use the socket pair that it was started with, or
its own user's first connection to the socket that systemd holds. When the agent ends, this process
and its children end too.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from stagewatch.core.adjtimex import adjtimex
from stagewatch.core.privileges import capabilities, seccomp
from stagewatch.core.processes import die_with_parent

MAX_MESSAGE = 64
KERNEL_LOG = "/dev/kmsg"


class _Child(NamedTuple):
    module: str
    arguments: list[str]
    may: list[str]


class Keeper:
    """Answers the agent."""

    def __init__(self, link: socket.socket, children: Mapping[str, _Child]) -> None:
        self._link = link
        self._children = children
        self._running: set[int] = set()

    def serve(self) -> None:
        """Serve until the agent ends."""
        while True:
            message, descriptors = self._receive()
            if not message:
                return
            passed: list[int] = []
            try:
                answer, passed = self._answer(message.decode("ascii", "replace"), descriptors)
            except OSError as error:
                answer = f"failed {error.errno}"
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            socket.send_fds(self._link, [answer.encode()], passed)
            for descriptor in passed:
                os.close(descriptor)

    def _receive(self) -> tuple[bytes, list[int]]:
        room = socket.CMSG_LEN(2 * array.array("i").itemsize)
        message, ancillary, _, _ = self._link.recvmsg(MAX_MESSAGE, room, socket.MSG_CMSG_CLOEXEC)
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        return message, list(descriptors)

    def _answer(self, message: str, descriptors: list[int]) -> tuple[str, list[int]]:
        """Answer the requests of a closed list. Raises `OSError`."""
        question, _, what = message.partition(" ")
        if question == "start" and what in self._children and len(descriptors) == 2:
            return f"started {self._start(what, *descriptors)}", []
        if question == "reap" and what.isdecimal() and int(what) in self._running:
            pid, status = os.waitpid(int(what), os.WNOHANG)
            if not pid:
                return "runs", []
            self._running.discard(pid)
            return f"ended {os.waitstatus_to_exitcode(status)}", []
        if message == "read the clock":
            return "told " + " ".join(map(str, adjtimex())), []
        if message == "open the kernel log":
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            return "opened", [os.open(KERNEL_LOG, flags)]
        return "refused", []

    def _start(self, name: str, reads: int, writes: int) -> int:
        keeper = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(self._children[name], reads, writes, keeper)
        self._running.add(pid)
        return pid

    def _become(self, child: _Child, reads: int, writes: int, keeper: int) -> NoReturn:
        """Become the child, with only its own privileges and system calls."""
        status = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(reads, 0)
            os.dup2(writes, 1)
            os.closerange(3, 64)
            die_with_parent(keeper)
            capabilities.limit({capabilities.SYS_PTRACE, capabilities.DAC_READ_SEARCH})
            seccomp.confine(child.may)
            sys.argv = ["", *child.arguments]
            importlib.import_module(child.module).main()
            status = 0
        except Exception as error:
            print(f"stagewatch: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)


def peer(link: socket.socket) -> int:
    """The user at the other end: the one who connected, or who made the socket."""
    raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def _link() -> socket.socket:
    """The connection to the agent; as a service it waits for a connection of its own user."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return socket.socket(fileno=os.dup(0))
    with socket.socket(fileno=3) as listener:
        while True:
            link, _ = listener.accept()
            if peer(link) == os.geteuid():
                return link
            link.close()


def main() -> None:
    """Take over the privileges, and confirm with one packet."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the agent decides on these
    link = _link()
    children = {name: _Child(*told) for name, told in json.loads(sys.argv[1]).items()}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what is read of others stays in memory
    capabilities.limit(capabilities.NAMES)
    lacks = seccomp.confine((seccomp.RUN, seccomp.NETLINK, seccomp.KEEP))
    gc.freeze()
    with contextlib.suppress(OSError), link:
        link.send(f"ready {lacks}".encode())
        Keeper(link, children).serve()
    os._exit(0)
