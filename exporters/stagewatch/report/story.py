"""Tells a report in words: three sentences to begin with, and a time line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stagewatch.report.components import Component, component_of
from stagewatch.report.diagnosis import MOMENTS, Suspect, View
from stagewatch.report.events import Event, Firing, Hung, Milestone
from stagewatch.report.experiment import Experiment
from stagewatch.report.goodput import Goodput
from stagewatch.report.ledger import GROUPS
from stagewatch.report.periods import amount, clock, date, portion, span
from stagewatch.report.phases import Phases
from stagewatch.report.recovery import ClusterRecovery, Recovery

EVENTS = {
    "failure": "exception",
    "gone": "process gone",
    "oom_kill": "OOM kill",
    "log": "log",
    "xid": "GPU error",
    "job_end": "job ended",
    "kernel": "kernel",
    "slurm": "Slurm",
}
"""Words for the kinds of events."""

SHORT_BASELINE = 60.0
"""Seconds of a baseline below which it says little."""
TOGETHER_SECONDS = 1.0
MANY = 4
"""At least so many equal events of a role within a second share a line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the time line; `colour` is the name of a milestone's colour, or empty."""

    time: float
    words: str
    what: str
    colour: str = ""


def entries(experiment: Experiment) -> list[Entry]:
    """Milestones, events, alerts and verdicts in order of time, without repeated entries."""
    view = experiment.view
    told: list[tuple[Milestone, str, str]] = [
        (experiment.milestones[name], words, colour) for name, words, colour in MOMENTS
    ]
    told += [(each, words, "") for each, words in _events([*view.events, *view.kernel])]
    told += [(each.milestone, "alert" if each.severity else "verdict", "") for each in view.firings]
    merged: dict[tuple[float, str], Entry] = {}
    for milestone, words, colour in told:
        if milestone.time is None:
            continue
        key = (milestone.time, milestone.what)
        other = merged.get(key)
        if other is None:
            merged[key] = Entry(milestone.time, words, milestone.what, colour)
        elif words not in other.words:
            both = f"{other.words}, {words}"
            merged[key] = Entry(other.time, both, other.what, other.colour or colour)
    return sorted(merged.values(), key=lambda each: each.time)


def unseen(experiment: Experiment) -> list[str]:
    """The milestones that were not seen."""
    return [words for name, words, _ in MOMENTS if experiment.milestones[name].time is None]


def _events(events: Iterable[Event]) -> Iterator[tuple[Milestone, str]]:
    """Events with their words; many equal events that are close in time become one."""
    groups: list[list[Event]] = []
    for event in sorted(events, key=lambda each: each.time):
        group = next((each for each in reversed(groups) if _together(each[0], event)), None)
        if group is None:
            groups.append([event])
        else:
            group.append(event)
    for group in groups:
        words = EVENTS.get(group[0].kind, group[0].kind)
        if len(group) < MANY:
            yield from ((each.milestone, words) for each in group)
            continue
        first = group[0].milestone
        others = f"{first.what}, and {len(group) - 1} other ranks within a second"
        yield Milestone(first.time, others), words


def _together(one: Event, other: Event) -> bool:
    def kind(event: Event) -> tuple[str, ...]:
        return event.kind, event.text, event.stage, event.component.kind, event.component.role

    return (
        one.component.kind == "rank"
        and kind(one) == kind(other)
        and other.time - one.time < TOGETHER_SECONDS
    )


def experiment_opening(experiment: Experiment) -> list[str]:
    """Three sentences: what went wrong where and when, how it showed, and what it cost."""
    return [_began(experiment), _showed(experiment), _cost(experiment)]


def _began(experiment: Experiment) -> str:
    """The first suspect with its evidence; or what verdicts and alerts say."""
    fault, view = experiment.fault, experiment.view
    job = f"job {experiment.job_id}" + (f" (cluster {fault.cluster})" if fault.cluster else "")
    where = f" on {experiment.target}" if experiment.target.names else ""
    injected = (
        f"{fault.kind} was injected{where} at {clock(fault.start)} UTC on {date(fault.start)}"
    )
    for first in experiment.suspects[:1]:
        stage = f", in {first.stage}," if first.stage else ""
        after = span(experiment.after(first.time))
        # Within two looks, a verdict and the distance from the baseline decide whom to look at.
        earliest = min(each.time for each in experiment.suspects if each.waits == first.waits)
        wrong = "went wrong first" if first.time == earliest else "went wrong"
        who = f"{capital(first.component.label)} of {job} {wrong}{stage} {after} after {injected}"
        return f"{who}: {_evidence(first, view)}."
    same = f"no series left its baseline{_short(experiment)}"
    for verdict in view.firings:
        if said := _verdict(verdict, component_of(verdict.labels), view.hung):
            who = component_of(verdict.labels).label
            after = span(experiment.after(verdict.start))
            return f"{capital(who)} of {job} was named {after} after {injected}: {said}; {same}."
    alert = experiment.milestones["detected"]
    if alert.time is not None:
        after = span(experiment.after(alert.time))
        return f"The first alert, {alert.what}, came {after} after {injected}, in {job}; {same}."
    return f"Nothing visibly went wrong in {job} after {injected}: {same}, and no alert fired."


