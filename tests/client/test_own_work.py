"""How long a rank waited in its collectives, as its record and the agent's counters tell it.

What a collective is: torch.distributed's documentation, "Synchronous and asynchronous collective
operations": a synchronous call returns once the operation is done, an asynchronous one returns a
work, whose `wait` blocks.
"""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagewatch
from stagewatch.client import _api
from stagewatch.client._groups import Group, Launch
from stagewatch.core.exposition import Samples
from stagewatch.ranks.own_work import (
    DATA_WAIT,
    MOMENTS,
    SPENT,
    STEP_WORK,
    STEP_WORK_SQUARED,
    STEPS,
    WAITED,
    WORKED,
    OwnWork,
    StepSums,
)
from tests.client.conftest import Client, Clock

MS = 0.001
RANK = "540", "train", "3"


def exported(client: Client, clock: Clock, seen: OwnWork | None = None) -> Samples:
    """What the agent exports now."""
    record = dataclasses.replace(client.record(), name="1")
    out = Samples()
    (seen or OwnWork()).add(out, [record], clock.now / 1e9, lambda *_: True)
    return out


def own_work(client: Client, clock: Clock, seen: OwnWork | None = None) -> dict[str, list[float]]:
    """Seconds worked and waited by stage, as the agent exports them now."""
    out = exported(client, clock, seen)
    return {
        labels[3]: [round(out.value(metric, *labels) or 0.0, 6) for metric in (WORKED, WAITED)]
        for labels in out.families.get(WORKED, {})
    }


def all_reduce() -> contextlib.AbstractContextManager[object]:
    return stagewatch.collective("world", op="all_reduce", size=4)


def test_what_is_under_way_counts_at_every_look(clock: Clock, client: Client) -> None:
    """A rank that is inside for half a minute does not seem to work meanwhile."""
    seen = OwnWork()
    with stagewatch.stage("train"):
        clock.forward(2)
        assert own_work(client, clock, seen)["train"] == [2, 0]
        with all_reduce():
            for waited in (15, 30):
                clock.forward(15)
                assert own_work(client, clock, seen)["train"] == [2, waited]
        clock.forward(1)
        assert own_work(client, clock, seen)["train"] == [3, 30]
    assert own_work(client, clock, seen)["train"] == [3, 30]


def test_the_wait_counts_for_the_stage_in_which_it_is(clock: Clock, client: Client) -> None:
    with stagewatch.stage("train"):
        clock.forward(1)
        with stagewatch.stage("weights_update"), all_reduce():
            clock.forward(4)
        with all_reduce():
            clock.forward(2)
    assert own_work(client, clock)["train"] == [1, 2]
    assert own_work(client, clock)["weights_update"] == [0, 4]


def test_a_collective_inside_of_another_is_not_counted_twice(clock: Clock, client: Client) -> None:
    with stagewatch.stage("train"), all_reduce():
        clock.forward(1)
        with stagewatch.collective("tp:0", op="all_gather"):
            clock.forward(1)
        clock.forward(1)
    assert own_work(client, clock)["train"] == [0, 3]


def test_an_asynchronous_call_is_waited_for_in_its_wait(clock: Clock, client: Client) -> None:
    group = Group("world", 4, waits=True)
    with stagewatch.stage("train"):
        launch = Launch(group, 5)
        launch.tell()
        clock.forward(1 * MS)
        launch.back(over=False)
        clock.forward(0.5)  # computes while the operation runs
        launch.wait(lambda: clock.forward(0.2))
    assert own_work(client, clock)["train"] == [0.5, 0.201]


def test_the_launch_on_a_device_ends_the_wait_with_the_call(clock: Clock, client: Client) -> None:
    """The call returns at once, and the device goes on."""
    launch = Launch(Group("world", 4, waits=False), 5, end_known=False)
    with stagewatch.stage("train"):
        launch.tell()
        clock.forward(1 * MS)
        launch.back(over=False)
        clock.forward(2)
    assert own_work(client, clock)["train"] == [2, 0.001]


def data_wait(client: Client, clock: Clock, seen: OwnWork | None = None) -> float | None:
    """Seconds waited for batches of data, as the agent exports them now."""
    return exported(client, clock, seen).value(DATA_WAIT, *RANK)


def test_waiting_for_a_batch_counts_while_it_lasts_and_is_work_too(
    clock: Clock, client: Client
) -> None:
    recorder = _api._recorder
    seen = OwnWork()
    with stagewatch.stage("train"):
        assert data_wait(client, clock, seen) is None
        word = recorder.wait_for_batch()
        assert recorder.wait_for_batch() == 0  # a loader within a loader
        clock.forward(0.4)
        assert data_wait(client, clock, seen) == pytest.approx(0.4)
        recorder.got_batch(word)
        clock.forward(0.6)
        assert data_wait(client, clock, seen) == pytest.approx(0.4)
    assert own_work(client, clock)["train"] == [1.0, 0.0]


