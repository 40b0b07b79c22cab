"""A proxy for a listener that can delay messages:

`python -m stagewatch_lab.rl.slow_proxy PLAN NAME TARGET CONTROL` publishes itself as NAME and
passes connections on to TARGET.  CONTROL is JSON: `delay` and `jitter`, in seconds, for the packets
of either direction, also those that set up a connection.  Data for a client that has hung up is
dropped.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
import threading
import time
from pathlib import Path

from stagewatch_lab.rl.addresses import Address, AddressBook
from stagewatch_lab.rl.plan import Plan


class SlowProxy:
    """Connections to one target."""

    def __init__(self, control: Path, book: AddressBook, target: str) -> None:
        self._control = control
        self._book = book
        self._target = target

    def serve(self, listener: socket.socket) -> None:
        """Take connections for ever."""
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def _connection(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self._hold()  # to the target
            self._hold()  # and back: a connection is set up
            with socket.create_connection(self._address()) as target:
                back = threading.Thread(
                    target=self._pass_on, args=(target, client, client), daemon=True
                )
                back.start()
                self._pass_on(client, target, client)
                back.join()

    def _pass_on(self, source: socket.socket, sink: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while message := source.recv(65536):
                self._hold()
                if _gone(client):
                    break
                sink.sendall(message)
            sink.shutdown(socket.SHUT_WR)

    def _hold(self) -> None:
        try:
            trouble = json.loads(self._control.read_text())
        except FileNotFoundError:
            return
        time.sleep(max(0.0, random.uniform(-1, 1) * trouble["jitter"] + trouble["delay"]))  # noqa: S311

    def _address(self) -> Address:
        return self._book.wait(self._target)


def _gone(peer: socket.socket) -> bool:
    """Whether the other side has closed the connection and sent nothing more."""
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


def main(plan: Plan, name: str, target: str, control: Path) -> None:
    """Serve for ever."""
    book = AddressBook(plan.directory)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        book.publish(name, listener.getsockname())
        SlowProxy(control, book, target).serve(listener)


if __name__ == "__main__":
    main(Plan.load(Path(sys.argv[1])), sys.argv[2], sys.argv[3], Path(sys.argv[4]))
