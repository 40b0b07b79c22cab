"""Things that happened at a moment: exceptions, deaths, OOM kills, lines of logs, ends of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stagewatch.report.components import Component, component_of
from stagewatch.report.history import History, Line

MOMENT_SECONDS = 1.0

ANY = "?"
"""The rank of an event of which only the role is known."""


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is failure, gone, oom_kill, log, xid or job_end."""

    time: float
    kind: str
    component: Component
    stage: str
    text: str


def events_of(
    history: History, job: str, nodes: str, roles: Mapping[str, int], since: float
) -> list[Event]:
    """What happened to a job and its nodes from a time on."""
    first = _stamped(history, f"rl_rank_first_failure_timestamp_seconds{{{job}}}", "failure")
    found = [
        *first,
        *_later_failures(history, job, roles, first),
        *_stamped(history, f"log_oom_kill_last_timestamp_seconds{{{job}}}", "oom_kill"),
        *_stamped(
            history,
            f'log_oom_kill_last_timestamp_seconds{{{nodes}, job_id="", scope="system"}}',
            "oom_kill",
        ),
        *_stamped(history, f"log_first_match_timestamp_seconds{{{job}}}", "log"),
        *_stamped(history, f"gpu_xid_last_timestamp_seconds{{{nodes}}}", "xid"),
        *_gone(history, job),
        *_risen(history, f"rl_rank_cgroup_oom_kills_total{{{job}}}"),
        *_job_end(history, job),
    ]
    # Stamps are of another clock than the scrape's.
    seen = {_staged(event, first) for event in found if event.time >= since - 0.5}
    return sorted(seen, key=lambda event: event.time)


def _staged(event: Event, first: Sequence[Event]) -> Event:
    """With the stage that its rank's first exception left, if it is of the same moment: a line of a
    log tells none."""
    stages = (
        other.stage
        for other in first
        if other.component == event.component and abs(other.time - event.time) < MOMENT_SECONDS
    )
    return event if event.stage else replace(event, stage=next(stages, ""))


def _stamped(history: History, selector: str, kind: str) -> list[Event]:
    """A series whose value is the time: each new value is an event."""
    by = "role, rank, stage, error, pattern, node, gpu, xid, scope, job_id"
    lines = history.lines(f"max by ({by}) (last_over_time({selector}[{{window}}]))", kind)
    return [
        Event(value, kind, component_of(line.labels), line.labels.get("stage", ""), _text(line))
        for line in lines
        for value in {value for value in line.values if value is not None}
    ]


def _later_failures(
    history: History, job: str, roles: Mapping[str, int], first: Sequence[Event]
) -> list[Event]:
    """Exceptions that were not the first of their rank.  They are counted by role and stage, so
    that the rank is known only where the role has but one."""
    known = {(event.component.role, event.stage, event.text) for event in first}
    query = (
        "sum by (role, stage, error) "
        f"(last_over_time(rl_stage_failures_total{{{job}}}[{{window}}]))"
    )
    found = []
    for line in history.lines(query, "failures"):
        role, stage = line.labels.get("role", ""), line.labels.get("stage", "")
        error = line.labels.get("error", "")
        before: float | None = 0.0 if line.values[:1] == [None] else None
        for index, value in enumerate(line.values):
            if value is None:
                continue
            rose = before is not None and value > before
            if rose and (role, stage, error) not in known:
                rank = "0" if roles.get(role) == 1 else ANY
                component = Component("rank", role, rank)
                found.append(Event(history.grid.time(index), "failure", component, stage, error))
            before = value
    return found


def _gone(history: History, job: str) -> list[Event]:
    query = f"min by (role, rank) (last_over_time(rl_rank_up{{{job}}}[{{window}}]))"
    return [
        Event(_first(history, line, 0.0), "gone", component_of(line.labels), "", "process gone")
        for line in history.lines(query, "ranks that died")
        if 0.0 in line.values
    ]


def _first(history: History, line: Line, value: float) -> float:
    return history.grid.time(line.values.index(value))


def _risen(history: History, selector: str) -> list[Event]:
    query = f"max by (role, rank) (last_over_time({selector}[{{window}}]))"
    found = []
    for line in history.lines(query, "OOM kills"):
        before: float | None = None
        for index, value in enumerate(line.values):
            if value is not None and before is not None and value > before:
                when = history.grid.time(index)
                found.append(
                    Event(when, "oom_kill", component_of(line.labels), "", "OOM kill in its cgroup")
                )
            before = before if value is None else value
    return found


def _job_end(history: History, job: str) -> list[Event]:
    """Slurm no longer calls the job running, though it still answers."""
    query = f"max (last_over_time(slurm_job_info{{{job}}}[{{window}}]))"
    slurm = component_of({})
    lines = history.lines(query, "the job in Slurm")
    if not lines:
        return []
    known = [index for index, value in enumerate(lines[0].values) if value is not None]
    if known[-1] >= history.grid.count - 1 - 3 * history.intervals.slurm / history.grid.step:
        return []
    when = history.grid.time(known[-1] + 1)
    return [Event(when, "job_end", slurm, "", "job no longer runs")]


def _text(line: Line) -> str:
    labels: Mapping[str, str] = line.labels
    if labels.get("error"):
        return labels["error"]
    if labels.get("pattern"):
        return f"log line: {labels['pattern']}"
    if labels.get("xid"):
        return f"Xid {labels['xid']}"
    return f"OOM kill ({labels.get('scope', '')})"
