"""Signals that arrive while the client is writing, as a reward function's time-out may.

The signal is made to arrive at each point of the client in turn where the interpreter looks for
signals: when a function begins, after a call, and when a loop goes round.
"""

from __future__ import annotations

import dis
import functools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import stagewatch
from stagewatch import client as package
from stagewatch.client.hooks.span import Span
from stagewatch.client.hooks.trl import NAMES as TRL
from tests.client.hooking import completed, fresh_client, record

HERE = str(Path(package.__file__).parent)
CHECKED = ("RESUME", "CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "FOR_ITER", "<begin>")
# Python can end no block whose end is interrupted before its first line, so that is left out.  It
# takes a signal between the last call of the block and the first instruction of its end.
ENDS = ("__exit__", "end")


class TimeOut(Exception):
    """What a trainer's handler raises."""


def raise_time_out(*_: object) -> None:
    raise TimeOut


class Watchdog:
    """A handler that is an object, and one that is a method."""

    def __call__(self, *_: object) -> None:
        raise TimeOut

    def bark(self, *_: object) -> None:
        raise TimeOut


@contextmanager
def signal_at(point: int) -> Iterator[list[str]]:
    """SIGUSR1 at the client's n-th point; yields where that was, if it came to that."""
    left = point
    came: list[str] = []
    before: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        code = frame.f_code
        if not code.co_filename.startswith(HERE) or code.co_name == "__del__":
            return None  # the interpreter itself loses what is raised in a finalizer
        frame.f_trace_opcodes = True
        if event == "opcode" and not came:
            last = before.get(frame, "<begin>")
            before[frame] = dis.opname[code.co_code[frame.f_lasti]]
            begins = last in ("<begin>", "RESUME")
            if last.startswith(CHECKED) and not (begins and code.co_name in ENDS):
                left -= 1
            if left < 0:
                came.append(f"{code.co_name} line {frame.f_lineno}, after {last}")
                signal.raise_signal(signal.SIGUSR1)
        return trace

    sys.settrace(trace)
    try:
        yield came
    finally:
        sys.settrace(None)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with fresh_client(tmp_path):
        stagewatch.init()
        yield tmp_path


def one_stage() -> None:
    with stagewatch.stage("rollout", step=1):
        pass


def one_span() -> None:
    with Span(TRL, "transformers.generate", 1):
        pass


def one_pair() -> None:
    span = Span(TRL, "transformers.generate", 1)
    span.begin()
    span.end()


def one_heartbeat() -> None:
    stagewatch.heartbeat(1)


def values() -> None:
    stagewatch.scalar("reward", 0.5)
    stagewatch.collective("world")


@contextmanager
def handled(handler: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("work", "handler"),
    [
        (one_stage, raise_time_out),
        (one_span, Watchdog()),
        (one_pair, Watchdog().bark),
        (one_heartbeat, functools.partial(raise_time_out, 1)),
        (values, raise_time_out),
    ],
    ids=["stage", "span", "pair", "heartbeat", "values"],
)
def test_the_time_out_comes_through_and_no_stage_stays_open(
    directory: Path, work: Callable[[], None], handler: Callable[..., None]
) -> None:
    with handled(handler):
        interrupt_at_each_point(directory, work)


def interrupt_at_each_point(directory: Path, work: Callable[[], None]) -> None:
    with signal_at(sys.maxsize):  # Python 3.12 tells of opcodes from the second time on
        work()
    interrupted = 0
    while True:
        raised = False
        with stagewatch.stage("train"):
            try:
                with signal_at(interrupted) as came:
                    work()
            except TimeOut:
                raised = True
            if not came:
                break
            assert raised, f"the time-out was lost in {came}"
            lane = record(directory).lanes[0]  # a torn record could not be read
            assert [frame.stage for frame in lane.frames] == ["train"], came
        interrupted += 1
    assert interrupted > 5
    found = record(directory)
    assert found.open is None
    assert completed(found)["train"] == interrupted + 1
    for _ in range(8):  # no slot is lost
        one_stage()
    assert found.dropped == record(directory).dropped == 0


@pytest.mark.parametrize("work", [one_span, values])
def test_a_handler_that_records_itself_disturbs_nothing(
    directory: Path, work: Callable[[], None]
) -> None:
    def checkpoint(*_: object) -> None:
        with stagewatch.stage("checkpoint"):
            stagewatch.heartbeat()
            stagewatch.scalar("kl", 1.0)
            shown.append([frame.stage for frame in record(directory).lanes[0].frames][-1])

    shown: list[str] = []
    with handled(checkpoint):
        came = ["before"]
        while came:
            with signal_at(len(shown)) as came:
                work()
            assert record(directory).open is None
    assert len(shown) > 5
    assert set(shown) == {"checkpoint"}
    assert completed(record(directory))["checkpoint"] == len(shown)
    assert record(directory).dropped == 0


def test_an_error_of_our_own_is_still_swallowed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise TimeOut  # the same kind, from no handler

    monkeypatch.setattr("stagewatch.client._lane.Lane.enter", broken)
    with handled(raise_time_out):
        one_stage()
        one_span()
    assert record(directory).open is None


def test_a_stage_that_two_time_outs_left_open_does_not_hang_the_program(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes while the first is cleared up; the program enters the stage again."""

    def interrupted(*_: object, **__: object) -> None:
        raise TimeOut

    stage = stagewatch.stage("rollout")
    with monkeypatch.context() as patch:
        patch.setattr("stagewatch.client._lane._pack_event", interrupted)
        patch.setattr("stagewatch.client._lane.Lane.settle", interrupted)
        with pytest.raises(TimeOut):
            stage.__enter__()
    with stage:
        with monkeypatch.context() as patch:
            patch.setattr("stagewatch.client._lane._pack_event", interrupted)
            one_stage()  # is put in order
        assert [frame.stage for frame in record(directory).lanes[0].frames] == ["rollout"]
    assert record(directory).open is None
