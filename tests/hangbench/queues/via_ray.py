"""`ray.util.queue.Queue`: a rank waits in `ray.get` for the actor that keeps the queue.

    python -m tests.hangbench.queues.via_ray DIRECTORY

runs the Ray of a job, which all its ranks join as drivers.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import ray
from ray.util.queue import Empty, Queue

from stagewatch.core.processes import die_with_parent
from tests.hangbench.queues.place import Place, port_within, tell_port

_BROKER = "ray"
_MEMORY_BYTES = 80_000_000


class Actor:
    """A queue in an actor that lives for as long as the Ray does."""

    def __init__(self, place: Place) -> None:
        if not ray.is_initialized():
            address = f"127.0.0.1:{port_within(place.directory, _BROKER)}"
            ray.init(address, namespace="job", log_to_driver=False)
        name = f"queue {place.generation} {place.index}"
        options = {"name": name, "get_if_exists": True, "lifetime": "detached", "num_cpus": 0}
        self._queue = Queue(place.depth, actor_options=options)

    def put(self) -> None:
        """Add something once there is room."""
        self._queue.put(None)

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        try:
            self._queue.get(block=timeout != 0, timeout=timeout)
        except Empty:
            return False
        return True

    def close(self) -> None:
        """Leave the Ray."""
        ray.shutdown()


def open_queue(place: Place) -> Actor:
    """Connect."""
    _without_reports()
    return Actor(place)


def run(directory: Path) -> None:
    """Keep a Ray until killed."""
    _without_reports()
    os.chdir(directory)  # whose own path may be too long for Ray's sockets
    context = ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=_MEMORY_BYTES,
        _temp_dir=f"/proc/{os.getpid()}/cwd",
    )
    tell_port(directory, _BROKER, int(context.address_info["gcs_address"].rpartition(":")[2]))
    signal.pause()


def _without_reports() -> None:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


if __name__ == "__main__":
    die_with_parent()
    run(Path(sys.argv[1]))