def _short(experiment: Experiment) -> str:
    """Says of a short baseline that it is short."""
    seconds = experiment.baseline.seconds
    return f", which has only {span(seconds)}" if seconds < SHORT_BASELINE else ""


def lines_of(hung: Iterable[Hung], component: Component) -> list[str]:
    """The lines of code in which a component hung."""
    return [f"at {each.frame}" for each in hung if each.component == component]


def _verdict(firing: Firing, component: Component, hung: Sequence[Hung]) -> str:
    """A verdict on a rank in words, with the line in which it hung; empty for alerts."""
    evidence = firing.labels.get("evidence", "").replace("_", " ")
    if not evidence or component.kind != "rank" or component_of(firing.labels) != component:
        return ""
    return ", ".join([evidence, *lines_of(hung, component)[:1]])


def _evidence(first: Suspect, view: View) -> str:
    """The first evidence of a suspect (its exception or death, if within a second), then the
    verdict."""
    near = (
        each.text
        for each in view.events
        if each.component == first.component
        and each.kind != "log"
        and abs(each.time - first.time) < TOGETHER_SECONDS
    )
    evidence = next(near, first.evidence)
    verdicts = (_verdict(each, first.component, view.hung) for each in view.firings)
    if verdict := next(filter(None, verdicts), ""):
        evidence += f", later the verdict was {verdict}"
    return evidence


def _showed(experiment: Experiment) -> str:
    """Deaths, the last error and the alerts, in order of time."""
    view = experiment.view
    detected, localised = (experiment.milestones[name] for name in ("detected", "localised"))
    parts: list[tuple[float, str]] = []

    def add(when: float | None, words: str) -> None:
        if when is not None:
            parts.append((when, f"{words} after {span(experiment.after(when))}"))

    def of(kind: str) -> list[Event]:
        return [each for each in view.events if each.kind == kind]

    if kills := of("oom_kill"):
        add(kills[0].time, f"{_who(kills)} killed for lack of memory")
    elif gone := of("gone"):
        add(gone[0].time, f"{_who(gone)} gone")
    for last in of("failure")[-1:]:
        stage = f" in {last.stage}" if last.stage else ""
        add(last.time, f"the last error, {last.text}, was that of {last.component.label}{stage},")
    add(detected.time, f"the first alert was {detected.what},")
    if localised.time != detected.time:
        verdicts = [each.milestone for each in view.firings if not each.severity]
        by = "the verdict " if localised in verdicts else ""
        add(localised.time, f"{by}{localised.what} was the first to name the place,")
    told = [words for _, words in sorted(parts)]
    if detected.time is None:
        told.append("no alert fired")
    if localised.time is None:
        told.append("no alert or verdict named the place of the fault")
    if not of("failure") and experiment.diagnosis.surfaced.stage:
        stage = experiment.diagnosis.surfaced.stage
        told.append(f"no error was raised, and most ranks hung in {stage}")
    return capital("; ".join(told)) + "."


def _cost(experiment: Experiment) -> str:
    cost = experiment.cost
    if cost.standstill is None or cost.usual_step is None:
        return "What it cost is not known, since the job's steps were not seen."
    # Samples cannot tell steps that are shorter than the time between them.
    most = "at most " if cost.usual_step <= experiment.grid.step else ""
    usual = f"a step usually takes {most}{span(cost.usual_step)}"
    if not cost.stopped:
        return f"The job went on: the longest pause was {span(cost.standstill.seconds)}; {usual}."
    ends = "then it went on" if cost.goes_on else "and none until the end of the report"
    gpus = cost.gpu_seconds / 3600
    idle = f"; {gpus:.2f} GPU-hours stood still" if gpus >= 0.01 and not experiment.recorded else ""
    return f"The job completed no step for {span(cost.standstill.seconds)}, {ends} ({usual}){idle}."


