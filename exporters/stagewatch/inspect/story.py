"""Tells the story of a whole job in a few sentences: the judge's verdict, now or in the past, and
related facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stagewatch.core.errors import StagewatchError
from stagewatch.core.words import duration
from stagewatch.inspect.slowness import slow_job, slow_ranks
from stagewatch.judgement.case_file import CaseFile
from stagewatch.judgement.from_prometheus import Asker, JobKey, Queries, job_key
from stagewatch.judgement.limits import DEFAULT, Limits
from stagewatch.judgement.memory import Course, Moment, State
from stagewatch.judgement.sentence import sentence
from stagewatch.judgement.words import whereabouts
from stagewatch.prometheus.api import Series
from stagewatch.prometheus.selectors import select
from stagewatch.ranks.wait_class import WaitClass

SHOWN = 6
BEFORE_SECONDS = (60.0, 45.0, 30.0, 15.0)
"""Earlier moments, which show since when the job is suspected."""


@dataclass(frozen=True, slots=True)
class Story:
    """The sentences about a job."""

    job_id: str
    sentences: tuple[str, ...]
    wrong: bool
    """Whether anything is wrong with the job, as far as the series of its ranks show."""
    cases: tuple[tuple[CaseFile, list[State]], ...] = field(default=(), repr=False)
    """The case by cluster: the judged facts and the answer."""


def tell(
    api: Queries,
    job_id: str,
    now: float,
    limits: Limits = DEFAULT,
    before: Sequence[float] = BEFORE_SECONDS,
) -> Story:
    """The story of a job at `now` (Unix seconds), from every cluster with a job of this id.

    Raises `StagewatchError` if the server does not know the job.
    """
    ups = api.query(select("rl_rank_up", job_id=job_id), now)
    bare = [] if ups else api.query(select("rl_rank_still_seconds", job_id=job_id), now)
    if not (ups or bare):
        raise StagewatchError(
            f"no node agent that this Prometheus scrapes shows a rank of job {job_id}"
        )
    keys = sorted({job_key(one.labels) for one in ups or bare})
    judgements = {key: judged(api, key, now, limits, before) for key in keys}
    states = [state for _, some in judgements.values() for state in some]
    if bare and not any(state.verdict.charges for state in states):
        return _without_records(job_id, bare)
    stories = [_of_cluster(api, key, one, alone=len(keys) == 1) for key, one in judgements.items()]
    return Story(
        job_id,
        tuple(sentence for story in stories for sentence in story.sentences),
        any(story.wrong for story in stories),
        tuple(case for story in stories for case in story.cases),
    )


def _without_records(job_id: str, still: Sequence[Series]) -> Story:
    """The story of ranks without stage records, whose program does not use stagewatch."""
    nodes = sorted({_node(one.labels) for one in still})
    count = f"{len(still)} rank{'s' if len(still) > 1 else ''}"
    more = f" and {len(nodes) - SHOWN} more nodes" if len(nodes) > SHOWN else ""
    least = duration(min(one.value for one in still))
    return Story(
        job_id,
        (
            f"Job {job_id}: {count} on {', '.join(nodes[:SHOWN])}{more} keep no stage record, so "
            f"progress cannot be judged; none was at work for {least}.",
        ),
        wrong=False,
    )


def judged(
    api: Queries, key: JobKey, now: float, limits: Limits, before: Sequence[float]
) -> tuple[CaseFile, list[State]]:
    """The facts of a job over the last minute, and the judge's answer."""
    asker, course = Asker(api, limits, recorded=False), Course(limits)
    moments: list[Moment] = []
    states: list[State] = []
    for at in (*(now - seconds for seconds in before), now):
        moments.append(asker.moments([key], at)[key])
        states = course.look(moments[-1])
    return CaseFile(*key, moments=moments, limits=limits), states


def _of_cluster(
    api: Queries, key: JobKey, judgement: tuple[CaseFile, list[State]], *, alone: bool
) -> Story:
    """The story of the job in one cluster; a cluster without a name has no label."""
    case, states = judgement
    now = case.moments[-1].time
    cluster, job_id = key

    def ask(metric: str) -> list[Series]:
        return api.query(select(metric, cluster=cluster, job_id=job_id), now)

    states.sort(key=lambda state: (not state.verdict.stalled, not state.verdict.wrong))
    wrong = [state for state in states if state.verdict.wrong]
    told = [_verdict(state) for state in wrong]
    told += _stragglers(ask("rank:rl_straggler:ratio"))
    slow = [*slow_ranks(ask, SHOWN), *slow_job(ask)]
    told += slow
    nodes = {rank.node for rank in case.moments[-1].ranks}
    told += _faults(api, cluster, nodes, now)
    if told and not alone:
        told.insert(0, f"In cluster {cluster or 'without a name'}:")
    told += [_verdict(state) for state in states if not state.verdict.wrong]
    told += [_ranks(state) for state in states]
    wasted = sum(total.value for total in ask("job:rl_wasted_gpu_seconds:total"))
    if wasted > 0:
        on_gpus = any(rank.gpu for rank in case.moments[-1].ranks)
        whose = "GPU time" if on_gpus else "its ranks' time"
        told.append(f"Wasted so far: {duration(wasted)} of {whose}.")
    return Story(job_id, tuple(told), bool(wrong or slow), ((case, states),))


def _verdict(state: State) -> str:
    text = sentence(state.verdict)
    likely = {charge.confidence for charge in state.verdict.charges} == {"likely"}
    return f"{text[0].upper()}{text[1:]}{' (likely)' if likely else ''}."


def _ranks(state: State) -> str:
    """The number of ranks of the role, their nodes, and what they do in which stage."""
    verdict = state.verdict
    here = [rank for rank in verdict.ranks if rank.left_seconds is None]
    nodes = sorted({rank.node for rank in here})
    more = f" and {len(nodes) - SHOWN} more nodes" if len(nodes) > SHOWN else ""
    count = f"{len(here)} rank{'s' if len(here) > 1 else ''}"
    live = [rank for rank in here if rank.wait_class is not WaitClass.GONE]
    doing = f": {whereabouts(live)}" if live else ""
    return f"{verdict.role}: {count} on {', '.join(nodes[:SHOWN])}{more}{doing}."


def _stragglers(slow: Sequence[Series]) -> list[str]:
    return [
        f"Straggler: rank {one.labels.get('rank', '?')} on {_node(one.labels)}, in "
        f"{one.labels.get('stage', '?')} for {one.value:.1f} times as long as its peers."
        for one in slow[:SHOWN]
    ]


def _faults(api: Queries, cluster: str, nodes: set[str], now: float) -> list[str]:
    active = api.query(f"{select('fault_injection_active', cluster=cluster)} == 1", now)
    return [
        f"A fault is being injected on {_node(fault.labels)}: {fault.labels['fault_type']}, "
        f"id {fault.labels['id']}{f', at {target}' if target else ''}."
        for fault in active
        for target in [fault.labels.get("target_worker")]
        if _node(fault.labels) in nodes
    ][:SHOWN]


def _node(labels: dict[str, str]) -> str:
    """The node of a series."""
    return labels.get("node") or labels.get("instance") or "an unknown node"
