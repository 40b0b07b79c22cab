"""What happened at a moment: the marked fault; alerts and verdicts; exceptions, deaths, OOM kills,
lines of logs, Xids and the end of the job."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi, Track
from stagewatch.prometheus.selectors import select
from stagewatch.report.components import Component, component_of
from stagewatch.report.history import History, Labels, Line, milliseconds, runs, usual_gap

NOTES = (
    *("FaultInjected", "FaultInJob", "FaultMarkerForgotten", "PageDuringFault"),
    *("JobOnSilentStorage", "SlurmJobEnding", "SlurmNodeOutOnPurpose", "Watchdog"),
)
"""Alerts that are no detection: of the marker itself, equal to another, or sent to nobody."""

VERDICTS = {"job:rl_stall:culprit": "culprit", "rank:rl_straggler:ratio": "straggler"}
"""Recording rules that name a rank."""

_INITIALS = ("cpu", "dns", "gpu", "io", "ip", "nfs", "oom", "tcp")

ANY = "?"
"""Stands for the rank of an event of which only the role is known."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """A moment and its evidence; `time` is None if it was not seen."""

    time: float | None = None
    what: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault.  Times are Unix seconds; `end` is None while its marker is open."""

    id: str
    fault_type: str
    target: str
    expected_stage: str
    scenario: str
    cluster: str
    start: float
    end: float | None

    @property
    def kind(self) -> str:
        """Its type in words: `cpu_contention` is CPU contention."""
        words = (self.fault_type or self.id).split("_")
        return " ".join(word.upper() if word in _INITIALS else word for word in words)


def find_fault(api: PrometheusApi, id: str, days: float) -> Fault:
    """The fault with a marker's id, of the last so many days.

    `end` is when its marker was last seen open, which is at least 30 s after the start.
    Raises `StagewatchError` with the ids that there are.
    """
    window = f"[{max(1, round(days * 24))}h]"
    marker = select("fault_injection_active", id=id)
    start = select("fault_injection_start_timestamp_seconds", id=id)
    starts = api.query(f"max_over_time({start}{window})")
    markers = api.query(f"max_over_time({marker}{window})")
    if not starts or not markers:
        others = api.query(f"count by (id) (max_over_time(fault_injection_active{window}))")
        ids = sorted(each.labels.get("id", "") for each in others)
        known = ", ".join(ids[:20]) if ids else "none at all"
        raise StagewatchError(
            f"no fault {id!r} was marked in the last {days:g} days (--days); there is: {known}"
        )
    labels = markers[0].labels
    began = max(each.value for each in starts)
    return Fault(
        id=id,
        fault_type=labels.get("fault_type", ""),
        target=labels.get("target_worker", ""),
        expected_stage=labels.get("expected_failure_stage", ""),
        scenario=labels.get("scenario", ""),
        cluster=labels.get("cluster", ""),
        start=began,
        end=_last_open(api, marker, began),
    )


def _last_open(api: PrometheusApi, marker: str, start: float) -> float | None:
    """When a marker had its last sample, at least 30 s after its start; None while it is open.

    This looks every 30 s first: if an agent marks the end of a series, a look just after the end
    does not see it any more.
    """
    looks = f"[{milliseconds(time.time() - start)}:30s]"
    seen = api.query(f"max_over_time(timestamp({marker}){looks})")
    last = max((each.value for each in seen), default=start)
    tracks = api.samples(marker, last - 600, last + 30)
    times = sorted({when for track in tracks for when, _ in track.samples})
    last = max([last, *times])
    return None if time.time() - last < 3 * usual_gap(times) else last


@dataclass(frozen=True, slots=True)
class Firing:
    """One alert or verdict, from its first sample to its last; `open` if it lasts until the end."""

    name: str
    labels: Mapping[str, str]
    start: float
    end: float
    open: bool

    @property
    def severity(self) -> str:
        """critical, warning, info; empty for a verdict."""
        return self.labels.get("severity", "")

    @property
    def milestone(self) -> Milestone:
        """Its beginning as a milestone, with what the alert is about."""
        who = component_of(self.labels)
        about = "" if who.kind == "slurm" else f": {who.label}"
        return Milestone(self.start, f"{self.name}{about}")


