"""The ranks of this node, as a table of the status page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from stagewatch.web.status.facts import Facts, Key, natural
from stagewatch.web.status.markup import (
    Content,
    Markup,
    Table,
    ago,
    chip,
    duration,
    foreign,
    join,
    percent,
    size,
    tag,
)
from stagewatch.web.status.sections import GPU, MAX_ROWS, Section, section

RANK = ("job_id", "role", "rank")
_MEANINGS = {
    "compute": "runs, and makes progress or at times yields",
    "spin": "runs without a pause and without progress",
    "parked": "asleep on a lock, an event or a timer",
    "io": "waits for storage",
    "stopped": "stopped by a signal",
    "traced": "held by a debugger",
    "gone": "ended without closing its record",
}
_RANK_TABLE = Table(
    (
        "Rank",
        "Role",
        "Job",
        "PID",
        "Wait class",
        "Stage",
        "Open for",
        "Step",
        "Last progress",
        "CPU",
        "Memory",
        "GPU",
    ),
    frozenset({"PID", "Open for", "Step", "Last progress", "CPU", "Memory"}),
)


_FAILURE = "First failure"
"""A column where a rank has one."""


def ranks(facts: Facts, empty: str, cpu: Mapping[Key, float]) -> Section:
    """One row a rank, those that are gone first; `cpu` holds the share of a core that each has
    lately used."""
    info = facts.labels("rl_rank_info", RANK)
    waits = wait_classes(facts)
    open_stages: dict[Key, tuple[Markup, float]] = {}
    for labels, seconds in facts.series("rl_rank_stage_open_seconds"):
        key = tuple([labels.get(name, "") for name in RANK])
        name = join(filter(None, (foreign(labels.get("stage"), 24), _substage(labels))), " ")
        open_stages[key] = (name, seconds)
    step = facts.by("rl_rank_step", RANK)
    progress = facts.by("rl_rank_progress_age_seconds", RANK)
    cpu_seconds = facts.sums("rl_rank_cpu_seconds_total", RANK)
    memory = facts.by("rl_rank_resident_memory_bytes", RANK)
    gpu_of = {uuid: gpu for gpu, uuid, _ in facts.labels("gpu_info", GPU)}
    failures = {
        key: join((foreign(labels.get("error"), 32), " in ", foreign(labels.get("stage"), 24)))
        for key, labels in facts.labels("rl_rank_first_failure_timestamp_seconds", RANK).items()
    }
    table = _RANK_TABLE
    if failures:
        table = replace(table, headings=(*table.headings, _FAILURE))
    keys = sorted(waits, key=lambda key: (waits[key] != "gone", natural(key)))

    def row(key: Key) -> list[Content]:
        job_id, role, rank = key
        labels = info.get(key, {})
        stage, open_for = open_stages.get(key, (None, None))
        used = percent(cpu[key]) if key in cpu else duration(cpu_seconds.get(key))
        return [
            foreign(rank, 12),
            foreign(role, 20),
            foreign(job_id, 24),
            foreign(labels.get("pid"), 12),
            wait_chip(waits[key], waits[key]),
            stage,
            duration(open_for),
            f"{step[key]:.0f}" if key in step else None,
            ago(progress[key]) if key in progress else None,
            used,
            size(memory.get(key)),
            gpu_of.get(labels.get("uuid", "")),
            *([failures.get(key)] if failures else []),
        ]

    rows = [row(key) for key in keys[:MAX_ROWS]]
    legend = _legend(waits[key] for key in keys[:MAX_ROWS])
    return section("Ranks", table, rows, len(keys), empty=empty, below=legend)


def _legend(waits: Iterable[str]) -> Markup:
    """What the wait classes that occur in the table mean."""
    shown = set(waits)
    lines = [tag("span", f"{wait}: {text}") for wait, text in _MEANINGS.items() if wait in shown]
    return tag("p", join(lines), class_="legend") if lines else Markup("")


def _substage(labels: Mapping[str, str]) -> Markup | None:
    """The framework's own name for a stage, where it says more than the canonical one."""
    own = labels.get("substage")
    return tag("small", foreign(own, 32)) if own and own != labels.get("stage") else None


def wait_classes(facts: Facts) -> dict[Key, str]:
    """The wait class of every rank of this node, empty where none is known."""
    known = facts.label("rl_rank_wait_class", "class", RANK)
    up = facts.by("rl_rank_up", RANK)
    keys = {*known, *up}
    for name in ("rl_rank_info", "rl_rank_stage_open_seconds"):
        keys |= facts.labels(name, RANK).keys()
    return {key: "gone" if up.get(key) == 0 else known.get(key, "") for key in keys}


def wait_chip(wait: str, text: str) -> Markup | None:
    """A wait class in its colour; an unheard-of one is grey."""
    if not wait:
        return None
    return chip(text[:24], f"wait-{wait}" if wait in _MEANINGS else "wait-unknown")
