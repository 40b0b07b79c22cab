"""A trainer that asks an engine of two processes: a front that speaks HTTP, and a core that it asks
over ZeroMQ. The engine is this script, too.

    python engine_core.py server NAME DIRECTORY

The fault: the core is killed; the front still answers when asked for its health, and nothing else.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import requests
import zmq
import zmq.asyncio

import stagewatch
from stagewatch.core.processes import die_with_parent
from tests.hangbench.programs.part import Part, find


def core(socket_path: str) -> None:
    """Generate one answer after the other."""
    die_with_parent()
    socket = zmq.Context().socket(zmq.REP)
    socket.bind(socket_path)
    pause = 0.0
    while True:
        request = socket.recv_string()
        if request == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if request.startswith("pause"):
            pause = float(request.split()[1])
        else:
            time.sleep(0.1 + pause)
            pause = 0.0
        socket.send_string("done")


class Front:
    """Hands requests on to the core, one at a time."""

    def __init__(self, socket_path: str) -> None:
        self._socket = zmq.asyncio.Context().socket(zmq.REQ)
        self._socket.connect(socket_path)
        self._turn = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        while line := (await reader.readline()).decode():
            await reader.readuntil(b"\r\n\r\n")
            what = line.split()[1].strip("/").replace("/", " ")
            if what == "die":
                asyncio.get_running_loop().call_soon(self._socket.send_string, what)
            elif what != "health":
                async with self._turn:
                    await self._socket.send_string(what)
                    await self._socket.recv_string()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()


async def serve(name: str, folder: Path) -> None:
    """Serve until killed."""
    socket_path = f"ipc://{folder}/core"
    multiprocessing.get_context("spawn").Process(target=core, args=(socket_path,)).start()
    server = await asyncio.start_server(Front(socket_path).serve, "127.0.0.1", 0)
    fresh = folder / f"server.{name}.new"
    fresh.write_text(str(server.sockets[0].getsockname()[1]))
    fresh.rename(folder / f"server.{name}.port")
    await server.serve_forever()


def main() -> None:
    """Train."""
    if sys.argv[1] == "server":
        die_with_parent()
        asyncio.run(serve(sys.argv[2], Path(sys.argv[3])))
    part = Part()
    session = requests.Session()
    url = "http://{}:{}".format(*find("server.engine"))
    while part.step():
        if part.struck():
            session.post(f"{url}/die" if part.given.fault else f"{url}/pause/{part.given.pause}")
        with stagewatch.stage("rollout"):
            session.post(f"{url}/generate").raise_for_status()
        with stagewatch.stage("train"):
            time.sleep(0.4)
            part.all_reduce()


if __name__ == "__main__":
    main()
