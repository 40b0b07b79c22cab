"""The judge's collector: one look at all jobs, and the verdicts as series."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

from stagewatch.core.collector import Collector, CollectorSpec
from stagewatch.core.config import address, http_url, one_of, option
from stagewatch.core.context import AgentOptions
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.core.findings import Finding, Findings
from stagewatch.judgement.cases import CASES, Cases
from stagewatch.judgement.from_prometheus import JobKey, Queries, owners
from stagewatch.judgement.hardware import HardwareFault, Proposal, hardware_faults, proposals
from stagewatch.judgement.headline import findings_of
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.limits import Limits
from stagewatch.judgement.memory import State
from stagewatch.judgement.watch import Look, Watch
from stagewatch.prometheus.options import PrometheusOptions
from stagewatch.ranks.wait_class import WaitClass

log = logging.getLogger(__name__)

Target = tuple[dict[str, str], str]

REST = 3.0
"""After a look the judge rests for this many times the duration of the look: a hung job of 65,536
ranks is a million series, which Prometheus should not have to read all the time."""

MOST_STANDING = 1024
JOB = ("cluster", "job_id", "role")
RANK = ("cluster", "node", "job_id", "role", "rank", "stage")

STALLED = Metric(
    "rl_job_stalled", "gauge", "1 while a role of a job is suspected to be stalled.", JOB
)
SINCE = Metric(
    "rl_job_stall_suspected_timestamp_seconds",
    "gauge",
    "Since when a role has been suspected without a break.",
    JOB,
)
CULPRIT = Metric(
    "rl_job_culprit",
    "gauge",
    "1 for each rank that holds a job up, with the evidence, how sure that is, its process and "
    "open stage, and the collective that others wait for it in.",
    (
        *("cluster", "node", "job_id", "role", "rank", "pid", "stage", "group", "op"),
        *("evidence", "confidence"),
    ),
)
UNNAMED = Metric(
    "rl_job_unnamed",
    "gauge",
    "1 while a role is suspected and no rank can be named. `evidence` says what is known instead; "
    "for `outsider`, `process` is the process that the ranks wait for.",
    (*JOB, "evidence", "process"),
)
EXCUSED = Metric(
    "rl_job_excused",
    "gauge",
    "1 while something excuses a role that is in trouble: computing, debugger, long_stage, "
    "other_role, expected, idle or suspended.",
    (*JOB, "excuse"),
)
PAGED = Metric(
    "rl_job_paged",
    "gauge",
    "1 while somebody should be woken: the role has been suspected for 30 s, and silent for longer "
    "than its patience.",
    JOB,
)
PATIENCE = Metric(
    "rl_job_patience_seconds", "gauge", "How long a role may be silent before a page.", JOB
)
SILENT = Metric(
    "rl_job_silent_seconds", "gauge", "How long no rank of a role has made progress.", JOB
)
GPUS = Metric("rl_job_stalled_gpus", "gauge", "GPUs that a stalled role holds.", JOB)
STAGE_BUDGET = Metric(
    "rl_stage_budget_seconds",
    "gauge",
    "How long a stage may go without a mark of progress, once the job has shown its length.",
    (*JOB, "stage"),
)
BUDGET = Metric(
    "rl_rank_budget_seconds",
    "gauge",
    "How long the open stage of a rank of a job in trouble may go without a mark of progress.",
    RANK,
)
OVERDUE = Metric(
    "rl_rank_overdue_seconds",
    "gauge",
    "How long a rank that is beyond its budget has made no progress.",
    RANK,
)
LIMIT = Metric(
    "rl_judge_limit_seconds", "gauge", "A limit of the judge's configuration.", ("limit",)
)
JOBS = Metric(
    "rl_judge_jobs", "gauge", "Jobs in trouble that the last look has judged; absent without one."
)
PROPOSED = Metric(
    "rl_job_proposal",
    "gauge",
    "1 for every rank at fault whose GPU or node has an error of hardware: the judge proposes to "
    "take the node out.",
    ("cluster", "node", "job_id", "role", "rank", "uuid", "witness", "confidence"),
)
BLIND = Metric(
    "rl_judge_blind",
    "gauge",
    "1 while the judge cannot see all it should: `prometheus` (it does not answer), `rules` (their "
    "sums are missing) or `targets` (agents are not scraped any more, so that jobs are seen in "
    "part).",
    ("reason",),
)


@dataclass(frozen=True, slots=True)
class JudgeOptions(Limits, AgentOptions):
    """Options of `stagewatch judge`."""

    listen: tuple[str, int] = option(
        ("127.0.0.1", 9949),
        "address to serve /metrics, /api/v1/jobs/ID and the status page on; :9949 for every "
        "interface",
        parse=address,
    )
    url: str = option(
        "",
        "address at which browsers reach this judge, for the links of alerts to its runbooks; the "
        "name of this machine if empty",
        parse=http_url,
    )
    case_dir: Path = option(CASES, "where the cases of verdicts are kept")
    act: str = option(
        "propose",
        "what to do if the node of a rank at fault has broken hardware: propose (only show the "
        "proposal in the case, in /api/v1/jobs/ID and as a series), comment (also write it at the "
        "node) or drain (take the node out)",
        parse=one_of("propose", "comment", "drain"),
    )


@dataclass(frozen=True, slots=True)
class ServerOptions(PrometheusOptions):
    """The server, and how it is asked."""

    url: str = option(
        "http://127.0.0.1:9090",
        "Prometheus that scrapes the node agents and evaluates the rules",
        parse=http_url,
        flag="--prometheus",
        env="STAGEWATCH_JUDGE_PROMETHEUS",
    )
    timeout: float = option(10.0, "how long one query may take")


@dataclass(slots=True)
class JudgeContext:
    """What the judge's collectors and pages share."""

    options: JudgeOptions
    findings: Findings = field(default_factory=lambda: Findings(fresh_seconds=30.0))
    latest: Look | None = None
    standing: tuple[Proposal, ...] = ()
    """Proposals that have not expired; even if its trouble is over, a job may be restarted."""
    server: ServerOptions | None = None
    """The Prometheus that the collector `judge` asks, for the other collectors."""

    def close(self) -> None:
        """Nothing is shared that must be closed."""


