"""JSON both ways, and what others make of it."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.core.state_file import BROKEN
from stagewatch.ranks.waits import model

FAR = model.Connection("10.0.0.1:5000", "10.0.0.2:80", owed=True, sent_seconds=4.5)
NEAR = model.Connection("127.0.0.1:1", "127.0.0.1:2", (7,), unread=3)
LOOK = model.Waiting(
    {
        1: model.Process(
            1, 10, model.State.WAITING, "python", job="540", lacking=("its threads: no",)
        ),
        2: model.Process(2, 11, model.State.RUNNING, ""),
    },
    (
        model.Wait(1, 1, model.Kind.TCP, "read", 2.0, model.Mode.ALL, (), "reads", (FAR,)),
        model.Wait(
            1,
            3,
            model.Kind.PIPE,
            "read",
            0.0,
            model.Mode.ANY,
            (2, 4),
            "reads",
            alike=3,
            unseen=True,
        ),
    ),
    (NEAR,),
    2.0,
    ("nobody",),
)


def test_what_is_written_is_read_again() -> None:
    assert model.from_json(json.loads(json.dumps(model.as_json(LOOK)))) == LOOK


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
    told = json.loads(json.dumps(model.as_json(LOOK)))
    field = data.draw(st.sampled_from(sorted(told[kind][0])))
    told[kind][0][field] = data.draw(_JSON)
    with contextlib.suppress(BROKEN):
        assert isinstance(model.from_json(told), model.Waiting)