def firings(tracks: Iterable[Track], until: float) -> list[Firing]:
    """The firings in series of ALERTS or of verdicts, by their start.

    Verdicts with different evidence are different firings.
    """
    fired = []
    for track in tracks:
        name = track.labels.get("alertname") or VERDICTS.get(track.labels.get("__name__", ""), "")
        if not name or name in NOTES:
            continue
        times = [when for when, _ in track.samples]
        for start, end in runs(times):
            late = until - end < 2.5 * usual_gap(times)
            fired.append(Firing(name, track.labels, start, end, late))
    return sorted(fired, key=lambda each: (each.start, each.name))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a component.  `kind` is failure, gone, oom_kill, log, xid or
    job_end."""

    time: float
    kind: str
    component: Component
    stage: str
    text: str

    @property
    def milestone(self) -> Milestone:
        """The event as a milestone: when it happened, to which component and in which stage."""
        place = f" in {self.stage}" if self.stage else ""
        return Milestone(self.time, f"{self.component.label}{place}: {self.text}")


def events_of(
    history: History,
    job: Labels,
    nodes: Labels,
    roles: Mapping[str, int],
    since: float,
    recorded: Collection[str] = (),
) -> list[Event]:
    """The events of a job and its nodes since a time, without those of replayed GPUs (`recorded`,
    by uuid)."""
    first = _stamped(history, "rl_rank_first_failure_timestamp_seconds", job, "failure")
    system = {**nodes, "job_id": "", "scope": "system"}
    events = [
        *first,
        *_later_failures(history, job, roles, first),
        *_stamped(history, "log_oom_kill_last_timestamp_seconds", job, "oom_kill"),
        *_stamped(history, "log_oom_kill_last_timestamp_seconds", system, "oom_kill"),
        *_stamped(history, "log_first_match_timestamp_seconds", job, "log"),
        *_stamped(history, "gpu_xid_last_timestamp_seconds", nodes, "xid", recorded),
        *_gone(history, job),
        *_oom_kills(history, job),
        *_job_end(history, job),
    ]
    # Stamps are of another clock than the scrape's.
    seen = {event for event in events if event.time >= since - 0.5}
    return sorted(seen, key=lambda event: event.time)


def kernel_events(history: History, nodes: Labels, since: float) -> list[Event]:
    """Events of a job's nodes since a time, from kernels and Slurm, that are about no particular
    rank."""
    elsewhere = {**nodes, "job_id": "", "scope": "cgroup"}
    events = [
        *_stamped(history, "log_oom_kill_last_timestamp_seconds", elsewhere, "kernel"),
        *_stamped(history, "gpu_nvswitch_error_last_timestamp_seconds", nodes, "kernel"),
        *_stamped(history, "nfs_server_not_responding_since_timestamp_seconds", nodes, "kernel"),
        *_stamped(history, "slurm_node_unavailable_since_timestamp_seconds", nodes, "slurm"),
    ]
    seen = {replace(each, component=_node_of(each)) for each in events if each.time >= since - 0.5}
    return sorted(seen, key=lambda event: event.time)


def _node_of(event: Event) -> Component:
    return Component("node", node=event.component.node)


@dataclass(frozen=True, slots=True)
class Hung:
    """A rank that a verdict named, and the line of the user's own code in which it hung."""

    time: float
    """When both the verdict and the line were known."""
    component: Component
    frame: str

    @property
    def milestone(self) -> Milestone:
        """The milestone: when, which rank, and which line."""
        return Milestone(self.time, f"{self.component.label} at {self.frame}")


def hung_of(history: History, job: Labels, since: float) -> list[Hung]:
    """The culprits of a job since a time, with the lines in which they hung, in order of time."""
    return sorted(
        (
            Hung(history.grid.time(line.known()[0][0]), component_of(line.labels), frame)
            for line in hung_lines(history, job, "role, rank, frame")
            if (frame := line.labels.get("frame", ""))
            and history.grid.time(line.known()[-1][0]) >= since
        ),
        key=lambda each: (each.time, each.component),
    )


