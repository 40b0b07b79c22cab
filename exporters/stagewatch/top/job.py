"""Looks at all ranks of a job, on all its nodes, as a Prometheus knows them."""

from __future__ import annotations

from dataclasses import replace

from stagewatch.core.words import duration
from stagewatch.inspect.story import tell
from stagewatch.prometheus.api import PrometheusApi, Series
from stagewatch.prometheus.selectors import matchers, select
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.top.rows import Row, View

_METRICS = (
    "rl_rank_up",
    "rl_rank_info",
    "rl_rank_stage_open_seconds",
    "rl_rank_step",
    "rl_rank_wait_class",
    "rl_rank_collective_inside_seconds",
    "rl_rank_stack_frame_info",
    "rl_rank_progress_age_seconds",
    "rank:rl_stall:budget_seconds",
    "rank:rl_stall:overdue_seconds",
    "job:rl_stall:culprit",
    "rank:rl_stall:stage_behind",
)
_RATE_WINDOW = "2m"
_Key = tuple[str, ...]


class JobSource:
    """The ranks of one job that node agents show and a server scrapes."""

    def __init__(self, api: PrometheusApi, job: str) -> None:
        self.title = f"job {job}"
        self._api = api
        self._job = job

    def look(self) -> View:
        """The ranks now.  Raises `SourceError` where the server does not answer."""
        story = tell(self._api, self._job)
        metrics: dict[str, dict[_Key, Series]] = {name: {} for name in _METRICS}
        selector = matchers(__name__=_METRICS, job_id=self._job)
        for series in self._api.query(f"{{{selector}}}"):
            metrics[series.labels["__name__"]][_key(series)] = series
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
        rows = [
            replace(self._row(key, metrics, rates, cpus), work_and_waiting=shares.get(key))
            for key in metrics["rl_rank_up"]
        ]
        return View(sentences, rows)

    def stacks(self, row: Row) -> str:
        """Where the ranks are in the user's code, which agents show of a job that looks stalled."""
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

    def _row(
        self,
        key: _Key,
        metrics: dict[str, dict[_Key, Series]],
        rates: dict[_Key, float],
        cpus: dict[_Key, float],
    ) -> Row:
        def value(name: str) -> float | None:
            series = metrics[name].get(key)
            return series.value if series else None

        def label(metric: str, name: str) -> str:
            series = metrics[metric].get(key)
            return series.labels.get(name, "") if series else ""

        cluster, node, role, rank = key
        pid = label("rl_rank_info", "pid")
        step = value("rl_rank_step")
        inside_seconds = value("rl_rank_collective_inside_seconds")
        op, group = (label("rl_rank_collective_inside_seconds", name) for name in ("op", "group"))
        inside = f"{op} of {group}, {duration(inside_seconds)}" if inside_seconds else ""
        lives = value("rl_rank_up")
        overdue = value("rank:rl_stall:overdue_seconds") is not None
        wait_class = label("rl_rank_wait_class", "class") or WaitClass.UNKNOWN.value
        return Row(
            job_id=self._job,
            role=role,
            rank=rank,
            node=node,
            cluster=cluster,
            pid=int(pid) if pid.isdecimal() else None,
            stage=label("rl_rank_stage_open_seconds", "stage"),
            substage=label("rl_rank_stage_open_seconds", "substage"),
            open_seconds=value("rl_rank_stage_open_seconds"),
            step=None if step is None else int(step),
            steps_per_second=0.0 if overdue else rates.get(key),
            age_seconds=value("rl_rank_progress_age_seconds") if lives else None,
            budget_seconds=value("rank:rl_stall:budget_seconds"),
            overdue=overdue,
            wait_class=wait_class if lives else WaitClass.GONE.value,
            cpu_ratio=cpus.get(key),
            inside=inside or label("rl_rank_stack_frame_info", "frame"),
            at_fault=key in metrics["job:rl_stall:culprit"]
            or key in metrics["rank:rl_stall:stage_behind"],
        )


def _key(series: Series) -> _Key:
    labels = series.labels
    node = labels.get("node") or labels.get("instance", "")
    return labels.get("cluster", ""), node, labels.get("role", ""), labels.get("rank", "")
