"""A close look at one incident: its nodes, the jobs on them, the first alert, and its phases."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from stagewatch.report.events import NOTES
from stagewatch.report.history import Grid, History, Labels, by_job
from stagewatch.report.incidents import JOIN_SECONDS, SILENT_COLUMNS, Incident, silent, unavailable
from stagewatch.report.jobs import JobStory, stories
from stagewatch.report.periods import Period

BEFORE_SECONDS, AFTER_SECONDS = 600.0, 3600.0
"""How long before the first sign to look, and how long after the last one a job may return."""

PHASES = (
    ("injected", "injected", "inject"),
    ("detected", "detected", "detect"),
    ("drained", "out of service", "effect"),
    ("ended", "job ended", "error"),
    ("node_back", "node back", "clear"),
    ("resumed", "job resumed", "clear"),
)
"""Phases with the words and the colour that mark them, in the order they should come."""

COLUMNS = 5000


@dataclass(frozen=True, slots=True)
class Phases:
    """One incident in detail; `downtime` counts against the SLO, and is None if no job was hit."""

    incident: Incident
    began: float
    grid: Grid
    injected: float | None = None
    detected: float | None = None
    detected_by: str = ""
    drained: float | None = None
    node_back: float | None = None
    jobs: tuple[JobStory, ...] = ()
    downtime: Period | None = None
    restored: bool = False
    """Whether every interrupted job was seen to run again."""

    @property
    def ended(self) -> float | None:
        """When the first job ended."""
        return min((job.ended for job in self.jobs if job.ended is not None), default=None)

    @property
    def resumed(self) -> float | None:
        """When the last of the ended jobs ran again; None unless all did."""
        times = [job.resumed for job in self.jobs if job.ended is not None]
        known = [when for when in times if when is not None]
        return max(known) if known and len(known) == len(times) else None

    @property
    def has_section(self) -> bool:
        """Whether it has a section of its own: a job was hit, or a fault injected."""
        return self.downtime is not None or self.injected is not None

    @property
    def hit(self) -> list[JobStory]:
        """The jobs that it interrupted."""
        return [job for job in self.jobs if job.interrupted]


def phases_of(sweep: History, incident: Incident, cluster: str) -> Phases:
    """Look closely at an incident of the sweep over the whole period."""
    first = max(sweep.period.start, incident.start) - BEFORE_SECONDS
    last = min(sweep.period.end, incident.end + AFTER_SECONDS)
    history = sweep.of(Period(first, last), COLUMNS)
    here = {"cluster": cluster}
    injected = _injected(history, here, incident)
    running = _running(history, here, _jobs(history, here, incident))
    outages = _outages(history, here, incident)
    began = injected or min([incident.start, *(first for first, _ in outages.values())])
    near = Period(began, incident.end)
    told = stories(history, cluster, running, near, incident.signs)
    hit = [job for job in told if job.interrupted]
    if injected is None:
        began = min([began, *(job.ended for job in hit if job.ended is not None)])
    restored = [job.restored for job in hit]
    until = max((when for when in restored if when is not None), default=None)
    all_back = bool(hit) and None not in restored
    if hit and not all_back:
        until = max(until or 0.0, incident.end)
    # A job that keeps failing at its start is never seen to run; its alerts count too.
    alert = _detected(history, here, incident, began, {*running, *incident.jobs})
    back = [last for _, last in outages.values()]
    return Phases(
        incident=incident,
        began=began,
        grid=history.grid,
        injected=injected,
        detected=alert[0] if alert else None,
        detected_by=alert[1] if alert else "",
        drained=min(
            (first for (_, kind), (first, _) in outages.items() if kind != "silent"), default=None
        ),
        node_back=None if None in back else max((when for when in back if when), default=None),
        jobs=tuple(told),
        downtime=Period(began, until) if until is not None and until > began else None,
        restored=all_back,
    )


def absorbed(incidents: Sequence[Phases]) -> list[Phases]:
    """The incidents; those of a job alone are merged into the incident of its node that explains
    the same interruptions."""
    kept = [each for each in incidents if each.incident.nodes]
    for each in incidents:
        if each.incident.nodes:
            continue
        at = next((at for at, other in enumerate(kept) if _tells(other, each)), None)
        if at is None:
            kept.append(each)
        else:
            signs = (*kept[at].incident.signs, *each.incident.signs)
            both = Incident(tuple(sorted(signs, key=lambda sign: sign.start)))
            kept[at] = replace(kept[at], incident=both)
    return kept


def _tells(one: Phases, other: Phases) -> bool:
    """Whether one incident explains every interruption of a job in another."""
    return bool(other.hit) and all(
        any(
            job.job_id == known.job_id
            and abs((job.ended or other.began) - (known.ended or one.began)) < JOIN_SECONDS
            for known in one.hit
        )
        for job in other.hit
    )


def _jobs(history: History, here: Labels, incident: Incident) -> tuple[str, ...]:
    """Jobs that the signs name, and those on the nodes when it began."""
    jobs = set(incident.jobs)
    if incident.nodes:
        column = max(1, history.grid.index(incident.start + 60))
        for metric in ("slurm_job_node", "rl_rank_info"):
            jobs |= {
                line.labels.get("job_id", "")
                for line in history.most(metric, {**here, "node": incident.nodes}, "job_id")
                if any(at < column for at, _ in line.known())
            }
    return tuple(sorted(jobs - {""}))


def _injected(history: History, here: Labels, incident: Incident) -> float | None:
    """When the first marker of the incident was written."""
    if not any(sign.kind == "fault" for sign in incident.signs):
        return None
    lines = history.most("fault_injection_start_timestamp_seconds", here, "id")
    times = {value for line in lines for _, value in line.known()}
    return min((when for when in times if when >= incident.start - 120), default=None)


def _outages(
    history: History, here: Labels, incident: Incident
) -> dict[tuple[str, str], tuple[float, float | None]]:
    """By node and kind, when it went out of service and when it came back; None if it did not."""
    if not incident.nodes:
        return {}
    grid = history.grid
    nodes = {**here, "node": incident.nodes}
    outages: dict[tuple[str, str], tuple[float, float | None]] = {}
    for line in [*unavailable(history, nodes, "node, kind"), *silent(history, nodes)]:
        key = (line.labels.get("node", ""), line.labels.get("kind", "silent"))
        known = [at for at, _ in line.known()]
        if key[1] == "silent" and len(known) < SILENT_COLUMNS:
            continue
        last = None if known[-1] >= grid.count - 2 else grid.time(known[-1] + 1)
        outages[key] = (grid.time(known[0]), last)
    return outages


def _running(history: History, here: Labels, jobs: Sequence[str]) -> dict[str, list[float | None]]:
    """By job that was seen to run: 1 while it ran, 0 while it did not, None while unknown."""
    if not jobs:
        return {}
    chosen: Labels = {**here, "job_id": jobs}
    slurm = by_job(history.most("slurm_job_info", chosen, "job_id"))
    ranks = by_job(history.most("rl_rank_up", chosen, "job_id", "sum"))
    source = {**here, "source": "jobs"}
    asked = history.most("slurm_source_success", source, "cluster")
    agents = history.most("up", {**here, "job": "stagewatch"}, "cluster")
    none: list[float | None] = [None] * history.grid.count
    running = {}
    for job in jobs:
        series = slurm.get(job) or ranks.get(job)
        watched = (asked if job in slurm else agents)[:1]
        known = watched[0].values if watched else none
        states = zip(series.values if series else none, known, strict=True)
        running[job] = [_state(value, good) for value, good in states]
    return {job: values for job, values in running.items() if any(values)}


def _state(value: float | None, known: float | None) -> float | None:
    if value is not None:
        return 1.0 if value > 0 else 0.0
    return 0.0 if known else None


def _detected(
    history: History, here: Labels, incident: Incident, began: float, jobs: Collection[str]
) -> tuple[float, str] | None:
    """The time and name of the first alert on the nodes or jobs that did not fire before."""
    grid = history.grid
    begin = max(0, grid.index(began))
    end = grid.index(incident.end + JOIN_SECONDS)
    firing = {**here, "alertstate": "firing"}
    alerts = []
    for line in history.most("ALERTS", firing, "alertname, node, job_id, rank"):
        name = line.labels.get("alertname", "")
        node, job = line.labels.get("node"), line.labels.get("job_id")
        about = node in incident.nodes or job in jobs
        about = about or (not node and not job and name.startswith("Slurm"))
        first = next((at for at, _ in line.known()), 0)
        if name not in NOTES and about and begin <= first <= end:
            alerts.append((grid.time(first), name))
    return min(alerts, default=None)
