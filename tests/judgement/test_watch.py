"""The judge over a real Prometheus: which jobs it looks at, what it exports, and when restarted."""

from __future__ import annotations

import dataclasses
import errno
import json
import multiprocessing
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Samples
from stagewatch.core.processes import Children
from stagewatch.judgement import case_file
from stagewatch.judgement.cases import Cases
from stagewatch.judgement.collector import (
    BLIND,
    BUDGET,
    CULPRIT,
    EXCUSED,
    JOBS,
    LIMIT,
    PAGED,
    PATIENCE,
    STAGE_BUDGET,
    STALLED,
    UNNAMED,
    JudgeCollector,
    JudgeContext,
    JudgeOptions,
    samples,
)
from stagewatch.judgement.facts import Inside
from stagewatch.judgement.from_prometheus import owners
from stagewatch.judgement.limits import DEFAULT
from stagewatch.judgement.service import COMMAND
from stagewatch.judgement.watch import Look, Watch
from stagewatch.prometheus.api import PrometheusApi, Series
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.cases import BARE_LEFT, BARE_STILL, SPIN, UNTOLD
from tests.judgement.exported import export
from tests.judgement.jobs import LEFT, PARKED, SPINNING, job
from tests.report.filled import Past, filled_prometheus

NOW = time.time() // 100 * 100 - 3600
WORKS: dict[str, Any] = {"progress_age_seconds": 1.0, "wait_class": WaitClass.COMPUTE}
HUNG = SPINNING | {"progress_age_seconds": 90.0, "inside": {"world": Inside("all_reduce", 88.0)}}
GONE = {"wait_class": WaitClass.GONE}
SUMS = {
    "job_role_stage:rl_progress_gaps:count": 900.0,
    "job_role_stage:rl_progress_gap_seconds:p99": 3.96,
    "job_role_stage:rl_progress_gap_longest:seconds": 4.0,
    "job_role_stage:rl_progress_gap_recent:seconds": 4.0,
}

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


def past(*names: str, rules: bool = True) -> Past:
    """Jobs that began long ago; agents of ten nodes."""
    all_jobs = {
        "hangs": job(8, HUNG, job_id="hangs", rank_5=LEFT | {"progress_age_seconds": 90.0}),
        "alike": job(4, HUNG, job_id="alike"),
        "well": job(4, WORKS, job_id="well"),
        "lost-one": job(4, WORKS, job_id="lost-one", rank_1=GONE),
        "over": job(4, GONE | {"progress_age_seconds": 90.0}, job_id="over"),
        "announced": job(2, WORKS | {"expected_seconds": 300.0}, job_id="announced"),
        "asleep": job(2, PARKED | {"progress_age_seconds": 90.0}, job_id="asleep"),
        "sits": job(2, WORKS | {"progress_age_seconds": 11.0}, job_id="sits"),
    }
    made = Past(NOW - 200, NOW, step=5.0)
    for name in names or all_jobs:
        export(made, all_jobs[name])
        for record, value in SUMS.items() if rules else ():
            made.add(record, value, cluster="c", job_id=name, role="train", stage="train")
    for node in range(10):
        made.add("up", 1.0, job="stagewatch", cluster="c", node=f"n{node}")
    return made


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusApi]:
    with Children() as children:
        url = filled_prometheus(children, tmp_path_factory.mktemp("p") / "p", past(), lookback="6s")
        api = PrometheusApi(url)
        yield api
        api.close()


class Counting:
    """Counts the samples that a server answers with."""

    def __init__(self, api: PrometheusApi) -> None:
        self._api = api
        self.jobs: set[str] = set()

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        found = self._api.query(expression, at)
        if "rl_rank_info" in expression:
            self.jobs |= {one.labels["job_id"] for one in found}
        return found


@pytest.fixture(scope="module")
def look(api: PrometheusApi) -> tuple[Look, set[str]]:
    """What a judge sees of all jobs at first, and the jobs that it has looked at."""
    counting = Counting(api)
    return Watch(counting).look(NOW), counting.jobs


def exported(api: PrometheusApi) -> Samples:
    return samples(Watch(api).look(NOW), DEFAULT)


def labels(out: Samples, metric: Any, *names: str) -> set[tuple[str, ...]]:
    places = [metric.labels.index(name) for name in names]
    return {tuple(one[place] for place in places) for one in out.families.get(metric, {})}


def test_only_jobs_in_trouble_are_looked_at(look: tuple[Look, set[str]]) -> None:
    jobs = {key[1] for key in look[0].jobs}
    assert jobs == {"hangs", "alike", "lost-one", "announced", "asleep"} == look[1]


