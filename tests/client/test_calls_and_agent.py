"""Ranks that call tools and count their work, as a real agent exports it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node_agent import NodeAgent
from tests.running import Python
from tests.waiting import wait_for

RANK = """
import sys, time
import stagewatch

stagewatch.init("rollout", job_id="economics-540", rank=int(sys.argv[1]), world_size=2)
stuck = stagewatch.call('search"}\\n evil{x="1')
stuck.__enter__()
for number in range(100):
    try:
        tool = f"tool {number}" if number % 2 else "run"
        with stagewatch.stage("rollout"), stagewatch.call(tool):
            stagewatch.throughput(tokens=1000, samples=2, flops=1e15)
            if number % 10 == 0:
                raise TimeoutError
    except TimeoutError:
        pass
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[NodeAgent]:
    running = NodeAgent(tmp_path)
    running.start()
    yield running
    running.stop()


def test_an_agent_tells_work_and_calls_of_every_rank(agent: NodeAgent, python: Python) -> None:
    for rank in range(2):
        python(RANK, rank, STAGEWATCH_DIR=str(agent.ranks)).said("ready")

    def value(metric: str, **labels: str) -> float | None:
        for (found, pairs), number in agent.series().items():
            if found == metric and labels.items() <= dict(pairs).items():
                return number
        return None

    job = {"job_id": "economics-540", "role": "rollout"}
    rank = job | {"rank": "1"}
    stage = rank | {"stage": "rollout"}
    wait_for(lambda: value("rl_rank_tokens_total", **stage) == 100_000, "tokens")
    assert value("rl_rank_samples_total", **stage) == 200
    assert value("rl_rank_flops_total", **stage) == 1e17
    assert value("rl_rank_tokens_total", **rank, stage="train") is None

    wait_for(lambda: value("rl_call_seconds_count", **job, name="run") == 100, "both ranks' calls")
    assert value("rl_call_errors_total", **job, name="run") == 20
    assert value("rl_calls_in_flight", **rank, name="run") == 0
    assert value("rl_call_oldest_seconds", **rank, name="run") is None

    names = {
        dict(labels)["name"]
        for (metric, labels) in agent.series()
        if metric == "rl_call_seconds_count"
    }
    assert len(names) == 15, "13 tools, run, and other; the one that has not ended has no duration"
    assert value("rl_call_seconds_count", **job, name="other") == 2 * (50 - 13)

    (evil,) = {
        dict(labels)["name"]
        for (metric, labels) in agent.series()
        if metric == "rl_call_oldest_seconds" and ("job_id", "economics-540") in labels
    }
    assert evil.startswith('search"}')
    assert evil.isprintable()
    first = value("rl_call_oldest_seconds", **rank, name=evil)
    assert first is not None
    wait_for(
        lambda: (value("rl_call_oldest_seconds", **rank, name=evil) or 0) > first,
        "the call that never ends grows older",
    )
