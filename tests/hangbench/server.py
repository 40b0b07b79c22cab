"""A server of a job that is no rank: an engine, a reward service, a sandbox.

    python -m tests.hangbench.server NAME DIRECTORY SECONDS [OTHER]

It answers each request over HTTP after so many seconds, once it has asked the other server, if one
is named.  A request for `/fail/HOW/SECONDS` breaks it, in one of `FAULTS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from stagewatch.core.processes import die_with_parent

FAULTS = ("silent", "error", "die", "slow", "hang", "stop", "drop")
"""It never answers a request (though it takes more), answers with an error, is killed, takes longer
by the seconds, does nothing any more, is stopped, or closes each connection without an answer."""
_STARTS_SECONDS = 60.0


def address(directory: Path, name: str) -> tuple[str, int]:
    """Where a server listens, once it has started."""
    file = directory / f"server.{name}.port"
    limit = time.monotonic() + _STARTS_SECONDS
    while not file.exists():
        if time.monotonic() > limit:
            raise TimeoutError(f"server {name} has not started")
        time.sleep(0.05)
    return "127.0.0.1", int(file.read_text())


class Server:
    """Answers, until it is told not to."""

    def __init__(self, directory: Path, seconds: float, other: str) -> None:
        self._directory, self._seconds, self._other = directory, seconds, other
        self._fault = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := (await reader.readline()).decode():
                await reader.readuntil(b"\r\n\r\n")
                _, what, *more = line.split()[1].split("/")
                if what == "fail":
                    self._begin(more[0], float(more[1]))
                elif not await self._work():
                    break
                failed = self._fault == "error" and what != "fail"
                status = "500 Internal Server Error" if failed else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        writer.close()

    def _begin(self, fault: str, seconds: float) -> None:
        """Break; what ends or stops it comes once this request has been answered."""
        self._fault = fault
        loop = asyncio.get_running_loop()
        if fault == "slow":
            self._seconds += seconds
        elif fault in ("die", "stop"):
            number = signal.SIGKILL if fault == "die" else signal.SIGSTOP
            loop.call_later(0.1, os.kill, os.getpid(), number)
        elif fault == "hang":
            loop.call_later(0.1, time.sleep, 86400)

    async def _work(self) -> bool:
        """Whether to answer."""
        if self._fault == "drop":
            return False
        if self._fault == "silent":
            await asyncio.Event().wait()
        await asyncio.sleep(self._seconds)
        return not self._other or await self._ask_other()

    async def _ask_other(self) -> bool:
        reader, writer = await asyncio.open_connection(*address(self._directory, self._other))
        writer.write(b"POST /work HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        answer = await reader.readline()
        writer.close()
        return b" 200 " in answer


async def run(name: str, directory: Path, seconds: float, other: str) -> None:
    """Serve until killed."""
    server = await asyncio.start_server(
        Server(directory, seconds, other).serve, "127.0.0.1", 0, backlog=512
    )
    fresh = directory / f"server.{name}.new"
    fresh.write_text(str(server.sockets[0].getsockname()[1]))
    fresh.rename(directory / f"server.{name}.port")
    await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    _, its_name, where, takes, *others = sys.argv
    asyncio.run(run(its_name, Path(where), float(takes), "".join(others)))
