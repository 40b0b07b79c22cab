"""Slow ranks and slow jobs as series of the judge."""

from __future__ import annotations

import time
from collections.abc import Callable

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import ConfigError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.judgement.collector import JOB, JudgeContext
from stagewatch.judgement.slow import Rank
from stagewatch.judgement.slow_jobs import JobsLook, JobsWatch
from stagewatch.judgement.slow_watch import SlowLook, SlowRank, SlowWatch

RANK = Rank._fields

RATIO = Metric(
    "rl_rank_slow_ratio",
    "gauge",
    "How many times as long as its peers a slow rank works; it holds them up in every step.",
    RANK,
)
SINCE = Metric(
    "rl_rank_slow_since_timestamp_seconds", "gauge", "Since when a slow rank has been slow.", RANK
)
COST = Metric(
    "rl_rank_slow_cost_ratio",
    "gauge",
    "Share of the job's time that a slow rank costs.",
    RANK,
)
PER_STEP = Metric(
    "rl_rank_slow_cost_seconds_per_step",
    "gauge",
    "Seconds that a slow rank costs the job in every step.",
    RANK,
)
WITNESS = Metric(
    "rl_rank_slow_witness",
    "gauge",
    "What may explain why a rank is slow; `words` is the sentence for the value, a share where it "
    "has %s.",
    (*RANK, "witness", "reason", "words"),
)
NODE = Metric(
    "rl_node_slow_ratio",
    "gauge",
    "How many times as long as their peers on other nodes the ranks of a node work, if all of them "
    "are slow.",
    ("cluster", "node", "job_id", "role"),
)
ROTATES = Metric(
    "rl_job_slowness_rotates",
    "gauge",
    "How many ranks of a role take turns in being slow.",
    JOB,
)
TURN = Metric(
    "rl_job_slowness_turn_ratio",
    "gauge",
    "The share of its time that a job loses because another rank is slow in each step.",
    JOB,
)
JOB_RATIO = Metric(
    "rl_job_slow_ratio",
    "gauge",
    "How many times as long a step of the last hour took as in the job's best hours, or in earlier "
    "runs, where the job is slow as a whole.",
    (*JOB, "beside"),
)
REFERENCE = Metric(
    "rl_job_step_reference_seconds",
    "gauge",
    "What a step took in the job's best hours, or in earlier runs.",
    (*JOB, "beside"),
)
LOST = Metric(
    "rl_job_slow_lost_seconds",
    "gauge",
    "By how much a part of a step takes longer in a job that is slow as a whole.",
    (*JOB, "stage", "part", "beside"),
)
CAUSE = Metric(
    "rl_job_slow_cause_share",
    "gauge",
    "Share of the lost time that went to one part of the step, if it is more than half; `words` is "
    "the sentence about it.",
    (*JOB, "stage", "cause", "beside", "words"),
)


class SlowCollector(Collector):
    """Compares the ranks of all jobs with their peers, and jobs with their own past."""

    def __init__(
        self,
        ranks: SlowWatch,
        jobs: JobsWatch,
        clock: Callable[[], float] = time.time,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._ranks = ranks
        self._jobs = jobs
        self._clock = clock
        self._close = close

    def collect(self) -> Samples:
        now = self._clock()
        return samples(self._ranks.look(now), self._jobs.look(now))

    def close(self) -> None:
        self._close()


def samples(ranks: SlowLook, jobs: JobsLook) -> Samples:
    """The results of two looks as samples."""
    out = Samples()
    for rank, one in ranks.ranks.items():
        _rank(out, rank, one)
    for node, ratio in ranks.nodes.items():
        out.add(NODE, ratio, *node)
    for role, count in ranks.rotates.items():
        out.add(ROTATES, count, *role)
    for role, turn in ranks.turns.items():
        out.add(TURN, turn.cost, *role)
    for (role, beside), seconds in jobs.references.items():
        out.add(REFERENCE, seconds, *role, beside)
    for role, slow in jobs.slow.items():
        out.add(JOB_RATIO, slow.ratio, *role, slow.beside)
        for (stage, part), seconds in jobs.lost[role].items():
            out.add(LOST, seconds, *role, stage, part, slow.beside)
        for cause in jobs.causes[role]:
            out.add(CAUSE, cause.share, *role, cause.stage, cause.cause, slow.beside, cause.words)
    return out


def _rank(out: Samples, rank: Rank, one: SlowRank) -> None:
    out.add(RATIO, one.ratio, *rank)
    out.add(SINCE, one.since, *rank)
    out.add(COST, one.cost, *rank)
    out.add(PER_STEP, one.seconds_per_step, *rank)
    for witness in one.witnesses:
        out.add(WITNESS, witness.value, *rank, witness.witness, witness.reason, witness.words)


def _build(options: NoOptions, context: JudgeContext) -> SlowCollector:
    from stagewatch.prometheus.api import PrometheusApi

    if context.server is None:
        raise ConfigError("collector slow asks the server of collector judge: run both")
    api = PrometheusApi.of(context.server)
    return SlowCollector(SlowWatch(api), JobsWatch(api), close=api.close)


SPEC = CollectorSpec(
    name="slow",
    help="which ranks and jobs of a Prometheus are slow",
    interval=15,
    options=NoOptions,
    build=_build,
)
