"""What the values of a setting may look like, and how they are shown."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.core import config


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("500ms", 0.5), ("1s", 1), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1.5", 1.5), (3, 3)],
)
def test_durations(written: object, seconds: float) -> None:
    assert config.duration(written) == seconds


@given(st.text(alphabet="htps:/[].0123456789@ ", max_size=30))
def test_any_text_is_a_url_or_refused(written: str) -> None:
    with contextlib.suppress(ValueError):
        assert config.http_url(written) in ("", written)


@pytest.mark.parametrize(
    ("written", "items"),
    [
        ("", ()),
        ("/a", ("/a",)),
        (" /a , /b ,", ("/a", "/b")),
        (["/a", "/b,c"], ("/a", "/b,c")),
        ([], ()),
    ],
)
def test_lists(written: object, items: tuple[str, ...]) -> None:
    assert config.listing(config.text)(written) == items


@given(
    st.sampled_from(
        [
            config.text,
            config.path,
            config.integer,
            config.boolean,
            config.duration,
            config.size,
            config.address,
            config.http_url,
            config.listing(config.absolute_path),
        ]
    ),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
)
def test_no_value_of_a_toml_file_breaks_a_parser(parse: Any, value: Any) -> None:
    with contextlib.suppress(ValueError, TypeError):
        parse(value)
