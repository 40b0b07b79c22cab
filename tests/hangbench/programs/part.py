"""What a program knows of its job, and tells the player: its steps, and when its fault begins."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import stagewatch
from stagewatch.core.processes import die_with_parent
from tests.hangbench.meeting import Board
from tests.hangbench.shape import BARE, DIRECTORY, SHAPE, load

_WORDS = 4
_STARTS_SECONDS = 120.0


def arguments() -> argparse.Namespace:
    """What happens to whom, from the command line of a script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", action="store_true", help="it never ends")
    parser.add_argument("--pause", type=float, default=0.0, help="it takes so many seconds")
    parser.add_argument("--rank", type=int, default=0, help="the process that it happens to")
    parser.add_argument("--at", type=int, default=25, help="in this step")
    return parser.parse_args()


def directory() -> Path:
    """Of the job; it goes with the job."""
    return Path(os.environ[DIRECTORY])


def publish(name: str, port: int) -> None:
    """Tell the others of the job where something listens."""
    fresh = directory() / f"{name}.new"
    fresh.write_text(str(port))
    fresh.rename(directory() / f"{name}.port")


def find(name: str) -> tuple[str, int]:
    """Where it listens, once it does."""
    file, limit = directory() / f"{name}.port", time.monotonic() + _STARTS_SECONDS
    while not file.exists():
        if time.monotonic() > limit:
            raise TimeoutError(f"{name} does not listen")
        time.sleep(0.05)
    return "127.0.0.1", int(file.read_text())


class Part:
    """One rank of the job."""

    def __init__(self) -> None:
        die_with_parent()
        shape = load(Path(os.environ[SHAPE]))
        self.process, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.role, self.rank, self.size = shape.role_of(self.process, world)
        self.given = arguments()
        self._board = Board(directory(), 0)
        self.at = 0
        self._peers: list[socket.socket] = []
        self._bare = os.environ[BARE] == "True"
        if not self._bare:
            stagewatch.init(self.role, job_id=shape.name, rank=self.rank, world_size=self.size)

    def step(self, heartbeat: bool = True) -> bool:
        """Begin the next step; without a heartbeat where a framework's hook marks it."""
        self.at += 1
        self._board.mark(self.process, self.at)
        if heartbeat:
            stagewatch.heartbeat(self.at)
        return True

    def struck(self) -> bool:
        """Whether this is the rank and the step at which it happens, which the player is told."""
        happens: bool = self.given.rank == self.process and self.given.at == self.at
        if happens:
            self.tell("trigger", step=self.at)
        return happens

    def owns(self, name: str, pid: int) -> None:
        """Tell the pid of a process that the case calls a server, and that this one has started."""
        self.tell("process", name=name, pid=pid)

    def tell(self, what: str, **more: Any) -> None:
        """Tell the player."""
        line = json.dumps({"what": what, "rank": self.process, "time": time.time()} | more)
        with (directory() / "events").open("a") as file:
            file.write(f"{line}\n")

    def inside(self, inside: bool) -> None:
        """Tell the player that this rank is in a collective, or has left it."""
        self._board.inside(self.process, inside)

    def all_reduce(self) -> None:
        """Sum something over the ranks of this role, by way of the first of them."""
        if self.size > 1 and not self._peers:
            self._connect()
        with stagewatch.collective(op="all_reduce", size=self.size, elements=_WORDS):
            self._board.inside(self.process, True)
            for peer in self._peers:
                if self.rank == 0:
                    _receive(peer)
                else:
                    peer.sendall(bytes(_WORDS))
            for peer in self._peers:
                if self.rank == 0:
                    peer.sendall(bytes(_WORDS))
                else:
                    _receive(peer)
            self._board.inside(self.process, False)

    def hook(self, framework: str) -> None:
        """Take stages from a framework."""
        if not self._bare:
            stagewatch.install(framework)

    def form_group(self) -> None:
        """Form PyTorch's group of all ranks, on gloo, and record its collectives."""
        import torch.distributed as distributed  # which few programs need

        os.environ |= {"LOCAL_RANK": str(self.rank), "LOCAL_WORLD_SIZE": str(self.size)}
        if not self._bare:
            stagewatch.watch_collectives(distributed)
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{directory()}/rendezvous",
            rank=self.rank,
            world_size=self.size,
            timeout=datetime.timedelta(days=1),
        )

    def _connect(self) -> None:
        name = f"reduce.{self.role}"
        if self.rank == 0:
            server = socket.create_server(("127.0.0.1", 0))
            publish(name, server.getsockname()[1])
            self._peers = [server.accept()[0] for _ in range(self.size - 1)]
            server.close()
        else:
            self._peers = [socket.create_connection(find(name))]


def _receive(peer: socket.socket) -> bytes:
    got = b""
    while len(got) < _WORDS:
        part = peer.recv(_WORDS - len(got))
        if not part:
            raise ConnectionError("connection closed by peer")
        got += part
    return got
