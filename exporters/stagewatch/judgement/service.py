"""`stagewatch judge`: asks a Prometheus which jobs are in trouble, and says who holds them up."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from stagewatch import runbooks
from stagewatch.act import collector as act
from stagewatch.act import forms, owner
from stagewatch.agent import AgentCommand
from stagewatch.core.collector import CollectorSpec
from stagewatch.core.context import Lookup, Route
from stagewatch.core.errors import NoData
from stagewatch.judgement import collector, slowness
from stagewatch.judgement.cases import case_of
from stagewatch.judgement.collector import JudgeContext, JudgeOptions

JSON = "application/json"


def _specs() -> tuple[CollectorSpec[JudgeContext], ...]:
    return collector.SPEC, slowness.SPEC, act.SPEC, owner.SPEC, runbooks.SPEC


def _jobs(context: JudgeContext) -> tuple[str, bytes]:
    """The page with all jobs in trouble."""
    if context.latest is None:
        raise NoData("no look has succeeded yet")
    jobs = [{"cluster": cluster, "job_id": job_id} for cluster, job_id in context.latest.jobs]
    return JSON, json.dumps({"time": context.latest.time, "jobs": jobs}).encode()


def _routes(context: JudgeContext) -> Mapping[str, Route]:
    return {"/api/v1/jobs": lambda: _jobs(context), runbooks.PATH: runbooks.index}


def _lookups(context: JudgeContext) -> Mapping[str, Lookup]:
    def case(job_id: str) -> tuple[str, bytes] | None:
        jobs = context.latest.jobs if context.latest else {}
        found = [
            case_of(key, job, context.options) for key, job in jobs.items() if key[1] == job_id
        ]
        return (JSON, json.dumps({"cases": found}).encode()) if found else None

    def node(name: str) -> tuple[str, bytes]:
        """Whether there is a proposal to take the node out, in the format of NVRx."""
        mine = [one for one in context.standing if one.node == name]
        return JSON, json.dumps(forms.nvrx(mine, time.time())).encode()

    return {"/api/v1/jobs/": case, "/api/v1/nodes/": node, runbooks.PATH: runbooks.page}


COMMAND = AgentCommand(
    name="judge",
    help="The judge of a cluster's jobs: asks a Prometheus every few seconds which jobs are in "
    "trouble, and serves who holds them up, as /metrics, a page and JSON.",
    options=JudgeOptions,
    specs=_specs,
    context=JudgeContext,
    routes=_routes,
    lookups=_lookups,
    judged=lambda context: context.findings.latest,
    env="STAGEWATCH_JUDGE_",
)
