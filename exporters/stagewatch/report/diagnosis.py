"""Diagnoses a fault from what a view shows: its moments, where to look, where it began and
surfaced.

docs/reports.md defines every number of this file.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from stagewatch.report.components import CONTROLLER, Component, Target, component_of
from stagewatch.report.deviations import Finding, steady
from stagewatch.report.events import ANY, Event, Fault, Firing, Hung
from stagewatch.stages import STAGES

PRESSING = ("critical", "warning")
"""Severities whose end makes it clear; a note such as FirstFailure stays for minutes."""

IDLE = "idle"
SLIGHT = 1.25
"""Times the limit.  Among hundreds of series, one exceeds its limit this little by chance."""

PIPELINE = STAGES[1:8]
"""The stages of a step, in order; after the last comes the first again."""


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
"""Milestones with the words and the colour that mark them."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """A moment and its evidence; without a `time` it was not seen."""

    time: float | None = None
    what: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """The evidence of a run: all of it, or as much as a controller's log and Slurm show."""

    name: str
    findings: Sequence[Finding]
    events: Sequence[Event]
    firings: Sequence[Firing]
    hung: Sequence[Hung] = ()
    detects_by_eye: bool = False
    """Whether a deviation or an error alone counts as detection, as for somebody who watches."""


@dataclass(frozen=True, slots=True)
class Milestones:
    """All milestones of a view."""

    injected: Milestone
    effect: Milestone
    detected: Milestone
    localised: Milestone
    hung_at: Milestone
    first_error: Milestone
    last_error: Milestone
    ended: Milestone
    clear: Milestone


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
        [each for each in view.hung if each.component.role == CONTROLLER],
        detects_by_eye=True,
    )


def milestones(fault: Fault, target: Target, view: View) -> Milestones:
    """The milestones of a fault, as a view shows them."""
    deviations = steady(view.findings)
    errors = [each for each in view.events if each.kind == "failure"]
    right = [each for each in view.firings if target.named_by(each.labels)]
    return Milestones(
        injected=Milestone(fault.start, f"marker {fault.id}"),
        effect=_effect(deviations, view.events),
        detected=_detected(view, deviations),
        localised=_fired(right),
        hung_at=_hung_at(view.hung),
        first_error=_event(errors[:1]),
        last_error=_event(errors[-1:]),
        ended=Milestone(fault.end, "marker last seen open" if fault.end else ""),
        clear=_clear(view.firings),
    )


def _effect(deviations: Sequence[Finding], events: Sequence[Event]) -> Milestone:
    first = [
        Milestone(each.deviated, f"{each.component.label}: {each.title}") for each in deviations[:1]
    ]
    first += [_event([each]) for each in events[:1]]
    return min(first, key=lambda each: each.time or 0.0, default=Milestone())


def _detected(view: View, deviations: Sequence[Finding]) -> Milestone:
    alerts = [each for each in view.firings if each.severity]
    moments = [_fired(alerts)]
    if view.detects_by_eye:
        moments += [_event(view.events[:1]), _effect(deviations, ())]
    seen = [each for each in moments if each.time is not None]
    return min(seen, key=lambda each: each.time or 0.0, default=Milestone())


def _fired(firings: Sequence[Firing]) -> Milestone:
    if not firings:
        return Milestone()
    first = firings[0]
    who = component_of(first.labels)
    return Milestone(
        first.start, first.name if who.kind == "slurm" else f"{first.name}: {who.label}"
    )


def _hung_at(hung: Sequence[Hung]) -> Milestone:
    if not hung:
        return Milestone()
    return Milestone(hung[0].time, f"{hung[0].component.label} at {hung[0].frame}")


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


@dataclass(frozen=True, slots=True)
class Suspect:
    """A component with the first evidence against it."""

    component: Component
    time: float
    stage: str
    evidence: str
    severity: float
    right: bool
    """Whether the fault was put there."""
    waits: bool = False
    """Whether the evidence shows no more than that it waits for others."""

    @property
    def slight(self) -> bool:
        """Whether it exceeded its limit only a little."""
        return self.severity < SLIGHT


