"""Diagnoses a fault from the evidence of a run: its milestones, the suspects, and where it began
and surfaced.

docs/reports.md defines every number of this file."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagewatch.report.components import CONTROLLER, Component, Target, component_of
from stagewatch.report.deviations import Finding, steady
from stagewatch.report.events import ANY, Event, Fault, Firing, Hung, Milestone

PRESSING = ("critical", "warning")
"""A fault is clear once alerts of these severities have ended; notes stay for minutes."""

IDLE = "idle"
SLIGHT = 1.25
"""A severity below this is slight: one of hundreds of series exceeds its limit by chance."""

MOMENTS = (
    ("injected", "injected", "inject"),
    ("effect", "effect", "effect"),
    ("detected", "detected", "detect"),
    ("localised", "localised", "localise"),
    ("hung_at", "line named", "localise"),
    ("first_error", "first error", "error"),
    ("last_error", "last error", "error"),
    ("ended", "fault ended", "clear"),
    ("clear", "clear", "clear"),
)
"""The milestones with the words and the colour that mark them."""


Milestones = Mapping[str, Milestone]
"""All milestones of a run, by their names in `MOMENTS`."""


@dataclass(frozen=True, slots=True)
class View:
    """The evidence of a run: all of it, or as much as a controller's log and Slurm show."""

    findings: Sequence[Finding]
    events: Sequence[Event]
    firings: Sequence[Firing]
    hung: Sequence[Hung] = ()
    detects_by_eye: bool = False
    """Whether a deviation or an error alone counts as detection, as for a person who watches."""
    kernel: Sequence[Event] = ()
    """Events of the nodes from kernels and Slurm; they accuse nobody."""


def controller_view(view: View) -> View:
    """The part of the evidence that Slurm and the controller's log show."""

    def own(component: Component) -> bool:
        return component.role == CONTROLLER

    return View(
        [each for each in view.findings if own(each.component)],
        [each for each in view.events if own(each.component) or each.component.kind == "slurm"],
        [each for each in view.firings if each.labels.get("role") == CONTROLLER],
        [each for each in view.hung if own(each.component)],
        detects_by_eye=True,
    )


def milestones(fault: Fault, target: Target, view: View) -> Milestones:
    """The milestones of a fault, by the evidence of its run."""
    errors = [each for each in view.events if each.kind == "failure"]
    deviations = [
        Milestone(each.deviated, f"{each.component.label}: {each.title}")
        for each in steady(view.findings)
    ]
    alerts = [each for each in view.firings if each.severity]
    right = [each for each in view.firings if target.matches(component_of(each.labels))]
    detections: list[Milestone] = [each.milestone for each in alerts[:1]]
    if view.detects_by_eye:
        detections += [each.milestone for each in view.events[:1]] + deviations[:1]
    return {
        "injected": Milestone(fault.start, f"marker {fault.id}"),
        "effect": _earliest([*deviations[:1], *(each.milestone for each in view.events[:1])]),
        "detected": _earliest(detections),
        "localised": _earliest([each.milestone for each in right[:1]]),
        "hung_at": _earliest([each.milestone for each in view.hung[:1]]),
        "first_error": _earliest([each.milestone for each in errors[:1]]),
        "last_error": _earliest([each.milestone for each in errors[-1:]]),
        "ended": Milestone(fault.end, "marker last seen open" if fault.end else ""),
        "clear": _clear(view.firings),
    }


def _earliest(seen: Sequence[Milestone]) -> Milestone:
    return min(seen, key=lambda each: each.time or 0.0, default=Milestone())


def _clear(firings: Sequence[Firing]) -> Milestone:
    alerts = [each for each in firings if each.severity in PRESSING]
    if not alerts or any(each.open for each in alerts):
        return Milestone()
    last = max(alerts, key=lambda each: each.end)
    return Milestone(last.end, f"{last.name} is over, the last of {len(alerts)} alerts")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A component with the first evidence against it."""

    component: Component
    time: float
    stage: str
    evidence: str
    severity: float
    right: bool
    """Whether the fault was injected there."""
    waits: bool = False
    """Whether the evidence only shows that it waits for others."""

    @property
    def slight(self) -> bool:
        """Whether it exceeded its limit only a little."""
        return self.severity < SLIGHT


@dataclass(frozen=True, slots=True)
class Place:
    """A component and its stage; empty strings if not seen."""

    component: str = ""
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where a fault began and surfaced; `place` is the position of the right component among the
    suspects, None where it is not one."""

    began: Place
    surfaced: Place
    surfaced_how: str
    place: int | None


