"""Tables of the status page: GPUs, faults, collectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stagewatch.core.runner import Job
from stagewatch.faults.collector import HOLD_SECONDS
from stagewatch.web.status.facts import Facts, Key, natural
from stagewatch.web.status.markup import (
    Content,
    Markup,
    Table,
    Tone,
    ago,
    bar,
    chip,
    counted,
    duration,
    foreign,
    join,
    moment,
    percent,
    size,
    tag,
)

MAX_ROWS = 256
"""Most rows of a table; the rest is counted beneath it."""

WARM_CELSIUS = 75.0
HOT_CELSIUS = 85.0
"""Where the alert `GPUTemperatureHigh` begins."""

GPU = ("gpu", "uuid", "mig")

_GPU_TABLE = Table(("GPU", "Model", "Temperature", "Utilisation", "Memory", "Power", "Job"))
_FAULT_TABLE = Table(("Fault", "Type", "Target", "Expected in", "Scenario", "Began"))
_COLLECTOR_TABLE = Table(
    ("Collector", "State", "Data from", "Took", "Every", "Skipped", "Message"),
    frozenset({"Data from", "Took", "Every", "Skipped"}),
)


@dataclass(frozen=True, slots=True)
class Section:
    """A table with its heading, or the sentence that stands for an empty one."""

    title: str
    rows: int
    body: Markup
    badge: str = ""

    def render(self) -> Markup:
        """The section's HTML."""
        number = tag("span", self.rows, class_="count") if self.rows else Markup("")
        heading = tag("h2", self.title, " ", number, " ", self.badge)
        return tag("section", heading, self.body, class_=self.title.rsplit(" ", 1)[-1].lower())


def gpus(facts: Facts, empty: str) -> Section:
    """One row a GPU or MIG instance."""
    info = facts.labels("gpu_info", GPU)
    temperature = facts.by("gpu_temperature_celsius", GPU)
    slowdown = facts.by("gpu_temperature_slowdown_celsius", GPU)
    utilization = facts.by("gpu_utilization_ratio", GPU)
    up = facts.by("gpu_up", GPU)
    used = facts.by("gpu_memory_used_bytes", GPU)
    total = facts.by("gpu_memory_total_bytes", GPU)
    power = facts.by("gpu_power_watts", GPU)
    limit = facts.by("gpu_power_limit_watts", GPU)
    jobs: dict[Key, list[Markup]] = {}
    for labels, _ in facts.series("gpu_job_info"):
        key = tuple([labels.get(name, "") for name in GPU])
        held = join(
            filter(None, (foreign(labels.get("job_id"), 16), foreign(labels.get("user"), 16))), " "
        )
        jobs.setdefault(key, []).append(held)
    keys = sorted({*info, *up, *temperature, *utilization, *used, *power}, key=natural)
    recorded = [key for key in keys if info.get(key, {}).get("source") == "recorded"]

    def row(key: Key) -> list[Content]:
        labels = info.get(key, {})
        name = labels.get("model") or labels.get("type") or key[1]
        badges = [chip("recorded", "recorded")] if key in recorded else []
        if up.get(key) == 0:
            badges.append(chip("lost", "bad"))
        return [
            "/".join(filter(None, (key[0], key[2]))) or "?",
            join((foreign(name, 32), *badges), " "),
            _temperature(temperature.get(key), slowdown.get(key)),
            bar(utilization.get(key), "plain", percent(utilization.get(key))),
            _share(used.get(key), total.get(key), size, "warn"),
            _share(power.get(key), limit.get(key), _watts, "plain"),
            join(jobs[key], ", ") if key in jobs else None,
        ]

    note = "recorded: replayed from a file, not measured on this machine" if recorded else ""
    badge = tag("span", note, class_="chip recorded") if note else Markup("")
    rows = [row(key) for key in keys[:MAX_ROWS]]
    return section("GPUs", _GPU_TABLE, rows, len(keys), empty=empty, badge=badge)