def recovery_opening(recovery: Recovery, cluster: ClusterRecovery) -> list[str]:
    """Three sentences: whether the objective was met, the worst incident, and what it cost."""
    hit = [each for each in cluster.incidents if each.downtime]
    name = f"cluster {cluster.cluster}" if cluster.cluster else "the cluster"
    slo, count = cluster.slo, len(cluster.incidents) + cluster.left_out
    jobs = f"{len(hit)} of {count} incidents hit a job" if count > 1 else "there was no incident"
    if count == 1:
        jobs = f"there was one incident, which hit {'a' if hit else 'no'} job"
    objective = f"{round(100 * slo.objective, 4):g} %"
    if recovery.asked.judged:
        verdict = {"met": "was met", "missed": "was missed", "undecided": "cannot be decided"}
        first = f"The objective of {objective} {verdict[slo.verdict]} on {name}: {jobs}."
    else:
        first = f"On {name} {jobs}."
    if not hit:
        return [first, "No job was interrupted.", "No downtime counts."]
    worst = max(hit, key=lambda each: each.downtime.seconds if each.downtime else 0.0)
    wasted = cluster.wasted_gpu_hours
    cost = f"{'Together they' if len(hit) > 1 else 'It'} cost {span(slo.downtime)} of downtime"
    if wasted:
        cost += f" and {wasted:.2g} GPU-hours"
    if recovery.asked.judged:
        cost += f", of an error budget of {span(slo.budget)}"
    return [first, _incident(worst, len(hit) > 1), f"{cost}."]


def _incident(worst: Phases, several: bool) -> str:
    where = ", ".join(worst.incident.nodes) or ", ".join(
        f"job {job}" for job in worst.incident.jobs
    )
    which = "The longest began" if several else "It began"
    jobs = [job.job_id for job in worst.hit]
    whose = f"job {', '.join(jobs)}" if len(jobs) < 4 else f"{len(jobs)} jobs"
    seconds = worst.downtime.seconds if worst.downtime else 0.0
    found = (
        f"{worst.detected_by} was the first alert, after {span(worst.detected - worst.began)}"
        if worst.detected is not None
        else "no alert fired"
    )
    back = f"{whose} made progress again after {span(seconds)}"
    if not worst.restored:
        back = f"{whose} did not come back in the {span(seconds)} that the report looked"
    began = f"at {clock(worst.began)} UTC on {date(worst.began)}"
    return f"{which} on {where} {began} ({worst.incident.kinds}): {found}, and {back}."


def goodput_opening(goodput: Goodput) -> list[str]:
    """One sentence: where the paid hours went."""
    asked, total = goodput.asked, goodput.total
    hours = amount(total.seconds / 3600, "GPU-hours") + _money(goodput, total.cost)
    gpus = f"{round(sum(each.gpus for each in goodput.clusters)):,} GPUs"
    held = f"the {gpus} of {_clusters(goodput)} were paid for {hours}"
    told = [
        f"{portion(seconds / total.seconds)} {words}"
        for words, seconds in _groups(goodput)
        if seconds >= 0.0005 * total.seconds
    ]
    return [f"{asked.when} {held}: {', '.join(told)}."]


def _groups(goodput: Goodput) -> list[tuple[str, float]]:
    """The groups of states in words with their GPU-seconds: training first, then the largest."""
    groups = goodput.total.groups
    rest = sorted((name for name in groups if name != "productive"), key=lambda n: -groups[n])
    return [(GROUPS[name], groups[name]) for name in ("productive", *rest)]


def _clusters(goodput: Goodput) -> str:
    names = [each.cluster for each in goodput.clusters]
    if len(names) > 1:
        return f"{len(names)} clusters"
    return f"cluster {names[0]}" if names[0] else "the cluster"


def _money(goodput: Goodput, cost: float | None) -> str:
    return "" if cost is None else f" ({amount(cost, goodput.asked.prices.currency)})"


def incident_in_words(phases: Phases) -> str:
    """One incident: where and when it began, and how it ended."""
    return _incident(phases, several=False) if phases.downtime else "No job was interrupted."


def why_no_figure(experiment: Experiment) -> str:
    """Why a figure of this run is missing."""
    judged = sum(each.baseline is not None for each in experiment.view.findings)
    if judged:
        return f"There is no figure: none of {judged} series left its baseline for long enough."
    short = _short(experiment)
    return f"There is no figure: no series has enough samples in the baseline{short}."


def _who(events: Iterable[Event]) -> str:
    """`rollout 3 was`, or `train 0 and 7 more were`."""
    first, *more = dict.fromkeys(each.component.label for each in events)
    return f"{first} and {len(more)} more were" if more else f"{first} was"


def capital(text: str) -> str:
    """The text with its first letter large."""
    return text[:1].upper() + text[1:]
