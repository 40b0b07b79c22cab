"""What programs answer: py-spy, PyTorch's flight recorder, an agent's page, a GPU recording."""

from __future__ import annotations

import json
import os
import resource
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import stagewatch
from stagewatch.core.errors import StagewatchError
from stagewatch.faults.markers import Marker, write_marker
from stagewatch.gpu.recording import load
from stagewatch.host.procfs import Procfs
from stagewatch.incidents import flight_recorder
from stagewatch.ranks import stacks_child
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.trace.sources import read_page
from stagewatch.web.events import events_page
from tests.bench.fuzzing.mutations import mutated_json
from tests.bench.fuzzing.target import Target, through
from tests.records import place, real_file

DUMP_MEMORY_BYTES = 256 << 20
DUMP = Path(__file__).parents[2] / "fixtures" / "flight_recorder_gloo.pickle"
STACKS = json.dumps(
    [
        {
            "pid": 7,
            "thread_id": 140,
            "thread_name": "MainThread",
            "os_thread_id": 7,
            "active": True,
            "owns_gil": False,
            "frames": [
                {"name": "step", "filename": "/a/train.py", "line": 25, "locals": None},
                {"name": "main", "filename": "/a/train.py", "line": 31, "locals": None},
            ],
        },
        {
            "pid": 7,
            "thread_id": 141,
            "thread_name": None,
            "os_thread_id": 8,
            "active": False,
            "owns_gil": False,
            "frames": [],
        },
    ]
).encode()


def targets(home: Path) -> list[Target]:
    """One for each program; what reads files reads them in `home`."""
    dump, gpus = home / "dump", home / "gpus.jsonl"
    refused = (StagewatchError,)
    return [
        Target("py-spy", (STACKS,), _stacks, 0.02, stacks_child.UNREADABLE, mutated_json),
        Target("flight recorder", (DUMP.read_bytes(),), through(dump, lambda: _dumped(dump)), 0.02),
        Target("page of events", (_page(home),), read_page, 0.01, refused, mutated_json),
        Target("GPU recording", (_gpus(),), through(gpus, lambda: load(gpus)), 0.01, refused),
    ]


def _stacks(data: bytes) -> None:
    """The child's answer is written as JSON again."""
    json.dumps(stacks_child.threads(data, 7, 7))


def _dumped(file: Path) -> None:
    """A dump may be refused in any way, as the child catches it; what is taken must read well.

    Like the child, it has little memory: a few bytes of a pickle can ask for gigabytes.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + DUMP_MEMORY_BYTES, before[1]))
    try:
        positions = flight_recorder.positions(flight_recorder.load(str(file), os.getuid()))
    except Exception:
        return
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    flight_recorder.facts({0: positions})
    json.dumps([asdict(one) for one in flight_recorder.calls(positions, 0)])


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().partition(" ")[0])
    return pages * resource.getpagesize()


def _page(home: Path) -> bytes:
    """As an agent writes it."""
    ranks, markers = home / "ranks-of-the-page", home / "markers-of-the-page"
    ranks.mkdir()
    markers.mkdir()
    place(ranks, real_file(ranks))
    write_marker(markers, Marker("cpu-1", "cpu_hog", 1767322800.0))
    with closing(RecordDirectory(ranks, Procfs())) as records:
        return events_page(RankDirectory(records), markers, "n1")()[1]


def _gpus() -> bytes:
    """The first two frames of a recording."""
    file = Path(stagewatch.__file__).parent / "recordings" / "h200-node-a.jsonl"
    return b"".join(file.read_bytes().splitlines(keepends=True)[:3])
