"""The clock collector, on made-up states and on this kernel's."""

from __future__ import annotations

import ctypes

import pytest

from stagewatch.clock.collector import MAX_ERROR, OFFSET, SYNCHRONIZED, ClockCollector
from stagewatch.core import adjtimex
from stagewatch.core.errors import SourceError
from tests.golden import assert_golden


def test_the_whole_exposition() -> None:
    assert_golden(ClockCollector(lambda: (0, -2500, 16000, 0)).collect(), "clock.prom")


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
        (0x2001, 0, 1, 5e-9),  # STA_PLL | STA_NANO
        (0x0001, 0, 1, 5e-6),  # in microseconds
        (0x2041, 5, 0, 5e-9),  # STA_UNSYNC
        (0x2001, 5, 0, 5e-9),  # TIME_ERROR
    ],
)
def test_what_the_kernel_says_is_read_in_its_units(
    status: int, state: int, synchronized: int, offset: float
) -> None:
    found = ClockCollector(lambda: (state, 5, 250, status)).collect()
    assert found.value(OFFSET) == pytest.approx(offset)
    assert found.value(SYNCHRONIZED) == synchronized


def test_a_refusal_is_an_error_to_act_on() -> None:
    def refuse() -> tuple[int, ...]:
        raise PermissionError(1, "Operation not permitted")

    with pytest.raises(SourceError, match="adjtimex: Operation not permitted"):
        ClockCollector(refuse).collect()
