"""A close look at one incident: its nodes, the jobs on them, the first alert."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stagewatch.report.firing import NOTES
from stagewatch.report.history import History, Line, quoted
from stagewatch.report.signals import one_of
from stagewatch.report.signs import JOIN_SECONDS, Incident


class CloseLook:
    """A close look at one incident."""

    def __init__(self, history: History, cluster: str, incident: Incident) -> None:
        self.history = history
        self.cluster = f"cluster={quoted(cluster)}"
        self._incident = incident
        self._nodes = one_of("node", incident.nodes)

    def jobs(self) -> tuple[str, ...]:
        """Jobs that the signs name, and those on the nodes when it began."""
        found = set(self._incident.jobs)
        if self._incident.nodes:
            for metric in ("slurm_job_node", "rl_rank_info"):
                found |= {
                    line.labels.get("job_id", "")
                    for line in self.ask(f"{metric}{{CL, {self._nodes}}}", "job_id", "jobs")
                    if self._known_by(line, self._incident.start + 60)
                }
        return tuple(sorted(found - {""}))

    def injected(self) -> float | None:
        """When the first marker of the incident was written."""
        if not any(sign.kind == "fault" for sign in self._incident.signs):
            return None
        lines = self.ask("fault_injection_start_timestamp_seconds{CL}", "id", "markers")
        times = [value for line in lines for value in line.values if value is not None]
        near = [when for when in times if when >= self._incident.start - 120]
        return min(near, default=None)

    def outages(self) -> dict[tuple[str, str], tuple[float, float | None]]:
        """By node and kind, from when to when it was out of service; None: not seen back."""
        if not self._incident.nodes:
            return {}
        chosen = f"{{{self.cluster}, {self._nodes}}}[{{window}}]"
        lines = self.history.lines(
            f"max by (node, kind) (last_over_time(node:slurm_unavailable:info{chosen})"
            f" or last_over_time(slurm_node_unavailable_info{chosen}))",
            "nodes",
        )
        silent = self.history.lines(
            f'max by (node) (max_over_time(up{{{self.cluster}, {self._nodes}, job="stagewatch"}}'
            "[{window}])) == 0",
            "agents",
        )
        since = self.ask(
            f"slurm_node_unavailable_since_timestamp_seconds{{CL, {self._nodes}}}",
            "node, kind",
            "since when",
        )
        exact = {
            (line.labels.get("node", ""), line.labels.get("kind", "")): next(
                (value for value in line.values if value is not None), None
            )
            for line in since
        }
        found: dict[tuple[str, str], tuple[float, float | None]] = {}
        for line in [*lines, *silent]:
            key = (line.labels.get("node", ""), line.labels.get("kind", "silent"))
            known = [at for at, value in enumerate(line.values) if value is not None]
            if key[1] == "silent" and len(known) < 3:
                continue
            grid = self.history.grid
            first = grid.time(known[0])
            said = exact.get(key)
            if said is not None and grid.start <= said <= first:
                first = said
            last = None if known[-1] >= grid.count - 2 else grid.time(known[-1] + 1)
            found[key] = (first, last)
        return found

    def running(self, jobs: Sequence[str]) -> dict[str, list[float | None]]:
        """1 while a job ran, 0 while it did not, None where neither is known."""
        if not jobs:
            return {}
        chosen = one_of("job_id", jobs)
        slurm = by_job(self.ask(f"slurm_job_info{{CL, {chosen}}}", "job_id", "jobs in Slurm"))
        ranks = by_job(
            self.history.lines(
                f"sum by (job_id) (last_over_time(rl_rank_up{{{self.cluster}, {chosen}}}"
                "[{window}]))",
                "ranks",
            )
        )
        asked = self.ask('slurm_source_success{CL, source="jobs"}', "cluster", "Slurm")
        agents = self.ask('up{CL, job="stagewatch"}', "cluster", "agents")
        none: list[float | None] = [None] * self.history.grid.count
        found = {}
        for job in jobs:
            series = slurm.get(job) or ranks.get(job) or none
            watched = (asked if job in slurm else agents)[:1]
            known = watched[0].values if watched else none
            found[job] = [_state(value, good) for value, good in zip(series, known, strict=True)]
        return found

    def detected(self, began: float, jobs: Collection[str]) -> tuple[float, str] | None:
        """The first alert on the nodes or jobs that did not fire before."""
        lines = self.ask(
            'ALERTS{CL, alertstate="firing"}', "alertname, node, job_id, rank", "alerts"
        )
        grid = self.history.grid
        begin = max(0, grid.index(began))
        end = grid.index(self._incident.end + JOIN_SECONDS)
        found = []
        for line in lines:
            labels = line.labels
            name = labels.get("alertname", "")
            node, job = labels.get("node"), labels.get("job_id")
            about = node in self._incident.nodes or job in jobs
            about = about or (not node and not job and name.startswith("Slurm"))
            first = next((at for at, value in enumerate(line.values) if value is not None), 0)
            if name not in NOTES and about and begin <= first <= end:
                found.append((grid.time(first), name))
        return min(found, default=None)

    def ask(self, selector: str, by: str, what: str) -> list[Line]:
        """The last samples of some series, the largest by some labels; CL is the cluster."""
        chosen = selector.replace("CL", self.cluster)
        query = f"max by ({by}) (last_over_time({chosen}[{{window}}]))"
        return self.history.lines(query, what)

    def _known_by(self, line: Line, when: float) -> bool:
        column = min(max(1, self.history.grid.index(when)), self.history.grid.count)
        return any(value is not None for value in line.values[:column])


def _state(value: float | None, known: float | None) -> float | None:
    if value is not None:
        return 1.0 if value > 0 else 0.0
    return 0.0 if known else None


def by_job(lines: Sequence[Line]) -> dict[str, list[float | None]]:
    """The values of each job, by its id."""
    return {line.labels.get("job_id", ""): line.values for line in lines}
