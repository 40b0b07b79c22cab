"""Stages that do not end in the order they began, as those of asyncio tasks."""

from __future__ import annotations

import stagewatch
from tests.client.conftest import Client, Clock


def test_what_is_left_open_is_what_time_passes_in(clock: Clock, client: Client) -> None:
    """The one that began first ends first; then the other is innermost, and not the ended one."""
    outer = stagewatch.stage("rollout")
    inner = stagewatch.stage("reward")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert [frame.stage for frame in client.record().lanes[0].frames] == ["reward"]
    for _ in range(4):
        clock.forward(2)
        stagewatch.heartbeat()
    totals = client.record().totals
    assert sum(totals["reward"].gaps) == 4
    assert totals["reward"].gap_seconds == 8
    assert "rollout" not in totals or not sum(totals["rollout"].gaps)
    inner.__exit__(None, None, None)
    assert client.record().open is None


def test_a_stage_that_began_later_is_innermost_in_whichever_place_it_lies(
    clock: Clock, client: Client
) -> None:
    """Places in the record are used again, so their order says nothing."""
    first, second, third = (stagewatch.stage(name) for name in ("rollout", "reward", "logprob"))
    first.__enter__()
    clock.forward(1)
    second.__enter__()
    clock.forward(1)
    first.__exit__(None, None, None)
    clock.forward(1)
    third.__enter__()
    found = client.record().open
    assert found is not None
    assert found.stage == "logprob"
    third.__exit__(None, None, None)
    second.__exit__(None, None, None)
