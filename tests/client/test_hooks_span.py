"""What a framework's timed span looks like in the record."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import stagewatch
from stagewatch.client.hooks.patching import Patches, with_stage
from stagewatch.client.hooks.span import Names, Span, inside, mark, publish
from tests.client.hooking import completed, open_frame, record, records

NAMES = Names(
    "made-up",
    stages={
        "gen": "rollout",
        "prefill": "rollout",
        "score": "reward",
        "update": "train",
        "validate": "eval",
        "step": None,
    },
    scalars={"metrics/reward": "reward"},
)


def test_a_span_inside_its_own_stage_is_shown_but_counted_once(directory: Path) -> None:
    with Span(NAMES, "gen", step=3), Span(NAMES, "prefill"):
        outer, inner = record(directory).lanes[0].frames
        assert (outer.substage, inner.substage, inner.step) == ("gen", "prefill", 3)
        seen = record(directory).open
        assert (seen.substage, seen.started) == ("prefill", outer.started), "as old as the stage"
    found = record(directory)
    assert (found.open, found.framework, completed(found)) == (None, "made-up", {"rollout": 1})


def test_an_unlisted_name_belongs_to_the_stage_it_runs_in(directory: Path) -> None:
    with Span(NAMES, "score"), Span(NAMES, "my_reward"):
        assert open_frame(directory) == ("reward", "my_reward", None)
    with Span(NAMES, "tidy"):
        assert open_frame(directory) == ("other", "tidy", None)
    assert completed(record(directory)) == {"reward": 1, "other": 1}


def test_a_span_around_the_whole_step_says_nothing(directory: Path) -> None:
    with Span(NAMES, "step"):
        assert record(directory).open is None
        with Span(NAMES, "step"), Span(NAMES, "gen"):
            assert open_frame(directory) == ("rollout", "gen", None)
    assert completed(record(directory)) == {"rollout": 1}


@pytest.mark.parametrize(("outer", "stage"), [("update", "train"), ("validate", "eval")])
def test_what_runs_inside_train_and_eval_is_part_of_them(
    directory: Path, outer: str, stage: str
) -> None:
    with Span(NAMES, outer), Span(NAMES, "gen"):
        assert inside(stage) and not inside("rollout")
        assert open_frame(directory) == (stage, "gen", None)
    assert completed(record(directory)) == {stage: 1}


def test_spans_that_do_not_end_in_the_order_they_began(directory: Path) -> None:
    first, second = Span(NAMES, "gen"), Span(NAMES, "score")
    first.begin()
    second.begin()
    first.end()
    assert [frame.stage for frame in record(directory).lanes[0].frames] == ["reward"]
    second.end()
    for _ in range(3):  # nothing of the first pair lingers
        with Span(NAMES, "gen"):
            assert not inside("reward")
    assert completed(record(directory)) == {"rollout": 4, "reward": 1}


def test_concurrent_tasks_each_count_and_do_not_nest_in_each_other(directory: Path) -> None:
    async def sample(started: asyncio.Event, others: asyncio.Event) -> None:
        with Span(NAMES, "gen"), Span(NAMES, "score"):
            started.set()
            await others.wait()

    async def job() -> None:
        events = [asyncio.Event() for _ in range(4)]
        tasks = [
            asyncio.create_task(sample(events[i], events[(i + 1) % 4])) for i in range(len(events))
        ]
        await asyncio.gather(*tasks)

    asyncio.run(job())
    assert completed(record(directory)) == {"rollout": 4, "reward": 4}


def test_an_exception_is_a_failure_of_the_stage_it_left_first(directory: Path) -> None:
    with pytest.raises(ZeroDivisionError), Span(NAMES, "gen"), Span(NAMES, "score", step=7):
        _ = 1 / 0
    found = record(directory)
    assert dict(found.failures) == {("reward", "ZeroDivisionError"): 1}
    assert found.first_failure is not None and found.first_failure.step == 7


def test_a_timer_that_stops_in_passing_tells_a_failure_from_one_already_handled(
    directory: Path,
) -> None:
    span = Span(NAMES, "gen")
    with pytest.raises(MemoryError):
        span.begin()
        try:
            raise MemoryError("gone")
        finally:
            span.finish()
    try:
        raise KeyError("handled below")
    except KeyError:
        fallback = Span(NAMES, "score")
        fallback.begin()
        fallback.finish()
    assert dict(record(directory).failures) == {("rollout", "MemoryError"): 1}


def test_values_and_progress_without_a_span(directory: Path) -> None:
    mark(NAMES, 12)
    publish(NAMES, {"metrics/reward": 0.5, "metrics/noise": 3})
    found = record(directory)
    assert found.lanes[0].step == 12
    assert dict(found.scalars) == {"reward": 0.5}


def test_a_closed_record_is_not_begun_again(directory: Path) -> None:
    with Span(NAMES, "gen"):
        pass
    stagewatch.close()
    with Span(NAMES, "gen"):
        pass
    assert records(directory) == []


def test_what_init_was_told_is_kept(directory: Path) -> None:
    stagewatch.init(role="rollout", rank=4, framework="mine")
    with Span(NAMES, "gen"):
        pass
    found = record(directory)
    assert (found.role, found.rank, found.framework) == ("rollout", 4, "mine")


def test_children_of_a_fork_do_not_pass_for_the_rank(directory: Path) -> None:
    with Span(NAMES, "gen"):
        pid = os.fork()
        if pid == 0:
            with Span(NAMES, "score"):
                os._exit(len(records(directory)))
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 1
        assert open_frame(directory) == ("rollout", "gen", None)


CLUSTER = Names(
    "cluster",
    stages={"update": "train", "serve": "rollout"},
    single_controller=True,
    roles={"serve": "rollout"},
)


@pytest.mark.parametrize(
    ("environ", "name", "role", "rank"),
    [
        ({"RANK": "3"}, "update", "train", 3),
        ({"RAY_JOB_ID": "01000000", "SLURM_PROCID": "2"}, "update", "controller", 0),
        pytest.param({"RAY_JOB_ID": "01000000"}, "serve", "rollout", os.getpid(), id="its-own-pid"),
        ({"RANK": "3", "STAGEWATCH_ROLE": "critic"}, "update", "critic", 3),
        ({"RANK": "1"}, "serve", "rollout", 1),
    ],
)
def test_a_worker_of_a_single_controller_is_told_from_the_controller(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    name: str,
    role: str,
    rank: int,
) -> None:
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    with Span(CLUSTER, name):
        pass
    found = record(directory)
    assert (found.role, found.rank) == (role, rank)


@contextlib.contextmanager
def timed(name: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield name.upper()


@contextlib.asynccontextmanager
async def atimed(name: str) -> AsyncIterator[str]:
    yield name.upper()


@pytest.fixture
def hooked() -> Any:
    """A module of context managers that are spans."""
    module: Any = ModuleType("somebodys")
    module.timed, module.atimed = timed, atimed
    patches = Patches("")
    patches.plan(module, "timed", with_stage(NAMES), "name")
    patches.plan(module, "atimed", with_stage(NAMES, asynchronous=True), "name")
    patches.apply()
    return module


def test_a_context_manager_of_the_framework_is_a_span(directory: Path, hooked: Any) -> None:
    async def update() -> None:
        async with hooked.atimed("update") as value:
            assert (value, inside("train")) == ("UPDATE", True)

    with hooked.timed("gen") as value:
        assert (value, inside("rollout")) == ("GEN", True)
        raise OSError("which it swallows")
    asyncio.run(update())
    with pytest.raises(KeyError), hooked.timed(name="score"):
        raise KeyError
    found = record(directory)
    assert completed(found) == {"rollout": 1, "train": 1, "reward": 1}
    assert dict(found.failures) == {("reward", "KeyError"): 1}


def test_one_that_is_a_decorator_opens_a_span_each_time(directory: Path, hooked: Any) -> None:
    @hooked.timed("gen")
    def generate(times: int) -> bool:
        return inside("rollout") and (times == 0 or generate(times - 1))

    assert generate(1)
    assert generate(0)
    assert completed(record(directory)) == {"rollout": 2}
