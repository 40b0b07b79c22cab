"""The story of a whole job, from a real Prometheus that holds what agents and rules told of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pytest

from stagewatch.cli import main
from stagewatch.core.errors import StagewatchError
from stagewatch.core.processes import Children
from stagewatch.inspect.story import Story, tell
from stagewatch.judgement.facts import Inside
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.cases import BARE_LEFT, BARE_STILL
from tests.judgement.exported import export
from tests.judgement.jobs import LEFT, PARKED, SPINNING, job
from tests.report.filled import Past, filled_prometheus
from tests.running import run_stagewatch

NOW = time.time() // 100 * 100 - 3600
WORKS: dict[str, Any] = {"progress_age_seconds": 1.0, "wait_class": WaitClass.COMPUTE}
IDLE: dict[str, Any] = PARKED | {"stage": "idle", "progress_age_seconds": 180.0}
RAISED: dict[str, Any] = {
    "first_failure": "RuntimeError in train",
    "first_failure_age_seconds": 180.0,
}
HOSTILE = 'a"b\\c\n{0}\u202e'
HUNG = SPINNING | {"progress_age_seconds": 90.0, "inside": {"world": Inside("all_reduce", 88.0)}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that knows many jobs."""
    past = Past(NOW - 120, NOW, step=5.0)
    export(past, job(8, HUNG, job_id="hangs", rank_5=LEFT | {"progress_age_seconds": 90.0}))
    export(past, job(4, WORKS, job_id="slow"))
    slow = {"cluster": "c", "job_id": "slow", "role": "train"}
    past.add("rank:rl_slow:ratio", 1.5, **slow, rank=1, node="n1", peers="")
    past.add("rank:rl_slow_witness:ratio", 0.3, **slow, rank=1, node="n1", witness="cpu_limit")
    past.add("job_role:rl_slow_job_told:ratio", 1.5, **slow, beside="best_hours")
    past.add("job_role:rl_step_time:seconds", 15.0, **slow)
    export(past, job(2, WORKS, job_id="well"))
    export(past, job(3, IDLE | RAISED, job_id="raised"))
    export(past, job(2, HUNG, job_id="twice"), cluster="a")
    export(past, job(4, WORKS, job_id="twice"), cluster="b")
    for cluster in ("a", "b"):
        marker = {"id": cluster, "fault_type": f"slow-{cluster}", "target_worker": "1"}
        past.add("fault_injection_active", 1.0, cluster=cluster, node="n1", **marker)
    hands_over = {"stage": "weights_update", "substage": "", "behind": True}
    roles = job(4, PARKED | {"inside": {}, "collectives": {}}, job_id="behind", rank_3=hands_over)
    export(past, roles)
    for rank in range(2):
        bare = {"cluster": "c", "job_id": "bare", "role": "", "rank": rank, "node": "n1"}
        past.add("rl_rank_still_seconds", 400.0, **bare)
    export(past, job(4, BARE_STILL, job_id="lost-one", role="unknown", rank_1=BARE_LEFT))
    hostile = {"job_id": HOSTILE, "role": 'tr"ain', "rank": 0, "node": "n\u202e1"}
    past.add("rl_rank_up", 1.0, **hostile)
    past.add("rl_rank_progress_age_seconds", 1.0, **hostile)
    past.add("job:rl_wasted_gpu_seconds:total", 640.0, cluster="c", job_id="hangs", role="train")
    with Children() as children:
        yield filled_prometheus(children, tmp_path_factory.mktemp("p") / "p", past, lookback="6s")


@pytest.fixture
def api(url: str) -> Iterator[PrometheusApi]:
    api = PrometheusApi(url)
    yield api
    api.close()


def text(story: Story) -> str:
    return "\n".join(story.sentences)


