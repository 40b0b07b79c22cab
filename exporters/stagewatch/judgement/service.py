"""`stagewatch judge`: asks a Prometheus which jobs are in trouble, and says who holds them up."""

from __future__ import annotations

import json
from collections.abc import Mapping

from stagewatch.agent import AgentCommand
from stagewatch.core.collector import AnySpec
from stagewatch.core.context import Lookup, Route
from stagewatch.core.errors import NoData
from stagewatch.judgement import collector, slowness
from stagewatch.judgement.collector import JudgeContext, JudgeOptions, case_of
from stagewatch.web.facts import PageSources

JSON = "application/json"


def _specs() -> tuple[AnySpec[JudgeContext], ...]:
    return collector.SPEC, slowness.SPEC


def _jobs(context: JudgeContext) -> tuple[str, bytes]:
    """All jobs in trouble, by cluster and name."""
    if context.latest is None:
        raise NoData("no look has succeeded yet")
    jobs = [{"cluster": cluster, "job_id": job_id} for cluster, job_id in context.latest.jobs]
    return JSON, json.dumps({"time": context.latest.time, "jobs": jobs}).encode()


def _routes(context: JudgeContext) -> Mapping[str, Route]:
    return {"/api/v1/jobs": lambda: _jobs(context)}


def _lookups(context: JudgeContext) -> Mapping[str, Lookup]:
    def case(job_id: str) -> tuple[str, bytes] | None:
        jobs = context.latest.jobs if context.latest else {}
        found = [
            case_of(key, job, context.options) for key, job in jobs.items() if key[1] == job_id
        ]
        return (JSON, json.dumps({"cases": found}).encode()) if found else None

    return {"/api/v1/jobs/": case}


COMMAND = AgentCommand(
    name="judge",
    help="The judge of a cluster's jobs: asks a Prometheus every few seconds which jobs are in "
    "trouble, and serves who holds them up as /metrics, as a page and as JSON.",
    options=JudgeOptions,
    specs=_specs,
    context=JudgeContext,
    routes=_routes,
    lookups=_lookups,
    sources=lambda context: PageSources(findings=context.findings.latest),
    env="STAGEWATCH_JUDGE_",
)
