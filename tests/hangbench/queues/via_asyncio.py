"""A stream of an event loop to the broker: the rank's main thread waits in the loop."""

from __future__ import annotations

import asyncio

from tests.hangbench.queues.broker import get_request, port, put_request
from tests.hangbench.queues.place import Place


class InLoop:
    """A queue with a broker, asked by a task of a loop that runs while it is asked."""

    def __init__(self, place: Place) -> None:
        self._place, self._loop = place, asyncio.new_event_loop()
        connecting = asyncio.open_connection("127.0.0.1", port(place))
        self._reader, self._writer = self._loop.run_until_complete(connecting)

    def put(self) -> None:
        """Add something once there is room."""
        self._loop.run_until_complete(self._put_item())

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        return self._loop.run_until_complete(self._get_item(timeout))

    def close(self) -> None:
        """Leave the broker, and close the loop."""
        self._writer.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _put_item(self) -> None:
        await self._ask(put_request(self._place))

    async def _get_item(self, timeout: float | None) -> bool:
        return await self._ask(get_request(self._place, timeout)) == b"ok\n"

    async def _ask(self, request: str) -> bytes:
        self._writer.write(f"{request}\n".encode())
        answer = await self._reader.readline()
        if not answer:
            raise ConnectionError("the broker has gone")
        return answer


def open_queue(place: Place) -> InLoop:
    """Connect."""
    return InLoop(place)
