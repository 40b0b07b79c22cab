"""Tracebacks of a trainer's errors show the trainer's frames, and none of ours."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stagewatch
from stagewatch.client.hooks import torch as program
from stagewatch.client.hooks.patching import answered, as_stage, within
from stagewatch.client.hooks.span import Names, Span, by_stage
from tests.client.hooking import fresh_client

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="a bare raise restores all")

NAMES = Names("fake", by_stage(train="step"))


def fails(*_: Any) -> None:
    raise ValueError("the trainer's own")


async def fails_later(*_: Any) -> None:
    raise ValueError("the trainer's own")


@pytest.fixture(params=["recording", "no record"])
def client(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With and without a record of this process."""
    monkeypatch.setitem(
        sys.modules,
        "torch",
        SimpleNamespace(
            is_grad_enabled=lambda: True, compiler=SimpleNamespace(is_compiling=lambda: False)
        ),
    )
    with fresh_client(tmp_path) if request.param == "recording" else nullcontext():
        if request.param == "recording":
            stagewatch.init()
        yield


@pytest.mark.parametrize(
    "hooked",
    [
        stagewatch.stage("train")(fails),
        stagewatch.call("search")(fails),
        as_stage(NAMES, "step")(fails),
        within(lambda *_: None)(fails),
        answered(lambda *_: None)(fails),
        within(lambda *_: Span(NAMES, "step"))(fails),
        program._part("forward", begins=True)(fails),
        program._part("save", begins=False)(fails),
        lambda module: program._forward(fails)(module),
        program._batch(fails),
    ],
)
@pytest.mark.usefixtures("client")
def test_an_error_passes_through_a_hook_without_a_trace(hooked: Callable[..., Any]) -> None:
    module = SimpleNamespace(training=True)
    with pytest.raises(ValueError, match="own") as caught:
        hooked(module)
    assert ours(caught.value) == []


@pytest.mark.parametrize(
    "hooked", [stagewatch.stage("train")(fails_later), answered(lambda *_: None)(fails_later)]
)
@pytest.mark.usefixtures("client")
def test_so_does_one_of_a_coroutine(hooked: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="own") as caught:
        asyncio.run(hooked())
    assert ours(caught.value) == []


def ours(error: BaseException) -> list[str]:
    """Our functions in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames if "/stagewatch/client/" in frame.filename]
