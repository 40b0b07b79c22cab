"""A Unix socket to the broker."""

from tests.hangbench.queues.via_tcp import open_unix as open_queue

__all__ = ["open_queue"]