class JudgeCollector(Collector):
    """Judges all jobs again and again."""

    shown_seconds = 60.0  # a look at a job of 65,536 ranks takes a while, and a rest follows

    def __init__(
        self,
        context: JudgeContext,
        watch: Watch,
        cases: Cases,
        clock: Callable[[], float] = time.time,
        targets: Callable[[], Sequence[Target]] = tuple,
        errors: Callable[[float], Sequence[HardwareFault]] = lambda at: (),
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`targets`: labels and URL of the targets of the Prometheus; `errors`: the hardware faults
        at a Unix time."""
        self._context = context
        self._watch = watch
        self._cases = cases
        self._clock = clock
        self._targets = targets
        self._errors = errors
        self._close = close
        self._lacks = ""
        self._shown = Samples()
        self._rested = 0.0
        """When the next look may begin, on the monotonic clock."""

    def collect(self) -> Samples:
        began = time.monotonic()
        if began >= self._rested:
            self._shown = self._look()
            self._rested = began + (1 + REST) * (time.monotonic() - began)
        return self._shown

    def _look(self) -> Samples:
        try:
            look = self._watch.look(self._clock())
        except SourceError as error:
            return self._blind(str(error))
        self._lacks = ""
        self._propose(look)
        for key, job in look.jobs.items():
            if any(state.verdict.stalled or state.verdict.charges for state in job.states):
                self._cases.keep(key, job)
        self._cases.forget_all_but(look.jobs.keys())
        self._context.latest = look
        findings = _findings(look)
        if any(finding.culprits for finding in findings):
            findings = _linked(findings, look, _pages(self._targets()))
        self._context.findings.replace(findings)
        return samples(look, self._context.options)

    def close(self) -> None:
        self._close()

    def _propose(self, look: Look) -> None:
        """Add proposals to jobs with a charge, unless the judge is blind."""
        charged = any(state.verdict.charges for job in look.jobs.values() for state in job.states)
        errors: Sequence[HardwareFault] = ()
        if look.blind or not charged:
            return
        with contextlib.suppress(SourceError):  # the verdict stands without
            errors = self._errors(look.time)
        for key, job in look.jobs.items():
            job.proposals = proposals(key, job.states, errors, look.time)
        made = [one for job in look.jobs.values() for one in job.proposals]
        old = [one for one in self._context.standing if one.until > look.time]
        by_rank = {(one.cluster, one.job_id, one.role, one.rank): one for one in (*old, *made)}
        self._context.standing = tuple(by_rank.values())[-MOST_STANDING:]

    def _blind(self, why: str) -> Samples:
        """The samples while Prometheus does not answer; the reason is logged once."""
        if why != self._lacks:
            log.warning("%s; no job is judged", why)
        self._lacks = why
        headline = "No job is judged: Prometheus does not answer."
        self._context.findings.replace([Finding("", "", headline, why)])
        out = Samples()
        out.add(BLIND, 1, "prometheus")
        return out


def samples(look: Look, limits: Limits) -> Samples:
    """The verdicts of a look as samples."""
    out = Samples()
    out.add(JOBS, len(look.jobs))
    for item in fields(Limits):
        out.add(LIMIT, getattr(limits, item.name), item.name.removesuffix("_seconds"))
    for reason in look.blind:
        out.add(BLIND, 1, reason)
    for (((cluster, job_id), role), stage), seconds in look.budgets.items():
        out.add(STAGE_BUDGET, seconds, cluster, job_id, role, stage)
    for (cluster, job_id), job in look.jobs.items():
        for state in job.states:
            _role(out, (cluster, job_id, state.verdict.role), state)
        for one in job.proposals:
            where = cluster, one.node, job_id, one.role, one.rank, one.uuid
            out.add(PROPOSED, 1, *where, one.witness, one.confidence)
    return out


def _role(out: Samples, key: tuple[str, str, str], state: State) -> None:
    verdict = state.verdict
    cluster, job_id, role = key
    for rank in verdict.case.live:
        where = cluster, rank.node, job_id, role, rank.rank, rank.stage or ""
        out.add(BUDGET, rank.budget_seconds, *where)
        if rank.overdue:
            out.add(OVERDUE, rank.progress_age_seconds, *where)
    for charge in verdict.charges:
        rank = charge.rank
        out.add(
            CULPRIT,
            1,
            *(cluster, rank.node, job_id, role, rank.rank, rank.pid or "", rank.stage or ""),
            *(charge.group, charge.op, charge.evidence, charge.confidence),
        )
    if verdict.excuse and not verdict.stalled:
        out.add(EXCUSED, 1, *key, verdict.excuse.kind)
    if state.silent_seconds is not None:
        out.add(SILENT, state.silent_seconds, *key)
        out.add(PATIENCE, state.patience_seconds, *key)
    if not verdict.stalled:
        return
    out.add(STALLED, 1, *key)
    out.add(SINCE, state.since, *key)
    out.add(GPUS, state.gpus, *key)
    if not verdict.charges and verdict.evidence:
        awaited = sorted({wait.outsider for wait in verdict.case.outside} - {""})
        process = awaited[0] if awaited and verdict.evidence == "outsider" else ""
        out.add(UNNAMED, 1, *key, _unnamed(verdict), process)
    if state.paged:
        out.add(PAGED, 1, *key)


def _unnamed(verdict: Verdict) -> str:
    """Why nobody is named; outside of collectives, how all ranks wait says more than
    `group_only`."""
    if verdict.evidence != "group_only" or any(rank.inside for rank in verdict.case.live):
        return verdict.evidence
    classes = {rank.wait_class for rank in verdict.case.live}
    if classes == {WaitClass.PARKED}:
        return "asleep"
    return "busy" if classes <= {WaitClass.COMPUTE, WaitClass.SPIN} else verdict.evidence


def _findings(look: Look) -> list[Finding]:
    """The findings on jobs that hang or have a charge, for the status page."""
    found: list[Finding] = []
    for job in look.jobs.values():
        verdicts = [state.verdict for state in job.states]
        if any(one.stalled or one.charges for one in verdicts):
            here = findings_of(verdicts, [rank for one in verdicts for rank in one.ranks])
            found += [_with_proposals(finding, job.proposals) for finding in here]
    return found


def _with_proposals(finding: Finding, made: Sequence[Proposal]) -> Finding:
    """The finding with the proposals against nodes of its culprits in its sentence."""
    words = [
        f"; proposed to take {one.node} out ({one.confidence}): {one.why}"
        for one in made
        if (one.job_id, one.role, str(one.rank)) in finding.culprits
    ]
    return replace(finding, sentence=finding.sentence + "".join(words[:4]))


def _linked(findings: Sequence[Finding], look: Look, pages: Mapping[str, str]) -> list[Finding]:
    """The findings with links to the status pages of the culprits' nodes."""
    nodes: dict[tuple[str, str], set[str]] = {}
    for job in look.jobs.values():
        for state in job.states:
            key = state.verdict.job_id, state.verdict.role
            nodes.setdefault(key, set()).update(rank.node for rank in state.verdict.culprits)
    return [
        replace(
            finding,
            links=tuple(
                (node, pages[node])
                for node in sorted(nodes.get((finding.job_id, finding.role), ()))
                if node in pages
            ),
        )
        for finding in findings
    ]


def _pages(targets: Sequence[Target]) -> dict[str, str]:
    """URL of the status page of each node agent, by node."""
    return {
        labels["node"]: f"{parts.scheme}://{parts.netloc}/"
        for labels, url in targets
        if labels.get("job") == "stagewatch" and labels.get("node")
        if (parts := urlsplit(url)).scheme in ("http", "https")
    }


def _owner(api: Queries, key: JobKey) -> str:
    """The user of a job, or empty."""
    with contextlib.suppress(SourceError):
        return owners(api, [key]).get(key, "")
    return ""


def _build(options: ServerOptions, context: JudgeContext) -> JudgeCollector:
    from stagewatch.prometheus.api import PrometheusApi

    context.server = options
    api = PrometheusApi.of(options)
    return JudgeCollector(
        context,
        Watch(api, context.options),
        Cases(context.options.case_dir, context.options, owner=lambda key: _owner(api, key)),
        targets=api.targets,
        errors=lambda at: hardware_faults(api, at),
        close=api.close,
    )


SPEC = CollectorSpec(
    name="judge",
    page="verdicts",
    help="which jobs of a Prometheus hang, and who is at fault",
    interval=5,
    options=ServerOptions,
    build=_build,
)
