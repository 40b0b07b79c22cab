"""The few facts at the top of the status page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from stagewatch.core.runner import Job
from stagewatch.web.status.facts import Facts, natural
from stagewatch.web.status.markup import Content, Markup, Tone, chip, duration, foreign, join, tag
from stagewatch.web.status.ranks import RANK, wait_chip, wait_classes
from stagewatch.web.status.sections import GPU, collector_state, temperature_tone


def headline(facts: Facts, jobs: Mapping[str, Job]) -> Markup:
    """One card a subject that this agent has a collector for."""
    subjects = (
        ("Ranks", _ranks, ("ranks", "stages")),
        ("Longest without progress", _progress, ("stages", "ranks")),
        ("GPUs", _gpus, ("gpu",)),
        ("Open or recent faults", _faults, ("faults",)),
    )
    cards: list[Markup] = []
    for title, fact, sources in subjects:
        found = [jobs[name] for name in sources if name in jobs]
        if any(job.answering() for job in found):
            cards.append(_card(title, *fact(facts)))
        elif found:  # nothing known is not the same as none
            cards.append(_card(title, "–", "not known"))
    cards.append(_card("Collectors that answer", *_collectors(jobs)))
    return tag("div", join(cards), class_="facts")


Fact = tuple[Content, Content, Tone]
"""The figure, what there is to say about it, and how alarming that is."""


def _card(title: str, value: Content, detail: Content, tone: Tone = "plain") -> Markup:
    return tag(
        "dl",
        tag("dt", title),
        tag("dd", value, class_="value"),
        tag("dd", detail, class_="detail"),
        class_=f"fact {tone}",
    )


def _ranks(facts: Facts) -> Fact:
    waits = wait_classes(facts)
    counts = Counter(wait or "unknown" for wait in waits.values())
    chips = [wait_chip(wait, f"{number} {wait}") for wait, number in counts.most_common(6)]
    return len(waits), join(chips, " "), "bad" if counts["gone"] else "plain"


def _progress(facts: Facts) -> Fact:
    ages = facts.by("rl_rank_progress_age_seconds", RANK)
    if not ages:
        return "–", "no rank reports progress", "plain"
    key = max(sorted(ages, key=natural), key=ages.__getitem__)
    job_id, role, rank = key
    who = join((foreign(role, 20), " rank ", foreign(rank, 12), ", job ", foreign(job_id, 24)))
    return duration(ages[key]), who, "plain"


def _gpus(facts: Facts) -> Fact:
    up = facts.by("gpu_up", GPU)
    degrees = facts.by("gpu_temperature_celsius", GPU)
    found = {*facts.labels("gpu_info", GPU), *up, *degrees}
    lost = sum(value == 0 for value in up.values())
    said = [f"{lost} lost"] if lost else []
    tone: Tone = "plain"
    if degrees:
        key = max(sorted(degrees, key=natural), key=degrees.__getitem__)
        slowdown = facts.by("gpu_temperature_slowdown_celsius", GPU).get(key)
        said.append(f"hottest {degrees[key]:.0f} °C (GPU {key[0]})")
        tone = temperature_tone(degrees[key], slowdown)
    return len(found), ", ".join(said), "bad" if lost else tone


def _faults(facts: Facts) -> Fact:
    kinds = Counter(
        labels.get("fault_type", "")
        for labels, value in facts.series("fault_injection_active")
        if value
    )
    detail = join([foreign(kind, 32) for kind, _ in kinds.most_common(3)], ", ")
    total = sum(kinds.values())
    return total, detail or "none marked", "warn" if total else "good"


def _collectors(jobs: Mapping[str, Job]) -> Fact:
    states = {name: collector_state(job) for name, job in jobs.items()}
    troubled = [(name, state) for name, state in states.items() if state[1] in ("bad", "warn")]
    value = f"{len(jobs) - len(troubled)} of {len(jobs)}"
    chips: Iterator[Markup] = (chip(f"{name} {word}", tone) for name, (word, tone) in troubled[:4])
    return value, join(chips, " ") or "all of them", "bad" if troubled else "good"
