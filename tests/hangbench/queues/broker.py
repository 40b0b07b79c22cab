"""The process that keeps queues which ranks reach over a network, as Redis does, or the actor of a
queue of Ray, or the buffer server of a rollout engine.

    python -m tests.hangbench.queues.broker DIRECTORY

It takes `put QUEUE DEPTH` and `get QUEUE DEPTH SECONDS` (negative: for ever), a line each over TCP
and a Unix socket, as a path over HTTP, and as a message of ZeroMQ where that is installed; it
answers `ok`, or `none` where nothing came in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from stagewatch.core.processes import die_with_parent

UNIX, PORTS = "broker.socket", "broker.ports"
"""Files in the directory: the second has the ports of TCP and of ZeroMQ (0: without)."""
_OK, _NONE = "ok", "none"
_STARTS_SECONDS = 60.0


def ports(directory: Path) -> tuple[int, int]:
    """Those of TCP and of ZeroMQ, once the broker has started."""
    limit = time.monotonic() + _STARTS_SECONDS
    while not (directory / PORTS).exists():
        if time.monotonic() > limit:
            raise TimeoutError("the broker has not started")
        time.sleep(0.05)
    tcp, zmq = map(int, (directory / PORTS).read_text().split())
    return tcp, zmq


class Broker:
    """Queues by their names."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[None]] = {}

    async def answer(self, words: list[str]) -> str:
        """Do what a request says, and wait until it can be done."""
        do, name, depth, *more = words
        queue = self._queues.setdefault(name, asyncio.Queue(int(depth)))
        if do == "put":
            await queue.put(None)
            return _OK
        seconds = float(more[0])
        try:
            with contextlib.suppress(asyncio.QueueEmpty):
                queue.get_nowait()
                return _OK
            await asyncio.wait_for(queue.get(), seconds if seconds >= 0 else None)
        except asyncio.TimeoutError:
            return _NONE
        return _OK

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a client until it goes."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := (await reader.readline()).decode():
                http = line.startswith("POST /")
                if http:
                    line = line.split()[1][1:].replace("/", " ")
                    await reader.readuntil(b"\r\n\r\n")
                said = await _unless_gone(reader, self.answer(line.split()))
                if said is None:
                    break
                status = "200 OK" if said == _OK else "204 No Content"
                reply = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n" if http else f"{said}\n"
                writer.write(reply.encode())
                await writer.drain()
        writer.close()

    async def serve_zmq(self, socket: Any) -> None:
        """Answer messages."""
        running: set[asyncio.Task[None]] = set()

        async def reply(to: bytes, text: str) -> None:
            await socket.send_multipart([to, b"", (await self.answer(text.split())).encode()])

        while True:
            client, _, message = await socket.recv_multipart()
            task = asyncio.create_task(reply(client, message.decode()))
            running.add(task)
            task.add_done_callback(running.discard)


async def _unless_gone(
    reader: asyncio.StreamReader, coming: Coroutine[Any, Any, str]
) -> str | None:
    """The answer, or None where the client has gone before: clients ask one thing at a time."""
    answer, gone = asyncio.ensure_future(coming), asyncio.ensure_future(reader.read(1))
    await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
    for task in (answer, gone):
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    return answer.result() if answer.done() and not answer.cancelled() else None


async def run(directory: Path) -> None:
    """Serve until killed."""
    broker = Broker()
    await asyncio.start_unix_server(broker.serve, directory / UNIX)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    port = 0
    if importlib.util.find_spec("zmq"):
        import zmq
        import zmq.asyncio

        socket = zmq.asyncio.Context().socket(zmq.ROUTER)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        serves = partial(broker.serve_zmq, socket)
    else:
        serves = asyncio.Event().wait  # type: ignore[assignment]
    fresh = directory / f"{PORTS}.new"
    fresh.write_text(f"{server.sockets[0].getsockname()[1]} {port}")
    fresh.rename(directory / PORTS)
    await serves()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(run(Path(sys.argv[1])))