def test_who_holds_a_job_up_is_told_first_with_node_and_evidence(api: PrometheusApi) -> None:
    story = tell(api, "hangs", NOW)
    assert story.wrong
    assert story.sentences[0] == (
        "Job hangs: rank 5 (pid 4005 on n2) holds up the job: parked for 1 min 30 s at step 220; "
        "it left the loop early; 7 ranks wait for it, spinning, in all_reduce of world."
    )
    assert (
        "train: 8 ranks on n0, n1, n2: 7 spin in train, 1 is parked in cleanup." in story.sentences
    )
    assert story.sentences[-1] == "Wasted so far: 10 min 40 s of its ranks' time."
    ((case, states),) = story.cases
    assert len(case.moments) == 5
    assert [state.paged for state in states] == [True]


def test_a_job_in_progress_is_not_wrong(api: PrometheusApi) -> None:
    story = tell(api, "well", NOW)
    assert not story.wrong
    assert "in progress at step 220" in story.sentences[0]


def test_slow_ranks_and_slow_jobs_are_told_of(api: PrometheusApi) -> None:
    story = tell(api, "slow", NOW)
    assert story.wrong
    assert story.sentences[0].startswith("Slow: rank 1 on n1 works 1.50 times as long as its peers")
    assert story.sentences[1].startswith("Slow as a whole: over the last hour a step of train")


def test_ranks_that_all_raised_have_stopped(api: PrometheusApi) -> None:
    story = tell(api, "raised", NOW)
    assert story.wrong
    assert "stopped at step 220: 3 of 3 ranks raised an exception" in story.sentences[0]


def test_each_clusters_job_has_a_story_of_its_own(api: PrometheusApi) -> None:
    told = text(tell(api, "twice", NOW))
    of_a, of_b = told.split("In cluster b:")
    assert of_a.startswith("In cluster a:")
    assert "2 ranks spin" in of_a and "in progress at step" in of_b
    assert "slow-a" in of_a and "slow-b" not in of_a
    assert "slow-b" in of_b and "slow-a" not in of_b


def test_a_rank_that_its_peers_have_left_behind_is_named_where_nothing_else_is(
    api: PrometheusApi,
) -> None:
    told = text(tell(api, "behind", NOW))
    assert "rank 3 (pid 4003 on n0)" in told


def test_who_has_gone_of_a_job_without_records_is_named(api: PrometheusApi) -> None:
    story = tell(api, "lost-one", NOW)
    assert story.wrong
    assert "3 ranks are parked; rank 1 left 1 min ago, and they may wait for that" in text(story)


def test_a_job_without_records_is_told_of_as_far_as_it_can_be(api: PrometheusApi) -> None:
    assert tell(api, "bare", NOW).sentences == (
        "Job bare: 2 ranks on n1 keep no stage record, so progress cannot be judged; none was "
        "at work for 6 min 40 s.",
    )


def test_a_job_that_nobody_knows_is_an_error(api: PrometheusApi) -> None:
    with pytest.raises(StagewatchError, match="shows a rank of job nosuch"):
        tell(api, "nosuch", NOW)


inspect = partial(run_stagewatch, "inspect", "--prometheus")


def test_the_past_is_judged_by_its_time_and_written_as_a_case(url: str) -> None:
    when = datetime.fromtimestamp(NOW, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    done = inspect(url, "hangs", "--at", when, "--json")
    assert done.returncode == 3, done.stderr
    (case,) = json.loads(done.stdout)["cases"]
    assert case["answer"][0]["culprits"][0]["rank"] == 5
    assert [moment["time"] for moment in case["moments"]][-1] == NOW


def test_the_story_of_a_job_with_a_hostile_id_is_told_in_printable_text(url: str) -> None:
    done = inspect(url, "--at", str(NOW), "--job", HOSTILE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('Job a"b\\c?{0}?: in progress')
    assert '\ntr"ain: 1 rank on n?1' in done.stdout


def test_an_id_that_is_not_utf_8_is_of_no_job_there(url: str) -> None:
    done = inspect(url, "--job", os.fsdecode(b"job-\xff"))
    assert "Traceback" not in done.stderr
    assert "shows a rank of job job-" in done.stderr
    assert done.returncode == 1


def test_a_time_without_a_server_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--at", "12"]) == 2
    assert "--at needs --prometheus: a node shows the present alone" in capsys.readouterr().err
