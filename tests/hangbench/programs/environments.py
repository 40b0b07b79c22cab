"""Rollouts on one node that play in environments and send trajectories to trainers on another.

The fault: an environment's step never ends, in a loop that keeps its core busy.
"""

from __future__ import annotations

import select
import socket
import time

import stagewatch
from tests.hangbench.programs.part import Part, find, publish

TRAJECTORY = 256


def play(seconds: float, for_ever: bool) -> None:
    """Play an episode."""
    if for_ever:
        state = 1
        while state:
            state = (state * 5 + 1) % 17 or 1
    time.sleep(seconds)


def roll_out(part: Part) -> None:
    """Send trajectories to the first trainer."""
    with socket.create_connection(find("buffer")) as buffer:
        while part.step():
            struck = part.struck()
            with stagewatch.stage("rollout"):
                play(part.given.pause if struck else 0.4, struck and part.given.fault)
            buffer.sendall(bytes(TRAJECTORY))
            buffer.recv(1)


def collect(sources: list[socket.socket]) -> None:
    """One trajectory of each rollout, as they come."""
    missing = list(sources)
    while missing:
        for source in select.select(missing, [], [])[0]:
            if len(source.recv(TRAJECTORY, socket.MSG_WAITALL)) < TRAJECTORY:
                raise ConnectionError("a rollout has gone")
            missing.remove(source)


def train(part: Part) -> None:
    """Train on what comes."""
    sources = []
    if part.rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as server:
            publish("buffer", server.getsockname()[1])
            sources = [server.accept()[0] for _ in range(2)]
    while part.step():
        with stagewatch.stage("rollout"):
            collect(sources)
        with stagewatch.stage("train"):
            time.sleep(0.2)
            part.all_reduce()
        for source in sources:
            source.sendall(b"!")


def main() -> None:
    """Roll out, or train."""
    part = Part()
    if part.role == "rollout":
        roll_out(part)
    else:
        train(part)


if __name__ == "__main__":
    main()
