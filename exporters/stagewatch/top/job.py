"""Reads all ranks of a job, on all its nodes, from a Prometheus."""

from __future__ import annotations

import time
from dataclasses import replace

from stagewatch.inspect.story import tell
from stagewatch.judgement.limits import DEFAULT, Limits
from stagewatch.prometheus.api import PrometheusApi, Series
from stagewatch.prometheus.selectors import select
from stagewatch.top.rows import Row, View, row_of

_RANK = "cluster, node, job_id, role, rank"
_COUNTERS = (
    *("rl_rank_cpu_seconds_total", "rl_rank_worked_seconds_total"),
    "rl_rank_waited_seconds_total",
)
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
        of_job = {"job_id": self._job}
        rates = self._values(f"clamp_min(deriv({select('rl_rank_step', **of_job)}[2m]), 0)")
        cpus, worked, waited = (
            self._values(f"sum by ({_RANK}) (rate({select(counter, **of_job)}[2m]))")
            for counter in _COUNTERS
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
                    row = row_of(rank)
                    stage = row.stage if row.open_seconds is not None else ""
                    age = None if row.gone else row.age_seconds
                    rate = 0.0 if rank.overdue else rates.get(key)
                    rows.append(
                        replace(
                            row,
                            cluster=case.cluster,
                            stage=stage,
                            steps_per_second=rate,
                            age_seconds=age,
                            cpu_ratio=cpus.get(key),
                            work_and_waiting=shares.get(key),
                            at_fault=id(rank) in accused,
                        )
                    )
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


def _key(series: Series) -> _Key:
    labels = series.labels
    node = labels.get("node") or labels.get("instance", "")
    return labels.get("cluster", ""), node, labels.get("role", ""), labels.get("rank", "")
