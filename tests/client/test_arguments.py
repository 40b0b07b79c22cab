"""Whatever a trainer passes: nothing is raised, progress is kept, and one warning at most."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stagewatch
from tests.client.conftest import Client


class Hostile:
    """An object that raises wherever it can."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __str__(self) -> str:
        raise RuntimeError("str")

    def __int__(self) -> int:
        raise RuntimeError("int")

    def __float__(self) -> float:
        raise RuntimeError("float")


anything = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.lists(st.integers())
    | st.builds(Hostile)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(name=anything, step=anything, substage=anything, value=anything)
def test_no_argument_raises_or_loses_progress(
    client: Client, name: Any, step: Any, substage: Any, value: Any
) -> None:
    before = client.record().lanes[0].marks
    stagewatch.heartbeat(step)
    with stagewatch.stage(name, step, substage=substage):
        assert client.record().open is not None
    stagewatch.scalar(name, value)
    stagewatch.collective(name)
    with stagewatch.collective(name, op=name, size=value, elements=step, peer=value):
        pass
    stagewatch.expect(value)
    record = client.record()
    assert record.lanes[0].marks == before + 3
    assert record.open is None


names = ("role", "job_id", "rank", "local_rank", "world_size", "framework", "gpu")
no_directories = st.integers(min_value=1) | st.floats(min_value=1) | st.builds(Hostile)
identities = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(names, anything), "directory": no_directories}
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=50,
)
@given(identity=identities)
def test_no_identity_raises(
    client: Client, identity: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEWATCH_DIR", str(client.directory))
    stagewatch.init(**identity)
    stagewatch.heartbeat(step=1)
    stagewatch.close()
    assert list(client.directory.glob("*.rank")) == []


@pytest.mark.parametrize("step", [2**63, -(2**70), "seven", float("nan"), float("inf"), Hostile()])
def test_a_bad_step_keeps_the_last_good_one(client: Client, step: Any) -> None:
    stagewatch.heartbeat(7)
    stagewatch.heartbeat(step)
    stagewatch.heartbeat()
    with stagewatch.stage("train", step):
        frame = client.record().open
    assert frame.step == 7
    assert client.record().lanes[0].step == 7


def test_a_trainers_log_gets_one_line(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    bad: Any = "seven"
    with caplog.at_level(logging.DEBUG, logger="stagewatch"):
        for _ in range(100):
            stagewatch.heartbeat(bad)
            stagewatch.scalar("reward", bad)
    assert len(caplog.records) == 1
    assert "a step was not recorded" in caplog.text
