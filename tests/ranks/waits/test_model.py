"""JSON both ways, and what others make of it."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.core.state_file import BROKEN
from stagewatch.ranks.waits.model import (
    Connection,
    Kind,
    Mode,
    Process,
    State,
    Wait,
    Waiting,
    as_json,
    from_json,
)

FAR = Connection("10.0.0.1:5000", "10.0.0.2:80", owed=True, sent_seconds=4.5)
NEAR = Connection("127.0.0.1:1", "127.0.0.1:2", (7,), unread=3)
LOOK = Waiting(
    {
        1: Process(1, 10, State.WAITING, "python", job="540", lacking=("its threads: no",)),
        2: Process(2, 11, State.RUNNING, ""),
    },
    (
        Wait(1, 1, Kind.TCP, "read", 2.0, Mode.ALL, (), "reads", (FAR,)),
        Wait(1, 3, Kind.PIPE, "read", 0.0, Mode.ANY, (2, 4), "reads", alike=3, unseen=True),
    ),
    (NEAR,),
    2.0,
    ("nobody",),
)


def test_what_is_written_is_read_again() -> None:
    assert from_json(json.loads(json.dumps(as_json(LOOK)))) == LOOK


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)


@settings(max_examples=40)
@given(st.sampled_from(["processes", "waits"]), st.data())
def test_a_field_that_is_something_else_is_refused_or_a_look(
    kind: str, data: st.DataObject
) -> None:
    told = json.loads(json.dumps(as_json(LOOK)))
    field = data.draw(st.sampled_from(sorted(told[kind][0])))
    told[kind][0][field] = data.draw(_JSON)
    with contextlib.suppress(BROKEN):
        assert isinstance(from_json(told), Waiting)