def test_a_job_that_tells_nothing_is_looked_at_once_it_stands_still_and_misses_a_rank_or_for_long(
    tmp_path: Path,
) -> None:
    world = {"world_size": 4}
    jobs = {
        "awaits-half": job(2, UNTOLD | world),
        "lost-one-without-a-record": job(4, BARE_STILL, rank_1=BARE_LEFT),
        "begins": job(2, UNTOLD | world | {"progress_age_seconds": 59.0}),
        "one-loads": job(2, UNTOLD | world, rank_1={"progress_age_seconds": 2.0}),
        "serves": job(4, UNTOLD | world),
        "without-records": job(4, BARE_STILL | SPIN, rank_3=PARKED),
        "without-records-and-young": job(4, BARE_STILL | SPIN | {"progress_age_seconds": 299.0}),
    }
    made = Past(NOW - 200, NOW, step=5.0)
    for name, ranks in jobs.items():
        export(made, [dataclasses.replace(rank, job_id=name) for rank in ranks])
    for node in range(3):
        made.add("up", 1.0, job="stagewatch", cluster="c", node=f"n{node}")
    with Children() as children:
        api = PrometheusApi(filled_prometheus(children, tmp_path / "p", made, lookback="6s"))
        look = Watch(api).look(NOW)
        api.close()
    states = {key[1]: state for key, judged in look.jobs.items() for state in judged.states}
    assert {name: state.verdict.evidence for name, state in states.items()} == {
        "awaits-half": "not_started",
        "lost-one-without-a-record": "missing",
        "without-records": "waits_unlike",
    }
    patience = {name: state.patience_seconds for name, state in states.items()}
    assert patience == {
        "awaits-half": 1800.0,
        "lost-one-without-a-record": None,
        "without-records": None,
    }


def test_who_is_at_fault_is_exported_with_how_sure_that_is(look: tuple[Look, set[str]]) -> None:
    out = samples(look[0], DEFAULT)
    assert out.value(JOBS) == 5
    assert labels(out, STALLED, "cluster", "job_id", "role") == {
        ("c", name, "train") for name in ("hangs", "alike", "asleep")
    }
    assert labels(
        out, CULPRIT, "job_id", "node", "rank", "pid", "evidence", "op", "confidence"
    ) == {
        ("hangs", "n2", "5", "4005", "left_loop_early", "all_reduce", "sure"),
        ("lost-one", "n1", "1", "4001", "process_gone", "", "sure"),
    }
    assert labels(out, UNNAMED, "job_id", "evidence") == {
        ("alike", "group_only"),
        ("asleep", "asleep"),
    }
    assert labels(out, EXCUSED, "job_id", "excuse") == {("announced", "expected")}
    assert labels(out, PAGED, "job_id") == {("hangs",), ("alike",)}
    assert out.value(PATIENCE, "c", "hangs", "train") == 60.0
    assert out.value(BUDGET, "c", "n0", "hangs", "train", 0, "train") == pytest.approx(11.88)
    assert out.value(STAGE_BUDGET, "c", "well", "train", "train") == pytest.approx(11.88)
    assert out.value(LIMIT, "untaught_busy") == 600.0
    assert BLIND not in out.families


def test_a_second_judge_says_what_the_first_one_says(
    api: PrometheusApi, look: tuple[Look, set[str]]
) -> None:
    first = Watch(api)
    for seconds in range(60, 0, -5):
        first.look(NOW - seconds)
    one, later = samples(first.look(NOW), DEFAULT), samples(look[0], DEFAULT)
    assert one.families.keys() == later.families.keys()
    assert labels(one, CULPRIT, *CULPRIT.labels) == labels(later, CULPRIT, *CULPRIT.labels)


def test_without_the_rules_jobs_are_judged_by_their_own_series_and_it_is_told(
    children: Children, tmp_path: Path
) -> None:
    made = past("hangs", "well", rules=False)
    del made.series["job:rl_ranks_live:count"]
    api = PrometheusApi(filled_prometheus(children, tmp_path / "p", made, lookback="6s"))
    out = exported(api)
    api.close()
    assert labels(out, CULPRIT, "job_id", "rank") == {("hangs", "5")}
    assert labels(out, BLIND, "reason") == {("rules",)}


@pytest.mark.parametrize(("down", "evidence"), [(1, {"node_lost"}), (4, set())])
def test_a_node_is_lost_but_not_a_part_of_all_targets(
    children: Children, tmp_path: Path, down: int, evidence: set[str]
) -> None:
    """One of ten agents does not answer any more; or four are in no list of targets any more, as
    where another Prometheus has taken them over: then nobody is named for that."""
    made = Past(NOW - 200, NOW, step=5.0)
    ranks = job(3, HUNG, job_id="7")
    left = [
        dataclasses.replace(
            rank,
            wait_class=WaitClass.GONE if rank.rank == 2 else rank.wait_class,
            left_seconds=60.0 if rank.rank == 2 else None,
            world_size=3,
            inside={},
            collectives={},
        )
        for rank in ranks
    ]
    export(made, left)
    for node in range(10):
        until = NOW - 60 if 2 <= node < 2 + down else NOW
        lost = 0.0 if down == 1 else None
        made.add(
            "up",
            lambda when, until=until, lost=lost: 1.0 if when <= until else lost,
            job="stagewatch",
            cluster="c",
            node=f"n{node}",
        )
    for record, value in SUMS.items():
        made.add(record, value, cluster="c", job_id="7", role="train", stage="train")
    api = PrometheusApi(filled_prometheus(children, tmp_path / "p", made, lookback="6s"))
    out = exported(api)
    api.close()
    assert {one for (one,) in labels(out, CULPRIT, "evidence")} == evidence
    assert labels(out, BLIND, "reason") == ({("targets",)} if down == 4 else set())


