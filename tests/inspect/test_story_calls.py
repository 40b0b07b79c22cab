"""Jobs whose ranks wait for a tool, as the story of a whole job tells of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.inspect.story import Story, tell
from stagewatch.prometheus.api import PrometheusApi
from tests.inspect.past_server import Then
from tests.report.filled import Past, filled_prometheus

NOW = time.time() // 100 * 100 - 3600
ONE, ALL = "7", "8"

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


def ranks_of(past: Past, job_id: str, role: str, calls: dict[int, float]) -> None:
    """Two ranks that hang, with the seconds of the calls that some are inside of."""
    past.add("job:rl_stall:active", 1.0, job_id=job_id, role=role)
    for rank in range(2):
        who = {"job_id": job_id, "role": role, "rank": rank, "node": "n1"}
        past.add("rl_rank_up", 1.0, **who)
        past.add("rl_rank_progress_age_seconds", 90.0, **who)
        if rank in calls:
            past.add("rank:rl_stall:call_seconds", calls[rank], **who, name=f"search-{rank}")


@pytest.fixture
def stories(children: Children, tmp_path: Path) -> Iterator[dict[str, Story]]:
    """Of job 7, which one rank holds up, and of job 8, whose rollout ranks are all in calls."""
    past = Past(NOW - 60, NOW)
    ranks_of(past, ONE, "train", {1: 42.0})
    culprit = {"rank": 1, "node": "n1", "pid": 101, "stage": "reward", "evidence": "awaited"}
    past.add("job:rl_stall:culprit", 1.0, job_id=ONE, role="train", **culprit)
    ranks_of(past, ALL, "rollout", {0: 42.0, 1: 60.0})
    ranks_of(past, ALL, "train", {})
    past.add("job:rl_stall:group_only", 1.0, job_id=ALL, role="rollout", evidence="call")
    past.add("job:rl_stall:group_only", 1.0, job_id=ALL, role="train", evidence="other_role")
    api = PrometheusApi(filled_prometheus(children, tmp_path / "p", past))
    yield {job_id: tell(Then(api, NOW), job_id, NOW) for job_id in (ONE, ALL)}
    api.close()


def test_the_culprits_call_is_told(stories: dict[str, Story]) -> None:
    assert (
        "Culprit: rank 1 (train), pid 101 on n1, in reward, inside its call of search-1 for 42 s: "
        "it has not entered what the others wait in (awaited)."
    ) in stories[ONE].sentences


def test_a_role_whose_ranks_are_all_in_calls_is_told_with_the_longest(
    stories: dict[str, Story],
) -> None:
    told = stories[ALL].sentences
    assert (
        "All ranks of the role rollout are inside calls of tools, environments or reward "
        "functions, the longest of search-1 for 1 min."
    ) in told
    assert not [each for each in told if "Another role" in each or "No rank stands out" in each]