def suspects(view: View, target: Target, tie: float) -> list[Suspect]:
    """The suspects in the order in which to look at them.

    They are ordered by when they first went wrong; then follow those that exceeded their limit only
    a little, and last those that only wait.  Among deviations within `tie` seconds of each other,
    components that a verdict named come first, then the largest deviations; those of GPUs that
    ranks share come after those of ranks.  An error stands between the deviations before and after
    it, of whatever component.  An idle rank waits for others, so its age accuses nobody.
    """
    suspected: dict[Component, list[Suspect]] = {}
    failed: dict[Component, float] = {}

    def add(each: Finding | Event, when: float, evidence: str, severity: float) -> None:
        right = target.matches(each.component)
        waits = isinstance(each, Finding) and _waits(each)
        one = Suspect(each.component, when, each.stage, evidence, severity, right, waits)
        suspected.setdefault(each.component, []).append(one)

    for finding in steady(view.findings):
        if not (finding.signal.age and finding.stage == IDLE):
            add(finding, finding.deviated or 0.0, finding.title, finding.severity)
    for event in view.events:
        if event.component.kind != "slurm" and event.component.name != ANY:
            add(event, event.time, event.text, math.inf)
            failed.setdefault(event.component, event.time)
    seen = [one.time for each in suspected.values() for one in each if one.severity < math.inf]
    origin = min(seen, default=0.0)

    def bucket(when: float) -> float:
        return origin + (when - origin) // tie * tie

    def position(each: Suspect) -> tuple[bool, bool, float, float]:
        if each.severity == math.inf:
            return each.waits, each.slight, each.time, 0.0
        return each.waits, each.slight, bucket(each.time), -each.severity

    firsts = [min(each, key=position) for each in suspected.values()]
    errors = {each: failed.get(each.component, math.inf) for each in firsts}
    exact = sorted(when for each, when in errors.items() if when <= each.time)

    named = {component_of(each.labels) for each in view.firings if not each.severity}

    def order(each: Suspect) -> tuple[object, ...]:
        when = min(errors[each], each.time)
        before = bisect_left(exact, when)
        rank = each.waits, each.slight, bucket(when), before
        if when == errors[each]:
            return *rank, True, when, each.component
        shared = each.component.kind == "gpu"
        return *rank, False, each.component not in named, shared, -each.severity, each.component

    return sorted(firsts, key=order)


def _waits(finding: Finding) -> bool:
    """Whether the finding shows no more than waiting: an idle rank does less than usual or set a
    scalar before, or ranks that share a GPU use it less."""
    base, peak = finding.baseline, finding.peak
    less = base is not None and peak is not None and peak < base.low
    if finding.component.kind == "gpu":
        return less
    return finding.stage == IDLE and (less or finding.signal.name == "scalar")


def diagnose(
    events: Sequence[Event], ordered: Sequence[Suspect], stages_open: Counter[str]
) -> Diagnosis:
    """Where a fault began and surfaced.  `stages_open` counts the ranks in each stage at the
    detection."""
    began = Place(ordered[0].component.label, ordered[0].stage) if ordered else Place()
    errors = [each for each in events if each.kind == "failure"]
    elsewhere = [each for each in errors if each.component.label != began.component]
    surfaced, how = _surfaced(elsewhere or errors, stages_open)
    place = next((at for at, each in enumerate(ordered, 1) if each.right), None)
    return Diagnosis(began, surfaced, how, place)


def _surfaced(errors: Sequence[Event], stages_open: Counter[str]) -> tuple[Place, str]:
    """The place of the last error, which people read first; without errors, the stage in which most
    ranks hang."""
    if errors:
        last = errors[-1]
        return Place(last.component.label, last.stage), f"the last error: {last.text}"
    if stages_open:
        stage, count = stages_open.most_common(1)[0]
        return Place("", stage), f"no error; {count} ranks were in it when it was detected"
    return Place(), "no error, and no rank in a stage"