def test_the_case_of_a_verdict_is_kept_and_served(api: PrometheusApi, tmp_path: Path) -> None:
    context = JudgeContext(JudgeOptions(case_dir=tmp_path / "cases"))
    collector = JudgeCollector(
        context, Watch(api), Cases(tmp_path / "cases", DEFAULT), clock=lambda: NOW
    )
    for _ in range(2):
        collector.collect()
    collector.close()
    files = sorted((tmp_path / "cases").iterdir())
    assert len(files) == 4  # three that hang, and one that has lost a rank
    (file,) = [one for one in files if "hangs" in one.name]
    (state,) = case_file.read(file).states()
    assert [charge.rank.rank for charge in state.verdict.charges] == [5]
    page = COMMAND.lookups(context)["/api/v1/jobs/"]
    found = page("hangs")
    assert found is not None
    (case,) = json.loads(found[1])["cases"]
    assert case["answer"][0]["culprits"][0]["evidence"] == "left_loop_early"
    assert page("nosuch") is None
    (finding, *_) = [one for one in context.findings.latest() or () if one.job_id == "hangs"]
    assert "rank 5 left the loop early" in finding.headline


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")
def test_the_owner_of_a_job_may_read_its_case_and_other_users_may_not(
    look: tuple[Look, set[str]],
) -> None:
    """The judge is a user without privileges, as under its unit."""
    judge, owner, other = (pwd.getpwnam(name) for name in ("nobody", "daemon", "bin"))
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        directory = Path(parent) / "cases"
        directory.mkdir()
        os.chown(directory, judge.pw_uid, judge.pw_gid)

        def keep() -> None:
            os.setgroups([])
            os.setgid(judge.pw_gid)
            os.setuid(judge.pw_uid)
            os.umask(0o077)
            users = {("c", "hangs"): owner.pw_name, ("c", "alike"): "no such user"}
            cases = Cases(directory, DEFAULT, owner=lambda key: users.get(key, ""))
            for key in users:
                cases.keep(key, look[0].jobs[key])

        kept = multiprocessing.get_context("fork").Process(target=keep)
        kept.start()
        kept.join()
        files = {file: file.name.split("-")[1] for file in directory.iterdir()}
        assert set(files.values()) == {"hangs", "alike"}

        def reads(file: Path, uid: int, gid: int) -> bool:
            command = ["cat", str(file)]
            return not subprocess.run(
                command, user=uid, group=gid, extra_groups=[], capture_output=True, check=False
            ).returncode

        try:
            os.getxattr(next(f for f in files if files[f] == "hangs"), "system.posix_acl_access")
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            pytest.skip(f"{directory} takes no ACL: {error.strerror}")
        for file, job_id in files.items():
            assert reads(file, owner.pw_uid, owner.pw_gid) == (job_id == "hangs")
            assert reads(file, other.pw_uid, judge.pw_gid)  # of the judge's group
            assert not reads(file, other.pw_uid, other.pw_gid)


def test_the_owner_is_who_the_slurm_agent_says(tmp_path: Path) -> None:
    made = Past(NOW - 100, NOW, step=5.0)
    made.add("job:slurm_owner:info", 1.0, cluster="c", job_id="7", user="ada", account="a")
    made.add("job:slurm_owner:info", 1.0, cluster="d", job_id="7", user="bob", account="a")
    with Children() as children:
        api = PrometheusApi(filled_prometheus(children, tmp_path / "p", made))
        assert owners(api, [("c", "7"), ("c", "8")], NOW) == {("c", "7"): "ada"}
        api.close()


def test_a_prometheus_that_is_away_is_told_on_the_page_and_by_a_series(tmp_path: Path) -> None:
    context = JudgeContext(JudgeOptions(case_dir=tmp_path))
    away = PrometheusApi("http://127.0.0.1:9")
    collector = JudgeCollector(context, Watch(away), Cases(tmp_path, DEFAULT))
    assert labels(collector.collect(), BLIND, "reason") == {("prometheus",)}
    (finding,) = context.findings.latest() or ()
    assert finding.headline == "No job is judged: Prometheus does not answer."
    away.close()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"version": 2}', b"\x1f\x8bno"]
    + [
        json.dumps(
            {"version": 1, "cluster": "", "job_id": "7", "moments": [{"time": 1, **more}]}
        ).encode()
        for more in (
            {"shown": {}, "ranks": [{"rank": -1}]},
            {"shown": {}, "ranks": [{"rank": 1, "wait_class": "dances"}]},
            {"shown": {"train": {"train": [1]}}, "ranks": []},
        )
    ],
)
def test_a_file_that_is_no_case_is_an_error_with_its_name(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "case.json"
    file.write_bytes(content)
    with pytest.raises(SourceError, match=r"case\.json"):
        case_file.read(file)
