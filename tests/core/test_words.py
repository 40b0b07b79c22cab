from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.core.words import duration, printable


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.0004, "< 1 ms"),
        (0.3, "300 ms"),
        (412, "6 min 52 s"),
        (11100, "3 h 5 min"),
        (-90, "−1 min 30 s"),
    ],
)
def test_lengths_of_time_have_at_most_two_units(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@given(st.text(st.characters(exclude_categories=()), max_size=64), st.integers(0, 80))
def test_whatever_others_write_can_be_printed(text: str, limit: int) -> None:
    out = printable(text, limit)
    assert out.isprintable()
    assert len(out) == min(len(text), limit)


def test_printable_text_passes_unchanged() -> None:
    assert printable("größer als 5 µs") == "größer als 5 µs"
    assert printable("a\x1b[31m\nb", substitute="�") == "a�[31m�b"
