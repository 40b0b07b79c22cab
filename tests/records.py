"""Stage records as bytes: a real one, and forged ones."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

import stagewatch
from stagewatch.client import _api
from stagewatch.ranks.directory import Census
from stagewatch.ranks.model import rank_of
from stagewatch.ranks.records import RankRecord
from stagewatch.record import FILE_SIZE, RECORD_SIZE, SUBSTAGE_SIZE, WORD

SECOND_USER = 65534
"""`nobody`, who stands for another user of the node."""


def real_record(directory: Path) -> bytes:
    """What the client of this process writes, up to the events, with every part in use."""
    return real_file(directory)[:RECORD_SIZE]


def real_file(directory: Path) -> bytes:
    """The same with its ring of events."""
    stagewatch.init("train", job_id=540, rank=3, world_size=8, gpu="GPU-1", directory=directory)
    try:
        for step in range(5):
            with stagewatch.stage("rollout", step=step):
                stagewatch.scalar("reward", 0.5)
                with stagewatch.call("search"):
                    pass
                stagewatch.throughput(tokens=1024, flops=2e15, samples=8)
                with stagewatch.collective("world", op="all_reduce"):
                    pass
        try:
            with stagewatch.stage("train", step=5):
                raise MemoryError("CUDA out of memory")
        except MemoryError:
            pass
        with stagewatch.stage("weights_update"), stagewatch.stage("broadcast"):
            (file,) = directory.glob("*.rank")
            return file.read_bytes()
    finally:
        stagewatch.close()


def patched(raw: bytes, words: Mapping[int, int]) -> bytes:
    """The record with some words replaced."""
    forged = bytearray(raw)
    for word, value in words.items():
        struct.pack_into("<q", forged, word * WORD, value)
    return bytes(forged)


def place(directory: Path, raw: bytes, number: int = 1, owner: int | None = None) -> Path:
    """A file as the client would name it, belonging to a user."""
    file = directory / f"{number}-{number:08x}.rank"
    file.write_bytes(raw.ljust(FILE_SIZE, b"\0"))
    if owner is not None:
        os.chown(file, owner, owner)
    return file


class Shown:
    """A rank directory that finds what the test puts there."""

    def __init__(self, *records: RankRecord) -> None:
        self.records = list(records)

    def look(self, *, copied: bool = False) -> Census:
        """What it finds now."""
        return Census(tuple(map(rank_of, self.records)), tuple(self.records))


def forget_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process know no name yet; tests before this one may have used up all places."""
    monkeypatch.setattr(_api, "_names", {})
    monkeypatch.setattr(_api, "_numbers", {bytes(SUBSTAGE_SIZE): 0})
    monkeypatch.setattr(_api, "_next_number", itertools.count(1))