@dataclass(frozen=True, slots=True)
class Place:
    """A component and its stage; empty strings where it was not seen."""

    component: str = ""
    group: str = ""
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`hops` and both counts of places are None where what they count was not seen."""

    began: Place
    surfaced: Place
    surfaced_how: str
    chain: tuple[str, ...]
    hops: int | None
    stages_between: int | None
    places_ranked: int | None
    places_unranked: int | None


def suspects(view: View, target: Target, tie: float) -> list[Suspect]:
    """Components in the order to look at them: by when they first went wrong; then those that never
    got far beyond their limit; last those that wait.

    Of deviations that were seen within `tie` seconds of each other the furthest comes first, those
    of GPUs that ranks share after those of ranks.  An error has a time of its own: what was seen
    before it comes before it, what was seen later after it, be it of the same component or not.
    A rank that is idle waits for others: its age accuses nobody.
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

    def order(each: Suspect) -> tuple[object, ...]:
        when = min(errors[each], each.time)
        before = bisect_left(exact, when)
        rank = each.waits, each.slight, bucket(when), before
        if when == errors[each]:
            return *rank, True, when, each.component
        shared = each.component.kind == "gpu"
        return *rank, False, shared, -each.severity, each.component

    return sorted(firsts, key=order)


def _waits(finding: Finding) -> bool:
    """Whether the finding shows mere waiting: an idle rank does less than usual or set a scalar
    before it idled, or ranks that share a GPU use it less."""
    base, peak = finding.baseline, finding.peak
    less = base is not None and peak is not None and peak < base.low
    if finding.component.kind == "gpu":
        return less
    return finding.stage == IDLE and (less or finding.signal.name == "scalar")


def diagnose(
    view: View,
    ordered: Sequence[Suspect],
    target: Target,
    roles: Mapping[str, int],
    stages_open: Counter[str],
) -> Diagnosis:
    """Where a fault began and surfaced.  `roles` counts the ranks of each role, `stages_open` those
    in each stage at the detection."""
    began = Place()
    if ordered:
        first = ordered[0]
        began = Place(first.component.label, first.component.group, first.stage)
    errors = [each for each in view.events if each.kind == "failure"]
    elsewhere = [each for each in errors if each.component.label != began.component]
    surfaced, how = _surfaced(elsewhere or errors, stages_open)
    chain = _chain(ordered, began, surfaced)
    between = stage_distance(began.stage, surfaced.stage, {each.stage for each in view.findings})
    hops = len(chain) - 1 if surfaced.group and chain else None
    if hops == 0 and between:
        hops = between
    place = next((at for at, each in enumerate(ordered, 1) if each.right), None)
    return Diagnosis(
        began=began,
        surfaced=surfaced,
        surfaced_how=how,
        chain=chain,
        hops=hops,
        stages_between=between,
        places_ranked=place if target.names else None,
        places_unranked=_unranked(ordered, target, surfaced, roles),
    )


def stage_distance(began: str, surfaced: str, seen: Collection[str] = PIPELINE) -> int | None:
    """Stages onwards from one to the other, round the step, of those that the job has (`seen`);
    None if one is none of a step's."""
    if began not in PIPELINE or surfaced not in PIPELINE:
        return None
    own = [stage for stage in PIPELINE if stage in seen or stage in (began, surfaced)]
    return (own.index(surfaced) - own.index(began)) % len(own)


def _surfaced(errors: Sequence[Event], stages_open: Counter[str]) -> tuple[Place, str]:
    """The place of the last error, which one reads first; without errors, where most ranks hang."""
    if errors:
        last = errors[-1]
        place = Place(last.component.label, last.component.group, last.stage)
        return place, f"the last error: {last.text}"
    if stages_open:
        stage, count = stages_open.most_common(1)[0]
        return Place("", "", stage), f"no error; {count} ranks were in it when it was detected"
    return Place(), "no error, and no rank in a stage"


def _chain(ordered: Sequence[Suspect], began: Place, surfaced: Place) -> tuple[str, ...]:
    """Groups of components in the order they went wrong, from the first to where it surfaced."""
    groups: list[str] = []
    for each in sorted(ordered, key=lambda one: one.time):
        group = each.component.group
        if each.component.kind == "rank" and not each.waits and group not in groups:
            groups.append(group)
    if began.group and began.group not in groups[:1]:
        groups = [began.group, *(group for group in groups if group != began.group)]
    if surfaced.group in groups:
        return tuple(groups[: groups.index(surfaced.group) + 1])
    return (*groups[:1], surfaced.group) if surfaced.group and groups else tuple(groups[:1])


def _unranked(
    ordered: Sequence[Suspect], target: Target, surfaced: Place, roles: Mapping[str, int]
) -> int | None:
    """How many logs to read: every rank of the role where it surfaced and of the one where it was
    put."""
    origins = {each.component.role for each in ordered if each.right and each.component.role}
    origins |= {
        role
        for role, count in roles.items()
        for rank in range(count)
        if target.matches(Component("rank", role, str(rank)))
    }
    if not origins:
        return None
    looked_at = origins | ({surfaced.group} & set(roles) or {CONTROLLER} & set(roles))
    return sum(roles.get(role, 0) for role in looked_at)
