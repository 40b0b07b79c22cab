"""The MetaServer: takes weights from train workers and hands them to rollout workers.

`python -m stagewatch_lab.rl.meta_server PLAN NAME=HOST...`; it listens on each host, and
publishes each address under its name.  Train workers meet here for their all-reduce too.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import stagewatch
from stagewatch_lab.rl.addresses import AddressBook
from stagewatch_lab.rl.messages import begin_log
from stagewatch_lab.rl.plan import Plan

log = logging.getLogger(__name__)


class Store:
    """Weights by step and rank, and the ranks that have come to each all-reduce."""

    def __init__(self, plan: Plan) -> None:
        self._changed = threading.Condition()
        self._weights: dict[tuple[int, int], bytes] = {}
        self._sums: dict[str, dict[int, float]] = defaultdict(dict)
        self._trains = plan.trains
        self._patience = plan.seconds(3600)

    def put(self, step: int, rank: int, content: bytes) -> None:
        """Store a shard; earlier steps are dropped."""
        with self._changed:
            for old in [key for key in self._weights if key[0] < step]:
                del self._weights[old]
            self._weights[step, rank] = content
            self._changed.notify_all()

    def get(self, step: int, rank: int) -> bytes | None:
        """A shard, as soon as it is there; `None` if it does not come."""
        key = (step, rank)
        with self._changed:
            self._changed.wait_for(lambda: key in self._weights, self._patience)
            return self._weights.get(key)

    def reduce(self, name: str, rank: int, value: float) -> float | None:
        """The sum over all train workers, once all have come; `None` if one does not come."""
        with self._changed:
            values = self._sums[name]
            values[rank] = value
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(values) == self._trains, self._patience)
            complete = len(values) == self._trains
            if complete:
                self._sums.pop(name, None)
            return sum(values.values()) if complete else None

    def size(self) -> int:
        """Bytes of weights that are held."""
        with self._changed:
            return sum(map(len, self._weights.values()))


class MetaServer(ThreadingHTTPServer):
    """Serves the store at one address."""

    request_queue_size = 256
    daemon_threads = True
    speaks = False
    """Whether it is the one in the main thread, which sends the heartbeats."""

    def __init__(self, host: str, store: Store) -> None:
        self.store = store
        super().__init__((host, 0), _Handler)

    def service_actions(self) -> None:
        """Called twice a second by the thread that serves."""
        if self.speaks:
            stagewatch.heartbeat()
            stagewatch.scalar("weights_bytes", self.store.size())

    def handle_error(self, request: object, client_address: object) -> None:
        """The other side has gone away meanwhile."""
        log.warning("%s is gone: %s", client_address, sys.exc_info()[1])


class _Handler(BaseHTTPRequestHandler):
    server: MetaServer

    def do_PUT(self) -> None:
        """`/weights/STEP/RANK`."""
        step, rank = map(int, self.path.split("/")[2:])
        size = int(self.headers["Content-Length"])
        content = self.rfile.read(size)
        if len(content) < size:
            log.warning("upload of rank %d broke off after %d bytes", rank, len(content))
            return
        self.server.store.put(step, rank, content)
        self._answer(b"")

    def do_GET(self) -> None:
        """`/weights/STEP/RANK`; waits for it."""
        step, rank = map(int, self.path.split("/")[2:])
        self._answer(self.server.store.get(step, rank))

    def do_POST(self) -> None:
        """`/reduce/NAME/RANK/VALUE`; waits for all."""
        name, rank, value = self.path.split("/")[2:]
        total = self.server.store.reduce(name, int(rank), float(value))
        self._answer(None if total is None else str(total).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the store's users log what they do."""

    def _answer(self, content: bytes | None) -> None:
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")


def main(plan: Plan, hosts: dict[str, str]) -> None:
    """Serve for ever; the first address in the main thread."""
    stagewatch.init("metaserver", job_id=plan.job_id, rank=0, world_size=1, framework="demo-rl")
    book = AddressBook(plan.directory)
    store = Store(plan)
    servers = {name: MetaServer(host, store) for name, host in hosts.items()}
    for name, server in servers.items():
        book.publish(name, (hosts[name], server.server_port))
    first, *others = servers.values()
    first.speaks = True
    for server in others:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    first.serve_forever()


if __name__ == "__main__":
    begin_log()
    main(
        Plan.load(Path(sys.argv[1])),
        {name: host for name, _, host in (item.partition("=") for item in sys.argv[2:])},
    )
