"""Hooking the timers of a framework that nobody has written a hook for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stagewatch.client.hooks import generic
from tests.client.hooking import completed, record, records

STAGES = {"gen": "rollout", "upd": "train", "everything": None}


class Timer:
    """Somebody's timer."""

    def __init__(self) -> None:
        self.laps: list[str] = []

    def tic(self, name: str) -> None:
        if name in self.laps:
            raise ValueError(f"{name} is running")
        self.laps.append(name)

    def toc(self, name: str) -> str:
        self.laps.remove(name)
        return name


def shown(directory: Path) -> list[tuple[str, str]]:
    """The open stages, outermost first."""
    return [(f.stage, f.substage) for r in records(directory) for f in r.lanes[0].frames]


def test_a_timer_with_start_and_stop(directory: Path) -> None:
    unhook = generic.hook_timer(Timer, start="tic", stop="toc", stages=STAGES, framework="mine")
    timer = Timer()
    timer.tic("gen")
    timer.tic("upd")  # they overlap, as timers may
    assert timer.toc("gen") == "gen"
    assert shown(directory) == [("train", "upd")]
    timer.toc("upd")
    timer.tic("everything")
    timer.toc("everything")
    unhook()
    timer.tic("gen")
    assert shown(directory) == []
    assert completed(record(directory)) == {"rollout": 1, "train": 1}
    assert record(directory).framework == "mine"


def test_a_timer_that_refuses_to_start_opens_nothing(directory: Path) -> None:
    unhook = generic.hook_timer(Timer, start="tic", stop="toc", stages=STAGES)
    timer = Timer()
    timer.tic("gen")
    with pytest.raises(ValueError, match="running"):
        timer.tic("gen")
    with pytest.raises(ValueError):
        timer.toc("upd")
    timer.toc("gen")
    assert shown(directory) == []
    assert completed(record(directory)) == {"rollout": 1}
    unhook()


def module_with_contexts() -> Any:
    """Somebody's module of context managers."""
    module: Any = ModuleType("somebodys")

    @contextlib.contextmanager
    def timed(name: str) -> Iterator[str]:
        yield name.upper()

    @contextlib.asynccontextmanager
    async def atimed(name: str) -> AsyncIterator[str]:
        yield name.upper()

    @contextlib.contextmanager
    def forgiving(name: str) -> Iterator[None]:
        with contextlib.suppress(OSError):
            yield

    module.timed, module.atimed, module.forgiving = timed, atimed, forgiving
    return module


def test_a_function_that_makes_a_context_manager(directory: Path) -> None:
    module = module_with_contexts()
    unhook = generic.hook_context(module, "timed", stages=STAGES)
    with module.timed("gen") as value:
        assert value == "GEN"
        assert shown(directory) == [("rollout", "gen")]
    with pytest.raises(KeyError), module.timed(name="upd"):
        raise KeyError("x")
    assert dict(record(directory).failures) == {("train", "KeyError"): 1}
    unhook()


def test_an_async_one(directory: Path) -> None:
    module = module_with_contexts()
    unhook = generic.hook_context(module, "atimed", stages=STAGES)

    async def job() -> None:
        async with module.atimed("gen") as value:
            assert value == "GEN"
            assert shown(directory) == [("rollout", "gen")]

    asyncio.run(job())
    assert shown(directory) == []
    unhook()


def test_one_used_as_a_decorator_works_on(directory: Path) -> None:
    module = module_with_contexts()
    unhook = generic.hook_context(module, "timed", stages=STAGES)
    unhook_async = generic.hook_context(module, "atimed", stages=STAGES)

    @module.timed("gen")
    def generate() -> list[tuple[str, str]]:
        return shown(directory)

    @module.atimed("upd")
    async def update() -> list[tuple[str, str]]:
        return shown(directory)

    for _ in range(2):
        assert generate() == [("rollout", "gen")]
        assert asyncio.run(update()) == [("train", "upd")]
    assert completed(record(directory)) == {"rollout": 2, "train": 2}
    unhook()
    unhook_async()


def test_an_exception_that_the_context_swallows_is_no_failure(directory: Path) -> None:
    module = module_with_contexts()
    unhook = generic.hook_context(module, "forgiving", stages=STAGES)
    with module.forgiving("gen"):
        raise OSError("expected")
    assert completed(record(directory)) == {"rollout": 1}
    assert not record(directory).failures
    unhook()


def test_what_cannot_be_hooked_is_said_and_left_alone(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    generic.hook_timer(Timer, start="begin", stop="toc", stages=STAGES, framework="a")()
    generic.hook_context(module_with_contexts(), "absent", stages=STAGES, framework="b")()
    assert len(caplog.records) == 2
    assert not hasattr(Timer.toc, "__stagewatch__")
    assert records(directory) == []
