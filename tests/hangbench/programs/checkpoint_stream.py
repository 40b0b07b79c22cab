"""Ranks on gloo that save their shards with torch.distributed.checkpoint; each streams its own to a
writer process, which it forks for every file.

The fault: a writer is forked while a thread of the store's client holds a lock, and takes that
lock; its rank fills the queue to it, and waits.
"""

from __future__ import annotations

import io
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.filesystem import FileSystem

import stagewatch
from tests.hangbench.programs.part import Part, directory

EVERY = 8
PIECE = 1 << 16
_store = threading.Lock()


def write(path: Path, pieces: Queue[bytes], pause: float) -> None:
    """Write what comes, as a process of its own."""
    time.sleep(pause)
    with _store, path.open("wb") as file:
        while piece := pieces.get():
            file.write(piece)


class Memory(io.BytesIO):
    """A file in memory, which can be read once it is closed."""

    content = b""

    def close(self) -> None:
        """Keep what was written."""
        if not self.closed:
            self.content = self.getvalue()
        super().close()


class Streamed(FileSystem):  # type: ignore[misc]
    """Files that another process writes."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.struck = False

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[io.IOBase]:
        """A file in memory, which is streamed once it is complete."""
        file = Memory()
        yield file
        file.close()
        context = multiprocessing.get_context("fork")
        pieces: Queue[bytes] = context.Queue(4)
        pause = self._part.given.pause if self.struck else 0.0
        writer = context.Process(target=write, args=(Path(path), pieces, pause), daemon=True)
        if self.struck and self._part.given.fault:
            _store.acquire()  # what a thread of the store's client did just then
        writer.start()
        if self.struck:
            self._part.owns("writer", writer.pid or 0)
        if _store.locked():
            _store.release()
        self.struck = False
        for start in range(0, len(file.content), PIECE):
            pieces.put(file.content[start : start + PIECE])
        pieces.put(b"")
        writer.join()


def main() -> None:
    """Train, and save now and then."""
    part = Part()
    torch.set_num_threads(1)
    part.form_group()
    streamed = Streamed(part)
    shard, gradient = torch.ones(512, 512), torch.ones(64)
    while part.step():
        with stagewatch.stage("train"):
            time.sleep(0.3)
            torch.distributed.all_reduce(gradient)
        if part.at % EVERY == 0:
            streamed.struck = part.struck()
            writer = checkpoint.FileSystemWriter(directory() / f"step-{part.at}", sync_files=False)
            writer.fs = streamed
            with stagewatch.stage("checkpoint"):
                checkpoint.save({f"shard {part.rank}": shard}, storage_writer=writer)


if __name__ == "__main__":
    main()
