"""One Prometheus may know several clusters, and each of them a job of the same number."""

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
JOB = "540"

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


@pytest.fixture
def story(children: Children, tmp_path: Path) -> Iterator[Story]:
    """Of a job that hangs at step 7 on cluster a, and of another at step 900 on cluster b."""
    past = Past(NOW - 60, NOW)
    for cluster, ranks, step, age in (("a", 2, 7, 90.0), ("b", 4, 900, 1.0)):
        job = {"cluster": cluster, "job_id": JOB, "role": "train"}
        for rank in range(ranks):
            who = {**job, "rank": rank, "node": "n1"}
            past.add("rl_rank_up", 1.0, **who)
            past.add("rl_rank_step", float(step), **who)
            past.add("rl_rank_progress_age_seconds", age, **who)
            kind = {"class": "spin" if cluster == "a" else "compute"}
            past.add("rl_rank_wait_class", 1.0, **who, **kind)
        marker = {"id": cluster, "fault_type": f"slow-{cluster}", "target_worker": "1"}
        past.add("fault_injection_active", 1.0, cluster=cluster, node="n1", **marker)
    for verdict in ("job:rl_stall:active", "job:rl_stall:group_only"):
        past.add(verdict, 1.0, cluster="a", job_id=JOB, role="train")
    api = PrometheusApi(filled_prometheus(children, tmp_path / "p", past))
    yield tell(Then(api, NOW), JOB, NOW)
    api.close()


def test_each_clusters_job_has_a_story_of_its_own(story: Story) -> None:
    heads = [each for each in story.sentences if each.startswith("Job 540")]
    hung, at_work = heads
    assert hung.startswith("Job 540 (train) of cluster a, 2 ranks on n1: no progress since ")
    assert hung.endswith(" at step 7.")
    assert at_work == (
        "Job 540 (train) of cluster b, 4 ranks on n1: in progress at step 900; every rank has "
        "moved within 1.0 s."
    )
    assert story.wrong


def test_what_is_wrong_is_told_of_the_cluster_where_it_is(story: Story) -> None:
    told = list(story.sentences)
    end = next(i for i, each in enumerate(told) if "cluster b" in each)
    of_a, of_b = "\n".join(told[:end]), "\n".join(told[end:])
    assert "Of them 2 spin" in of_a
    assert "Of them 4 compute" in of_b
    assert "No rank stands out" in of_a
    assert "No rank stands out" not in of_b
    assert "slow-a" in of_a and "slow-b" not in of_a
    assert "slow-b" in of_b and "slow-a" not in of_b