def hung_lines(history: History, labels: Labels, by: str) -> list[Line]:
    """The innermost frames of the user's own code, of the ranks that a verdict names."""
    named = history.last("job:rl_stall:culprit", labels)
    frames = history.last("rl_rank_stack_frame_info", labels)
    culprits = f"{frames} and on (cluster, node, job_id, role, rank) ({named})"
    return history.lines(f"max by ({by}) ({culprits})")


def _stamped(
    history: History, metric: str, labels: Labels, kind: str, without: Collection[str] = ()
) -> list[Event]:
    """Events from series whose value is the time of the last event; `without`: GPUs to leave out,
    by uuid."""
    by = "role, rank, stage, error, pattern, node, gpu, uuid, xid, sxid, server, kind, scope"
    return [
        Event(value, kind, component_of(line.labels), line.labels.get("stage", ""), _text(line))
        for line in history.most(metric, labels, f"{by}, job_id")
        if line.labels.get("uuid") not in without
        for value in {value for _, value in line.known()}
    ]


def _later_failures(
    history: History, job: Labels, roles: Mapping[str, int], first: Sequence[Event]
) -> list[Event]:
    """Exceptions after the first one of a rank.  Agents count them by role and stage, so the rank
    is known only in a role with a single rank."""
    known = {(event.component.role, event.stage, event.text) for event in first}
    failures = []
    by = "role, stage, error"
    for line in history.most("rl_stage_failures_total", job, by, "sum"):
        role, stage = line.labels.get("role", ""), line.labels.get("stage", "")
        error = line.labels.get("error", "")
        if (role, stage, error) in known:
            continue
        component = Component("rank", role, "0" if roles.get(role) == 1 else ANY)
        failures += [
            Event(history.grid.time(at), "failure", component, stage, error)
            for at, _ in line.rises(0.0 if line.values[:1] == [None] else None)
        ]
    return failures


def _gone(history: History, job: Labels) -> list[Event]:
    lines = history.most("rl_rank_up", job, "role, rank", "min")
    return [
        _seen(history, line, line.values.index(0.0), "gone", "process gone")
        for line in lines
        if 0.0 in line.values
    ]


def _oom_kills(history: History, job: Labels) -> list[Event]:
    lines = history.most("rl_rank_cgroup_oom_kills_total", job, "role, rank")
    return [
        _seen(history, line, at, "oom_kill", "OOM kill in its cgroup")
        for line in lines
        for at, _ in line.rises()
    ]


def _seen(history: History, line: Line, at: int, kind: str, text: str) -> Event:
    """An event at the time of the look that saw it."""
    return Event(history.grid.time(at), kind, component_of(line.labels), "", text)


def _job_end(history: History, job: Labels) -> list[Event]:
    """The end of the job: Slurm answers, but does not list it as running any more."""
    grid = history.grid
    lines = history.most("slurm_job_info", job, "")
    if not lines:
        return []
    last = lines[0].known()[-1][0]
    if last >= grid.count - 1 - 3 * history.intervals.slurm / grid.step:
        return []
    return [Event(grid.time(last + 1), "job_end", component_of({}), "", "job no longer runs")]


def _text(line: Line) -> str:
    labels = line.labels
    if labels.get("error"):
        return labels["error"]
    if labels.get("pattern"):
        return f"log line: {labels['pattern']}"
    if labels.get("xid"):
        return f"Xid {labels['xid']}"
    if labels.get("sxid"):
        return f"NVSwitch error, SXid {labels['sxid']}"
    if labels.get("server"):
        return f"NFS server {labels['server']} does not respond"
    if labels.get("kind"):
        return f"out of service in Slurm ({labels['kind']})"
    whose = "" if labels.get("job_id") or labels.get("scope") == "system" else ", no rank's"
    return f"OOM kill ({labels.get('scope', '')}{whose})"
