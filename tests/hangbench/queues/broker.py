"""The process that keeps a queue which ranks reach over a network, as an actor of Ray does, or the
buffer server of a rollout engine.

    python -m tests.hangbench.queues.broker DIRECTORY INDEX VIA

It takes `put GENERATION DEPTH` and `get GENERATION DEPTH SECONDS` (negative: for ever), as a line
over TCP or a Unix socket, as a path over HTTP, or as a message of ZeroMQ, and answers `ok`, or
`none` where nothing came in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from stagewatch.core.processes import die_with_parent
from tests.hangbench.queues.place import Place, port_within, tell_port

_OK, _NONE = "ok", "none"


def port(place: Place) -> int:
    """Where the broker of a queue listens, once it does; 0: at a Unix socket."""
    return port_within(place.directory, str(place.index))


def put_request(place: Place) -> str:
    """What asks the broker to add something."""
    return f"put {place.generation} {place.depth}"


def get_request(place: Place, timeout: float | None) -> str:
    """What asks it for something, within so many seconds if there is a limit."""
    return f"get {place.generation} {place.depth} {-1 if timeout is None else timeout}"


def unix_socket(directory: Path, index: int) -> str:
    """That of the broker of a queue, by a path of less than the 108 bytes that the kernel takes."""
    return f"/proc/self/fd/{os.open(directory, os.O_PATH)}/broker.{index}.socket"


class Broker:
    """A queue for each generation of the job."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[None]] = {}

    async def answer(self, words: list[str]) -> str:
        """Do what a request says, and wait until it can be done."""
        do, generation, depth, *more = words
        queue = self._queues.setdefault(generation, asyncio.Queue(int(depth)))
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


async def run(directory: Path, index: int, via: str) -> None:
    """Serve until killed."""
    broker, number = Broker(), 0
    serving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if via == "unix":
        await asyncio.start_unix_server(broker.serve, unix_socket(directory, index))
    elif via == "zmq":
        import zmq
        import zmq.asyncio

        socket = zmq.asyncio.Context().socket(zmq.ROUTER)
        number = socket.bind_to_random_port("tcp://127.0.0.1")
        serving = asyncio.create_task(broker.serve_zmq(socket))
    else:
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        number = server.sockets[0].getsockname()[1]
    tell_port(directory, str(index), number)
    await serving


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
