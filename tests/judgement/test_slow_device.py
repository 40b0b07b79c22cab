"""Slow ranks of jobs whose collectives work on a device, for which the host waits.

Each course goes through the real client, the agent's sums, the shipped rules and the judge; time
and the device are made up.  A rank's own work is done on the host, then it launches an all_reduce
and waits in `torch.cuda.synchronize()` until the last rank has come; on gloo it waits inside.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

import stagewatch
from stagewatch.client._device import watch_device
from stagewatch.core.exposition import Samples
from stagewatch.judgement.slow_watch import SlowLook, SlowWatch
from stagewatch.ranks.own_work import OwnWork
from stagewatch.ranks.records import parse
from tests.alerts.promtool import needs_promtool, series
from tests.client.hooking import fresh_client
from tests.judgement.promtool_queries import PromtoolQueries
from tests.judgement.slow_series import TICK
from tests.judgement.test_slow_watch import ever

pytestmark = needs_promtool
MINUTES = 11
SLOW_FROM = 240.0
OPERATION = 0.02
"""Seconds that an all_reduce takes once all have come."""
Work = Callable[[int, int, float], float]
"""Seconds of own work on the host, by rank, step and time."""


@dataclasses.dataclass
class Course:
    """A job of some minutes."""

    host: Work
    ranks: int = 4
    device: float = 0.0
    """Seconds of each rank's own kernels, which run as soon as the step begins."""
    noise: float = 0.03

    def steps(self) -> Iterator[tuple[float, list[float], float]]:
        """When each step begins, each rank's own work in it, and when its all_reduce is done."""
        random, now = Random(7), 0.0
        for step in count():
            if now >= MINUTES * 60:
                return
            work = [
                self.host(rank, step, now) * (1 + random.uniform(-self.noise, self.noise))
                for rank in range(self.ranks)
            ]
            done = now + max(*work, self.device) + OPERATION
            yield now, work, done
            now = done


class _Clock:
    now = 0.0

    def __call__(self, clock: int) -> int:
        return 1_000_000_000_000 + int(self.now * 1e9)


Played = Callable[[Course, bool], dict[int, SlowLook]]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """What a judge has seen of a course, on a device or on gloo, by tick."""
    clock = _Clock()
    monkeypatch.setattr("stagewatch.client._lane._read_clock", clock)
    monkeypatch.setattr("stagewatch.client._recorder._read_clock", clock)
    done = [0.0]
    torch: Any = ModuleType("torch")
    torch.Tensor = type("Tensor", (), {})
    torch.cuda = ModuleType("torch.cuda")
    torch.cuda.synchronize = lambda: setattr(clock, "now", max(clock.now, done[0]))
    for module in (torch, torch.cuda):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    stop = watch_device(torch)

    def rank(number: int, course: Course, directory: Path, on_device: bool) -> dict[str, list[str]]:
        """The series of one rank."""
        clock.now = 0.0
        shown: dict[str, list[str]] = {}
        with fresh_client(directory):
            stagewatch.init(
                "train", job_id=7, rank=number, world_size=course.ranks, directory=directory
            )
            seen, look = OwnWork(), 0
            for step, (_, work, end) in enumerate(course.steps()):
                done[0] = end
                with stagewatch.stage("train", step=step):
                    clock.now += work[number]
                    if on_device:
                        stagewatch.collective("world", op="all_reduce", size=course.ranks)
                        torch.cuda.synchronize()
                    else:
                        with stagewatch.collective("world", op="all_reduce", size=course.ranks):
                            clock.now = end
                while clock.now >= look * TICK:
                    _show(shown, number, seen, directory, look, clock(0) / 1e9)
                    look += 1
        return shown

    def play(course: Course, on_device: bool) -> dict[int, SlowLook]:
        given: dict[str, str] = {}
        for number in range(course.ranks):
            directory = tmp_path / f"{number}-{on_device}"
            directory.mkdir()
            shown = rank(number, course, directory, on_device)
            given |= {name: " ".join(values) for name, values in shown.items()}
        api = PromtoolQueries(tmp_path, ["slow.rules.yaml"], given)

        def questions() -> dict[int, SlowLook]:
            watch = SlowWatch(api)
            return {tick: watch.look(float(tick * TICK)) for tick in range(1, MINUTES * 4)}

        return api.ask(questions)

    yield play
    stop()


def _show(
    shown: dict[str, list[str]], rank: int, seen: OwnWork, directory: Path, look: int, now: float
) -> None:
    """Add what the agent exports of a rank at a look."""
    (file,) = directory.glob("*.rank")
    record = dataclasses.replace(parse(file.read_bytes()), name=str(rank))
    out = Samples()
    seen.add(out, [record], now, lambda *_: True)
    who = {"cluster": "c", "node": "n1", "job_id": "7", "role": "train", "rank": rank}
    for metric, family in out.families.items():
        for labels, value in family.items():
            named = who | {"stage": labels[3]} if "stage" in metric.labels else who
            shown.setdefault(series(metric.name, **named), ["_"] * look).append(f"{value:.6f}")
    step = record.lanes[0].step
    for name in ("rl_rank_step", "rl_newest_step"):
        shown.setdefault(series(name, **who), ["_"] * look).append(str(step or 0))


def slower(factor: float) -> Work:
    """Rank 3 takes so many times as long from a minute on."""
    return lambda rank, _, now: 0.5 * (factor if rank == 3 and now >= SLOW_FROM else 1.0)


@pytest.mark.parametrize("factor", [1.2, 4.0])
def test_a_slow_host_is_named_as_on_gloo(played: Played, factor: float) -> None:
    course = Course(slower(factor))
    on_device, on_gloo = (played(course, device) for device in (True, False))
    assert ever(on_device) == ever(on_gloo) == {3}

    def first(looks: dict[int, SlowLook]) -> int:
        return min(tick for tick, look in looks.items() if look.ranks)

    assert first(on_device) <= first(on_gloo) + 1
    told = on_device[MINUTES * 4 - 1].ranks
    assert [one.ratio for one in told.values()] == [pytest.approx(factor, rel=0.05)]


def test_nobody_is_named_where_all_work_alike(played: Played) -> None:
    assert ever(played(Course(slower(1.0), noise=0.1), True)) == set()


def test_a_host_that_works_longer_beside_a_busy_device_holds_nobody_up(played: Played) -> None:
    """Its kernels take a second in any case: a fifth more of 0.2 s on the host is hidden."""
    course = Course(lambda rank, *_: 0.2 * (1.2 if rank == 3 else 1.0), device=1.0)
    assert ever(played(course, True)) == set()
