"""The table of blocking calls, on stacks of real libraries.

`blocking_calls.json` has small programs that hang in one call each: what py-spy saw of the first
thread (`py-spy dump --json --nonblocking`; the program is `/job/train.py`), and what is told of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stagewatch.ranks.stacks import Frame, Take, stack
from stagewatch.ranks.waits.blocking_calls import _matches, _rows, blocking_call, with_call

RECORDED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("blocking_calls.json").read_text()
)

WITHOUT_A_GPU = "torch.cuda.{}"
"""The row that these programs cannot show."""


def frames(name: str) -> list[Frame]:
    return [Frame(*frame) for frame in RECORDED[name]["frames"]]


def test_the_call_that_the_users_code_is_in_is_named() -> None:
    for name, recorded in RECORDED.items():
        found = blocking_call(frames(name))
        assert (found and [found.what, found.whom.value]) == recorded["told"], name


def test_every_row_is_of_a_library_that_was_recorded() -> None:
    used = {
        row.what
        for name in RECORDED
        for row in _rows()
        if any(_matches(row, frame) for frame in frames(name))
    }
    assert {row.what for row in _rows()} - used == {WITHOUT_A_GPU}


def test_a_stack_has_the_call_that_all_looks_saw() -> None:
    def looks(*names: str) -> list[Take]:
        return [Take((("MainThread", tuple(frames(name))),)) for name in names]

    gathers, sleeps = "dist.all_reduce", "zmq.recv"
    told = [
        (found.call, found.whom)
        for seen in (looks(gathers, gathers), looks(sleeps, gathers), looks(sleeps))
        for found in (with_call(stack(*seen), seen),)
    ]
    assert told == [tuple(RECORDED[gathers]["told"]), ("", ""), ("", "")]


def test_code_of_the_users_own_that_a_library_calls_is_in_no_call() -> None:
    frames = [
        Frame("__getitem__", "/job/data.py", 3),
        Frame("fetch", "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 50),
        Frame("_next_data", "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 9),
        Frame("train", "/job/train.py", 7),
    ]
    assert blocking_call(frames) is None
