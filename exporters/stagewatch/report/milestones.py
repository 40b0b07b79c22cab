"""The moments of an experiment: injection, effect, detection, localisation, errors, clearing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.components import CONTROLLER, Component, Target, component_of
from stagewatch.report.events import Event
from stagewatch.report.fault import Fault
from stagewatch.report.findings import Finding
from stagewatch.report.firing import Firing

WRONG_SHOWN = 5

PRESSING = ("critical", "warning")
"""Severities whose end makes it clear; a note such as FirstFailure stays for minutes."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """A moment, and what showed it; no `time`: not seen."""

    time: float | None = None
    what: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """What can be seen: everything, or as much as a controller's log and Slurm tell."""

    name: str
    findings: Sequence[Finding]
    events: Sequence[Event]
    firings: Sequence[Firing]
    detects_by_eye: bool = False
    """Whether a deviation or an error alone counts as detection, as for somebody who watches."""


@dataclass(frozen=True, slots=True)
class Milestones:
    """Each of them; `misnamed` are components that verdicts named before the right one."""

    injected: Milestone
    effect: Milestone
    detected: Milestone
    localised: Milestone
    first_error: Milestone
    last_error: Milestone
    ended: Milestone
    clear: Milestone
    misnamed: tuple[str, ...]


def controller_view(view: View) -> View:
    """The same run as Slurm and the controller alone show it."""
    return View(
        "controller",
        [each for each in view.findings if each.component.role == CONTROLLER],
        [
            each
            for each in view.events
            if each.component.role == CONTROLLER or each.component.kind == "slurm"
        ],
        [each for each in view.firings if each.labels.get("role") == CONTROLLER],
        detects_by_eye=True,
    )


def steady(findings: Sequence[Finding]) -> list[Finding]:
    """Those that deviated and can be trusted, earliest first."""
    chosen = [each for each in findings if each.deviated is not None and each.steady]
    return sorted(chosen, key=lambda each: (each.deviated or 0.0, -each.severity))


def milestones(fault: Fault, target: Target, view: View) -> Milestones:
    """What a view shows of a fault."""
    deviations = steady(view.findings)
    errors = [each for each in view.events if each.kind == "failure"]
    named = [each for each in view.firings if names_component(each)]
    right = [each for each in named if target.named_by(each.labels)]
    return Milestones(
        injected=Milestone(fault.start, f"marker {fault.id}"),
        effect=_effect(deviations, view.events),
        detected=_detected(view, deviations),
        localised=_fired(right),
        first_error=_event(errors[:1]),
        last_error=_event(errors[-1:]),
        ended=Milestone(fault.end, "marker last seen open" if fault.end else ""),
        clear=_clear(view.firings),
        misnamed=_misnamed(named, right, target),
    )


def names_component(firing: Firing) -> bool:
    """Whether an alert or verdict points at one rank, mount or node, rather than at a job."""
    return component_of(firing.labels).kind != "slurm"


def describe(finding: Finding) -> str:
    """A deviation in a few words."""
    return f"{finding.component.label}: {finding.title}"


def _effect(deviations: Sequence[Finding], events: Sequence[Event]) -> Milestone:
    first = [Milestone(each.deviated, describe(each)) for each in deviations[:1]]
    first += [_event([each]) for each in events[:1]]
    return min(first, key=lambda each: each.time or 0.0, default=Milestone())


def _detected(view: View, deviations: Sequence[Finding]) -> Milestone:
    alerts = [each for each in view.firings if each.severity]
    found = [_fired(alerts)]
    if view.detects_by_eye:
        found += [_event(view.events[:1]), _effect(deviations, ())]
    seen = [each for each in found if each.time is not None]
    return min(seen, key=lambda each: each.time or 0.0, default=Milestone())


def _fired(firings: Sequence[Firing]) -> Milestone:
    if not firings:
        return Milestone()
    first = firings[0]
    who = component_of(first.labels)
    return Milestone(
        first.start, first.name if who.kind == "slurm" else f"{first.name}: {who.label}"
    )


def _event(events: Sequence[Event]) -> Milestone:
    if not events:
        return Milestone()
    event = events[0]
    place = f" in {event.stage}" if event.stage else ""
    return Milestone(event.time, f"{event.component.label}{place}: {event.text}")


def _clear(firings: Sequence[Firing]) -> Milestone:
    alerts = [each for each in firings if each.severity in PRESSING]
    if not alerts or any(each.open for each in alerts):
        return Milestone()
    last = max(alerts, key=lambda each: each.end)
    return Milestone(last.end, f"{last.name} is over, the last of {len(alerts)} alerts")


def _misnamed(named: Sequence[Firing], right: Sequence[Firing], target: Target) -> tuple[str, ...]:
    """Ranks named no later than the right one; a node or a mount is no accusation."""
    until = right[0].start if right else float("inf")
    wrong: list[Component] = []
    for each in named:
        who = component_of(each.labels)
        if (
            who.kind == "rank"
            and each.start <= until
            and not target.matches(who)
            and who not in wrong
        ):
            wrong.append(who)
    return tuple(each.label for each in wrong[:WRONG_SHOWN])
