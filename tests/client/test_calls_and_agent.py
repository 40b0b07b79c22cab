"""Ranks that call tools and count their work, as the agent's collector exports it."""

from __future__ import annotations

import dataclasses

import stagewatch
from stagewatch.core.exposition import Histogram
from stagewatch.ranks import stages
from tests.client.conftest import Client
from tests.records import Shown

JOB, RANK = ("540", "train"), ("540", "train", "3")


def test_an_agent_tells_work_and_calls_of_its_ranks(client: Client) -> None:
    stuck = stagewatch.call('search"}\n evil{x="1')
    stuck.__enter__()
    for number in range(100):
        tool = f"tool {number}" if number % 2 else "run"
        try:
            with stagewatch.stage("rollout"), stagewatch.call(tool):
                stagewatch.throughput(tokens=1000, samples=2, flops=1e15)
                if number % 10 == 0:
                    raise TimeoutError
        except TimeoutError:
            pass
    one = dataclasses.replace(client.record(), name="a")
    ranks = Shown(one, dataclasses.replace(one, name="b", rank=4))
    out = stages.StagesCollector(ranks).collect()  # type: ignore[arg-type]
    work = [
        out.value(metric, *JOB, "rollout")
        for metric in (stages.TOKENS, stages.SAMPLES, stages.FLOPS)
    ]
    assert work == [200_000, 400, 2e17], "of both ranks"
    assert out.value(stages.TOKENS, *JOB, "train") is None

    ended = {
        labels[-1]: found.count
        for labels, found in out.families[stages.CALL_SECONDS].items()
        if isinstance(found, Histogram)
    }
    assert ended["run"] == 100, "of both ranks"
    assert len(ended) == 15, "13 tools, run, and other; the one that has not ended has no duration"
    assert ended["other"] == 2 * (50 - 13)
    assert out.value(stages.CALL_ERRORS, *JOB, "run") == 20
    assert out.value(stages.CALLS_OPEN, *RANK, "run") == 0

    (evil,) = {labels[-1] for labels in out.families[stages.CALL_OLDEST]}
    assert evil.startswith('search"}')
    assert evil.isprintable()
