"""Reads all ranks of a job, on all its nodes, from a Prometheus."""

from __future__ import annotations

import time
from dataclasses import replace

from stagewatch.core.words import duration
from stagewatch.inspect.story import tell
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.limits import DEFAULT, Limits
from stagewatch.judgement.words import collective
from stagewatch.prometheus.api import PrometheusApi, Series
from stagewatch.prometheus.selectors import select
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.top.rows import Row, View

_RATE_WINDOW = "2m"
_Key = tuple[str, ...]


class JobSource:
    """The ranks of one job, as scraped from the node agents."""

    def __init__(self, api: PrometheusApi, job: str, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self.title = f"job {job}"
        self._api = api
        self._job = job

    def look(self) -> View:
        """The ranks now.  Raises `SourceError` if the server does not answer."""
        now = time.time()
        story = tell(self._api, self._job, now, self._limits, before=())
        steps = select("rl_rank_step", job_id=self._job)
        cpu = select("rl_rank_cpu_seconds_total", job_id=self._job)
        rates = self._values(f"clamp_min(deriv({steps}[{_RATE_WINDOW}]), 0)")
        cpus = self._values(
            f"sum by (cluster, node, job_id, role, rank) (rate({cpu}[{_RATE_WINDOW}]))"
        )
        times = "sum by (cluster, node, job_id, role, rank) (rate({}[{}]))"
        worked, waited = (
            self._values(times.format(select(name, job_id=self._job), _RATE_WINDOW))
            for name in ("rl_rank_worked_seconds_total", "rl_rank_waited_seconds_total")
        )
        shares = {
            key: (work / (work + waited[key]), waited[key] / (work + waited[key]))
            for key, work in worked.items()
            if key in waited and work + waited[key] > 0
        }
        sentences = [
            (text, story.wrong and not place) for place, text in enumerate(story.sentences)
        ]
        rows = []
        for case, states in story.cases:
            accused = {id(rank) for state in states for rank in state.verdict.culprits}
            for rank in (rank for state in states for rank in state.verdict.ranks):
                if rank.left_seconds is None:
                    key = case.cluster, rank.node, rank.role, str(rank.rank)
                    row = _row(key, rank, rates.get(key), cpus.get(key))
                    at_fault = id(rank) in accused
                    rows.append(replace(row, at_fault=at_fault, work_and_waiting=shares.get(key)))
        return View(sentences, rows)

    def stacks(self, row: Row) -> str:
        """The ranks' places in the user's code; agents export them for a job that looks stalled."""
        frames = self._api.query(select("rl_rank_stack_frame_info", job_id=self._job))
        frames.sort(key=lambda one: (_key(one)[2:] != (row.role, row.rank), _key(one)))
        lines = [
            f"rank {one.labels.get('rank', '?')} ({one.labels.get('role', '')}) on "
            f"{one.labels.get('node', '?')}: {one.labels.get('frame', '')}"
            for one in frames
        ]
        there = f"on {row.node or 'its node'}: stagewatch inspect {self._job} --evidence"
        if not lines:
            return (
                "No agent shows where this job's ranks are in their code, which they do once it "
                f"looks stalled. {there[0].upper()}{there[1:]}"
            )
        return "\n".join([*lines, "", f"For whole stacks, {there}"])

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _values(self, expression: str) -> dict[_Key, float]:
        return {_key(series): series.value for series in self._api.query(expression)}


def _row(key: _Key, rank: RankFacts, rate: float | None, cpu: float | None) -> Row:
    inside = next(iter(rank.inside.items()), None)
    lives = rank.wait_class is not WaitClass.GONE
    return Row(
        job_id=rank.job_id,
        role=rank.role,
        rank=str(rank.rank),
        node=rank.node,
        cluster=key[0],
        pid=rank.pid or None,
        stage=rank.stage if rank.stage_open_seconds is not None and rank.stage else "",
        substage=rank.substage,
        open_seconds=rank.stage_open_seconds,
        step=rank.step,
        steps_per_second=0.0 if rank.overdue else rate,
        age_seconds=rank.progress_age_seconds if lives else None,
        budget_seconds=rank.budget_seconds,
        overdue=rank.overdue,
        wait_class=rank.wait_class.value,
        cpu_ratio=cpu,
        inside=f"{collective(*inside)}, {duration(inside[1].seconds)}"
        if inside
        else rank.stack.frame,
        at_fault=False,
    )


def _key(series: Series) -> _Key:
    labels = series.labels
    node = labels.get("node") or labels.get("instance", "")
    return labels.get("cluster", ""), node, labels.get("role", ""), labels.get("rank", "")