def _temperature(celsius: float | None, slowdown: float | None) -> Content:
    if celsius is None:
        return None
    tone = temperature_tone(celsius, slowdown)
    shown = tag("span", f"{celsius:.0f} °C", class_=tone if tone != "good" else None)
    if slowdown:
        shown = join((shown, tag("small", f" slows at {slowdown:.0f}")))
    return bar(celsius / (slowdown or 100), tone, shown)


def temperature_tone(celsius: float, slowdown: float | None) -> Tone:
    """How alarming a temperature is; `slowdown` is the device's own limit, if it has one."""
    if celsius >= min(HOT_CELSIUS, slowdown or HOT_CELSIUS):
        return "bad"
    return "warn" if celsius >= WARM_CELSIUS else "good"


def _watts(watts: float) -> str:
    return f"{watts:.0f} W"


def _share(
    used: float | None, of: float | None, show: Callable[[float], Content], full: Tone
) -> Content:
    if used is None:
        return None
    if not of:
        return bar(None, "plain", show(used))
    text = join((show(used), tag("small", f" of {show(of)}")))
    return bar(used / of, full if used / of > 0.95 else "plain", text)


def faults(facts: Facts, empty: str) -> Section:
    """One row a fault that is open, or that began so lately that it is still shown."""
    started = facts.by("fault_injection_start_timestamp_seconds", ("id",))
    found = [labels for labels, value in facts.series("fault_injection_active") if value]
    rows: list[list[Content]] = [
        [
            foreign(labels.get("id"), 40),
            foreign(labels.get("fault_type"), 32),
            foreign(labels.get("target_worker"), 40),
            foreign(labels.get("expected_failure_stage"), 24),
            foreign(labels.get("scenario"), 24),
            moment(started.get((labels.get("id", ""),))),
        ]
        for labels in found[:MAX_ROWS]
    ]
    shown = f"Each is shown for {HOLD_SECONDS:.0f} s from its beginning, also if it is closed."
    below = tag("p", shown, class_="legend")
    title = "Open or recent faults"
    return section(title, _FAULT_TABLE, rows, len(found), empty=empty, below=below)


def collectors(jobs: Mapping[str, Job], now: float) -> Section:
    """One row a collector; `now` is Unix time."""
    rows: list[list[Content]] = [
        [
            job.name,
            chip(*collector_state(job)),
            ago(max(0.0, now - job.last_success)) if job.last_success else None,
            duration(job.duration),
            duration(job.interval),
            job.skipped() or None,
            foreign(_message(job), 160) or "",
        ]
        for job in jobs.values()
    ]
    empty = "No collector is enabled."
    return section("Collectors", _COLLECTOR_TABLE, rows, len(rows), empty=empty)


def collector_state(job: Job) -> tuple[str, Tone]:
    """What a collector is doing, in a word or two."""
    if job.stuck_seconds():
        return "stuck", "bad"
    if job.error is not None:
        return "failing", "bad"
    if job.no_data:
        return "nothing here", "plain"
    if job.duration is None:
        return "starting", "plain"
    return ("ok", "good") if job.answering() else ("stale", "warn")


def _message(job: Job) -> str:
    stuck = job.stuck_seconds()
    if not stuck:
        return job.error or (job.nothing if job.no_data else "")
    past = f"{duration(stuck)} past its deadline of {duration(job.deadline)}"
    return f"{past}: {job.error}" if job.error else past


def section(
    title: str,
    table: Table,
    rows: list[list[Content]],
    total: int,
    *,
    empty: str,
    badge: str = "",
    below: str = "",
) -> Section:
    """A section of these rows out of `total`; `empty` is said where there are none."""
    if not rows:
        return Section(title, 0, tag("p", empty, class_="empty"))
    body = table.render(rows)
    if total > len(rows):
        more = f"and {counted(total - len(rows), 'more row')}; all of them are in /metrics"
        body = join((body, tag("p", more, class_="empty")))
    body = join((body, below))
    return Section(title, total, body, badge)