def test_a_role_adds_up_what_its_ranks_spend_from_when_the_agent_first_saw_them(
    clock: Clock, client: Client
) -> None:
    seen = OwnWork()

    def spent(*ranks: str) -> dict[tuple[str, str], float]:
        records = [dataclasses.replace(client.record(), name=rank) for rank in ranks]
        out = Samples()
        seen.add(out, records, clock.now / 1e9, lambda *_: True)
        return {
            labels[2:]: round(seconds or 0.0, 6)
            for labels, seconds in out.families.get(SPENT, {}).items()
            if labels[2] in ("", "train")
        }

    recorder = _api._recorder
    with stagewatch.stage("eval"):
        clock.forward(100)
    with stagewatch.stage("train"):
        clock.forward(50)
        assert spent("1") == {("train", "work"): 0, ("train", "waiting"): 0}
        clock.forward(2)
        with all_reduce():
            clock.forward(3)
            assert spent("1", "2") == {("train", "work"): 2, ("train", "waiting"): 3}
            clock.forward(1)
            assert spent("1", "2") == {("train", "work"): 2, ("train", "waiting"): 5}
        word = recorder.wait_for_batch()
        clock.forward(4)
        recorder.got_batch(word)
    both = {("train", "work"): 10, ("train", "waiting"): 5, ("", "data"): 8}
    assert spent("1", "2") == both
    assert spent("2") == both  # what the other one spent stays
    assert spent() == {}


SUMS = STEPS, STEP_WORK, STEP_WORK_SQUARED


def step_sums(client: Client, clock: Clock, seen: OwnWork | None = None) -> list[float]:
    """Steps, and the sums of powers of their work, as the agent exports them now."""
    out = exported(client, clock, seen)
    return [round(out.value(metric, *RANK) or 0.0, 6) for metric in SUMS]


def sums_of(*steps: float) -> list[float]:
    """The same of steps that have taken so many seconds of work."""
    rows = [(1.0, work, work**2) for work in steps]
    return [round(sum(row[power] for row in rows), 6) for power in range(len(SUMS))]


def test_each_step_counts_with_its_time_and_its_work(clock: Clock, client: Client) -> None:
    for step, (work, wait) in enumerate([(0.5, 0.25), (0.75, 0.0), (0.5, 0.25)]):
        with stagewatch.stage("rollout", step=step):
            clock.forward(work)
        with stagewatch.stage("train", step=step), all_reduce():
            clock.forward(wait)
    assert step_sums(client, clock) == sums_of(0.5, 0.75)
    stagewatch.heartbeat(3)
    assert step_sums(client, clock) == sums_of(0.5, 0.75, 0.5)


def test_more_steps_than_the_record_holds_leave_the_latest(clock: Clock, client: Client) -> None:
    seen = OwnWork()
    stagewatch.heartbeat(0)
    step_sums(client, clock, seen)
    for step in range(1, 101):
        clock.forward(0.25)
        stagewatch.heartbeat(step)
    assert step_sums(client, clock, seen) == sums_of(*[0.25] * 31)


def test_how_steps_vary_is_told_once_five_minutes_have_shown_it(
    clock: Clock, client: Client
) -> None:
    """Of ten steps of a second one works all of it, the others half of it."""
    seen = OwnWork()

    def moments() -> dict[str, float]:
        shown = exported(client, clock, seen).families.get(MOMENTS, {})
        return {labels[2]: round(value, 6) for labels, value in shown.items()}

    for step in range(331):
        stagewatch.heartbeat(step)
        assert step >= 300 or not moments()
        clock.forward(0.5)
        with contextlib.nullcontext() if step % 10 == 0 else all_reduce():
            clock.forward(0.5)
        moments()
    mean, square, cube = 0.55, 0.325, 0.2125
    assert moments() == {
        "ranks": 1,
        "third": pytest.approx(cube - 3 * mean * square + 2 * mean**3, rel=0.1),
        "variance": pytest.approx(square - mean**2, rel=0.1),
        "time": pytest.approx(1.0),
    }


def test_marks_and_checkpoints_leave_a_step_as_old_as_it_is(clock: Clock, client: Client) -> None:
    def step_began() -> float | None:
        lane = client.record().training
        return lane.step_began if lane else None

    stagewatch.heartbeat()
    assert step_began() is None
    stagewatch.heartbeat(7)
    began = clock.now / 1e9
    for _ in range(5):
        clock.forward(10)
        stagewatch.heartbeat(7)
        with stagewatch.stage("rollout"):
            clock.forward(10)
        with stagewatch.stage("checkpoint"):
            clock.forward(10)
    assert step_began() == began
    for _ in range(100):  # the record has forgotten when the step began, and knows it is older
        clock.forward(1)
        with stagewatch.stage("checkpoint"):
            pass
    assert step_began() == clock.now / 1e9 - 31
    stagewatch.heartbeat(8)
    assert step_began() == clock.now / 1e9


def test_a_step_with_a_checkpoint_is_no_step_to_be_compared(clock: Clock, client: Client) -> None:
    for step in range(5):
        with stagewatch.stage("train", step=step):
            clock.forward(1)
        if step == 2:
            with stagewatch.stage("checkpoint", step=step):
                clock.forward(30)
    assert step_sums(client, clock) == sums_of(*[1] * 3)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1))))
def test_whatever_a_record_says_of_steps_is_finite_and_grows(begun: list[tuple[int, int]]) -> None:
    steps = StepSums()
    before = steps.sums
    for now in (2**40, 2**50, 2**62):
        steps.take(tuple(sorted(begun)), now)
        assert all(old <= one < 1e40 for old, one in zip(before, steps.sums, strict=True))
        _, time, _, work, *_ = before = steps.sums
        assert work <= time
