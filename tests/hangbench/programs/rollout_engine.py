"""Rollouts by an event loop that asks an engine over HTTP, sixteen requests at a time; a trainer
takes them over a socket.

What happens, happens to the engine: it is broken over its own interface.
"""

from __future__ import annotations

import asyncio
import socket
import time

import stagewatch
from tests.hangbench.programs.part import Part, find, publish

BATCH = 16


async def generate(path: str) -> bytes:
    """Ask the engine for one answer."""
    reader, writer = await asyncio.open_connection(*find("server.engine"))
    writer.write(f"POST /{path} HTTP/1.1\r\nHost: engine\r\nContent-Length: 0\r\n\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return answer


async def roll_out(slots: asyncio.Semaphore) -> None:
    """One rollout of two turns."""
    async with slots:
        for _ in range(2):
            await generate("work")


async def rollouts(part: Part, trainer: socket.socket) -> None:
    """Send batches of rollouts to the trainer."""
    slots = asyncio.Semaphore(8)
    while part.step():
        if part.struck():
            how = f"slow/{part.given.pause}" if part.given.pause else "silent/0"
            await generate(f"fail/{how}")
            if part.given.pause:
                asyncio.get_running_loop().create_task(_recover(part.given.pause))
        with stagewatch.stage("rollout"):
            await asyncio.gather(*(roll_out(slots) for _ in range(BATCH)))
        trainer.sendall(b"batch ok")


async def _recover(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await generate(f"fail/slow/{-seconds}")


def main() -> None:
    """Roll out, or train."""
    part = Part()
    if part.role == "rollout":
        asyncio.run(rollouts(part, socket.create_connection(find(f"trainer.{part.rank}"))))
    with socket.create_server(("127.0.0.1", 0)) as server:
        publish(f"trainer.{part.rank}", server.getsockname()[1])
        source, _ = server.accept()
    while part.step():
        with stagewatch.stage("rollout"):
            source.recv(8, socket.MSG_WAITALL)
        with stagewatch.stage("train"):
            time.sleep(0.2)
            part.all_reduce()


if __name__ == "__main__":
    main()
