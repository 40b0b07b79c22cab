"""The clock collector, on made-up states and on this kernel's."""

from __future__ import annotations

import ctypes

import pytest

from stagewatch.clock.collector import (
    MAX_ERROR,
    OFFSET,
    SYNCHRONIZED,
    ClockCollector,
    ClockState,
    read_clock,
)
from stagewatch.core import adjtimex
from stagewatch.core.errors import SourceError
from tests.golden import assert_golden

STATE = ClockState(
    offset_seconds=-0.0025,
    max_error_seconds=0.016,
    synchronized=True,
)


def test_the_whole_exposition() -> None:
    assert_golden(ClockCollector(lambda: STATE).collect(), "clock.prom")


def test_this_kernels_clock_is_read() -> None:
    found = ClockCollector().collect()
    assert found.value(SYNCHRONIZED) in (0, 1)
    offset, error = found.value(OFFSET), found.value(MAX_ERROR)
    assert offset is not None
    assert error is not None
    assert abs(offset) < 1  # adjtimex cannot correct more than half a second
    assert 0 <= error < 1e6


def test_the_structure_is_as_large_as_the_kernels() -> None:
    """`sizeof(struct timex)` of 64-bit Linux; a shorter one would be written beyond its end."""
    assert ctypes.sizeof(adjtimex._Timex) == 208


@pytest.mark.parametrize(
    ("status", "state", "synchronized", "offset"),
    [
        (0x2001, 0, True, 5e-9),  # STA_PLL | STA_NANO
        (0x0001, 0, True, 5e-6),  # in microseconds
        (0x2041, 5, False, 5e-9),  # STA_UNSYNC
        (0x2001, 5, False, 5e-9),  # TIME_ERROR
        (0x2011, 1, True, 5e-9),  # a leap second is due
    ],
)
def test_what_the_kernel_says_is_read_in_its_units(
    status: int,
    state: int,
    synchronized: bool,
    offset: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Libc:
        @staticmethod
        def adjtimex(argument: object) -> int:
            timex = argument._obj  # type: ignore[attr-defined]
            timex.offset, timex.maxerror, timex.status = 5, 250, status
            return state

    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: Libc)
    found = read_clock()
    assert found.offset_seconds == pytest.approx(offset)
    assert found.max_error_seconds == pytest.approx(250e-6)
    assert found.synchronized is synchronized


def test_a_refusal_is_an_error_to_act_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        @staticmethod
        def adjtimex(argument: object) -> int:
            ctypes.set_errno(1)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: Libc)
    with pytest.raises(SourceError, match="adjtimex: Operation not permitted"):
        read_clock()
