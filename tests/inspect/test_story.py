"""The story of a whole job, from a real Prometheus that holds what the rules said of it."""

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
JOB = "7"
BEHIND = {"job_id": JOB, "role": "train", "rank": "3", "node": "n2", "stage": "weights_update"}

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


@pytest.fixture
def story(children: Children, tmp_path: Path) -> Iterator[Story]:
    """As told of two roles that hang, since one train rank does not bring its weights."""
    past = Past(NOW - 60, NOW)
    for role, ranks in (("train", 4), ("rollout", 2)):
        for rank in range(ranks):
            who = {"job_id": JOB, "role": role, "rank": rank, "node": f"n{1 + rank // 2}"}
            past.add("rl_rank_up", lambda when: 1.0, **who)
            past.add("rl_rank_progress_age_seconds", lambda when: 90.0, **who)
        for verdict in ("job:rl_stall:active", "job:rl_stall:group_only"):
            past.add(verdict, lambda when: 1.0, job_id=JOB, role=role)
    past.add("rank:rl_straggler:ratio", lambda when: 80.0, **BEHIND)
    past.add(
        "rank:rl_stall:stage_behind",
        lambda when: 1.0,
        **BEHIND,
        pid=103,
        evidence="stage_behind",
    )
    for node, frame in (("n1", "loop.py:80 in wait"), ("n2", "sync.py:25 in send_weights")):
        whose = {**BEHIND, "node": node, "frame": frame}
        del whose["stage"]
        past.add("rl_rank_stack_frame_info", lambda when: 1.0, **whose)
    api = PrometheusApi(filled_prometheus(children, tmp_path / "p", past))
    yield tell(Then(api, NOW), JOB, NOW)
    api.close()


def test_a_rank_that_its_peers_have_left_behind_is_told_of_in_plain_words(story: Story) -> None:
    assert story.wrong
    assert (
        "Culprit: rank 3 (train), pid 103 on n2, in weights_update at sync.py:25 in send_weights: "
        "its peers have completed "
        "that stage, and the job waits for it (stage_behind)."
    ) in story.sentences


def test_roles_that_wait_for_it_are_not_said_to_hang_for_no_reason(story: Story) -> None:
    heads = [each for each in story.sentences if ": no progress since" in each]
    assert len(heads) == 2
    assert not [each for each in story.sentences if each.startswith("No rank stands out")]


def test_a_job_that_goes_on_slowly_is_told_with_its_slow_rank_and_as_a_whole(
    children: Children, tmp_path: Path
) -> None:
    past = Past(NOW - 60, NOW)
    for job, rank in ((JOB, 0), (JOB, 1), ("8", 0)):
        who = {"job_id": job, "role": "train", "rank": rank, "node": "n1"}
        past.add("rl_rank_up", 1.0, **who)
        past.add("rl_rank_progress_age_seconds", 1.0, **who)
    slow = {"job_id": JOB, "role": "train", "rank": 1, "node": "n1"}
    past.add("rank:rl_slow:ratio", 1.5, **slow, peers="")
    past.add("rank:rl_slow_witness:ratio", 0.3, **slow, witness="cpu_limit")
    whole = {"job_id": JOB, "role": "train"}
    past.add("job_role:rl_slow_job_told:ratio", 1.5, **whole, beside="best_hours")
    past.add("job_role:rl_step_time:seconds", 15.0, **whole)
    api = PrometheusApi(filled_prometheus(children, tmp_path / "p", past))
    told, other = (tell(Then(api, NOW), job, NOW) for job in (JOB, "8"))
    api.close()
    assert told.sentences[:2] == (
        "Slow: rank 1 on n1 works 1.50 times as long as its peers: a CPU limit stops it 30% of "
        "the time.",
        "Slow as a whole: over the last hour a step of train took 15 s, 1.50 times as long as in "
        "its best hours of the last day; no one stage has most of what it has grown by.",
    )
    assert (told.wrong, other.wrong) == (True, False)
