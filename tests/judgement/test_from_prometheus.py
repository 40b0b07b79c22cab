"""Facts out of a real Prometheus: every made-up job gets the verdict that its facts get."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.judgement.from_prometheus import Asker, JobKey
from stagewatch.judgement.judge import judge
from stagewatch.judgement.memory import Moment
from stagewatch.prometheus.api import PrometheusApi
from tests.judgement.cases import CASES, ROLES, ranks_of
from tests.judgement.exported import export
from tests.judgement.made_up import made_up_jobs
from tests.report.filled import Past, filled_prometheus

NOW = time.time() // 100 * 100 - 3600
pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


@cache
def jobs() -> dict[str, list]:  # type: ignore[type-arg]
    """All cases, and some at random."""
    named = {name: case.ranks(name) for name, case in CASES.items()}
    named |= {name: ranks_of(name) for name in ROLES}
    for rank in made_up_jobs(540):
        named.setdefault(rank.job_id, []).append(rank)
    return named


def moments(directory: Path) -> dict[JobKey, Moment]:
    """All jobs at once, as one Prometheus holds them."""
    past = Past(NOW - 120, NOW, step=5.0)
    for ranks in jobs().values():
        export(past, ranks)
    for node in range(3):
        past.add("up", 1.0, job="stagewatch", cluster="c", node=f"n{node}")
    with Children() as children:
        url = filled_prometheus(children, directory / "p", past, lookback="6s")
        with closing(PrometheusApi(url)) as api:
            return Asker(api, recorded=False).moments([("c", name) for name in jobs()], NOW)


def test_every_case_gets_the_verdict_of_its_facts(tmp_path: Path) -> None:
    def told(ranks):  # type: ignore[no-untyped-def]
        return [
            (
                one.role,
                one.stalled,
                one.evidence,
                sorted((charge.rank.rank, charge.evidence) for charge in one.charges),
            )
            for one in judge(ranks)
        ]

    found = {name: told(moment.ranks) for (_, name), moment in moments(tmp_path).items()}
    facts = {
        name: [replace(rank, stack=replace(rank.stack)) for rank in ranks]
        for name, ranks in jobs().items()
    }
    assert found == {name: told(ranks) for name, ranks in facts.items()}
