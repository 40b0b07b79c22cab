"""Every file that an agent reads back after a restart, damaged in every way that a disk knows."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core import exposition
from stagewatch.core.collector import Collector
from stagewatch.core.state_file import MAX_BYTES, StateFile
from stagewatch.gpu.xids import XidLedger
from stagewatch.kernel_log.collector import KmsgCollector
from stagewatch.kernel_log.reader import Kmsg
from stagewatch.slurm.discovery import Discovery
from stagewatch.slurm.events.state import ClusterEvents
from tests.bench.fuzzing.mutations import changed_value, flipped
from tests.slurm.ledger_scene import T, node, record

BOOT = "0f0f"
LINES = (
    "6,1,1000000,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE\n"
    "6,2,1000000,-;Out of memory: Killed process 7 (python) total-vm:1kB\n"
    "6,3,1000000,-;nfs: server fs1 not responding, still trying\n"
)


def kernel_log(state: Path) -> str:
    """What the collector of the kernel log exports, and saves."""
    log = state.with_suffix(".log")
    log.write_text(LINES)
    collector = KmsgCollector(Kmsg(log), XidLedger(), state_file=state, boot_id=BOOT)
    shown = render(collector)
    collector.close()
    return shown


def events(state: Path) -> str:
    """The same of the cluster's events: ledgers that are fed once more, and saved."""
    kept = ClusterEvents(state, wall=lambda: float(T + 60))
    kept.jobs.observe_accounting([record(), record(2, "FAILED")], asked=T + 200, complete=True)
    kept.nodes.observe_nodes([node()], T + 1.0)
    kept.nodes.observe_nodes([node(state="DOWN")], T + 31.0)
    kept.save(now=True)
    numbers = [*kept.jobs.ended.values(), *kept.nodes.failures.values(), kept.window()]
    return repr([float(number) for number in numbers])


def discovery(state: Path) -> str:
    """The list of nodes that Prometheus is given before the controller answers."""
    home = state.parent / state.name.removesuffix(".json")
    home.mkdir(exist_ok=True)
    if state.exists():
        state.replace(home / "discovery.json")
    kept = Discovery((), cluster="c", memory=home)
    kept.update([node(address="10.0.0.1")])
    for left in home.iterdir():
        left.replace(state.parent / left.name.replace("discovery.json", state.name))
    return repr(kept.places)


def render(collector: Collector) -> str:
    lines = exposition.render(collector.collect()).decode().splitlines()
    return "\n".join(line for line in lines if "timestamp" not in line)


FILES: dict[str, Callable[[Path], str]] = {
    "kmsg.json": kernel_log,
    "slurm.json": events,
    "discovery.json": discovery,
}
DAMAGE = {
    "empty": b"",
    "cut": b'{"boot_id": "0f0f", "sequ',
    "nothing": b"null",
    "deep": b"[" * 200_000,
    "nan": b'{"boot_id": "0f0f", "sequence": NaN, "version": Infinity}',
    "huge number": b'{"c": 1, "boot_id": "0f0f", "sequence": 1' + b"0" * 4000 + b"}",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_file_is_set_aside_with_one_line_and_the_agent_counts_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    state = tmp_path / name
    whole_again = FILES[name](tmp_path / f"fresh-{name}")
    state.write_bytes(DAMAGE[damage])
    assert FILES[name](state) == whole_again
    assert (tmp_path / f"{name}.corrupt").read_bytes() == DAMAGE[damage]
    assert len(caplog.messages) == 1
    json.loads(state.read_bytes())


@pytest.mark.parametrize("name", FILES)
def test_no_value_of_a_wrong_kind_gets_past_the_reader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A damaged value makes the file unusable, or is one that could have stood there."""
    state = tmp_path / name
    FILES[name](state)
    content = json.loads(state.read_bytes())
    chance = random.Random(7)
    for _ in range(40):
        state.write_text(json.dumps(changed_value(content, chance)))
        FILES[name](state)
        (tmp_path / f"{name}.corrupt").unlink(missing_ok=True)
    good = json.dumps(content).encode()
    for _ in range(40):
        state.write_bytes(flipped(good, chance))
        FILES[name](state)
    assert all("not usable" in message for message in caplog.messages)


@pytest.mark.parametrize("far", [1e10, 9e10, 1e15, 1e308, 2**62])
@pytest.mark.parametrize("name", ["kmsg.json", "slurm.json"])
def test_a_time_that_is_still_to_come_silences_nothing(
    tmp_path: Path, name: str, far: float
) -> None:
    """A clock that was wrong for a moment, or a flipped bit: what comes now counts all the same."""
    fresh = FILES[name](tmp_path / f"fresh-{name}")
    content = json.loads((tmp_path / f"fresh-{name}").read_text())
    content = json.loads(json.dumps(_moved(content, far)), parse_float=float)
    (state := tmp_path / name).write_text(json.dumps(content))
    FILES[name](state)
    now = time.time()
    left = json.loads(state.read_text())
    assert all(abs(one) <= now + 1 for one in _times(left)), left
    if name == "slurm.json":
        kept = ClusterEvents(state)
        before = sum(kept.jobs.ended.values())
        kept.jobs.observe_accounting(
            [record(9, "FAILED", end=int(now) + 60)], asked=now + 120, complete=True
        )
        assert sum(kept.jobs.ended.values()) == before + 1
    assert fresh


TIMES = ("last", "watermark", "oldest", "last_poll")


def _moved(content: Any, far: float) -> Any:
    """The same with all its times of day far ahead."""
    if isinstance(content, dict):
        return {
            key: far if key in TIMES and type(value) in (int, float) else _moved(value, far)
            for key, value in content.items()
        }
    return [_moved(one, far) for one in content] if isinstance(content, list) else content


def _times(content: Any) -> Iterator[float]:
    if isinstance(content, dict):
        for key, value in content.items():
            if key in TIMES and type(value) in (int, float):
                yield value
            else:
                yield from _times(value)
    elif isinstance(content, list):
        for one in content:
            yield from _times(one)


def test_a_directory_in_the_files_place_and_one_too_large(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "directory").mkdir()
    with (tmp_path / "large").open("wb") as file:
        os.truncate(file.fileno(), MAX_BYTES + 1)
    os.mkfifo(tmp_path / "pipe")
    for name in ("directory", "large", "pipe"):
        assert StateFile(tmp_path / name).load(lambda content: content) is None
        assert not (tmp_path / name).exists()
    assert len(caplog.messages) == 3
