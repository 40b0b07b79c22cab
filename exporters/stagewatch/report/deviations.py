"""Judges the series of an experiment: their usual values, and when they deviate from them.

docs/reports.md defines every number of this file.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stagewatch.prometheus.selectors import Not
from stagewatch.report.components import Component, component_of
from stagewatch.report.history import Grid, History, Labels, Line, Values

MIN_SAMPLES = 5
"""Fewer than these make no baseline."""

MAD_TO_SIGMA = 1.4826
"""The MAD of a normal distribution times this is its standard deviation."""

ROBUST_SIGMAS = 6.0
EFFECT = 0.05
"""A deviation is at least this share of the median."""

AGE_FACTOR = 1.5
"""An age deviates beyond this many times the highest of the baseline."""

PERSISTENCE = (3, 4)
"""A deviation is sustained if the first number of values, out of the second in a row, deviate."""

_IDENTITY = ("role", "rank", "node", "gpu", "uuid", "mount", "directory", "target", "stage")

MIB = 1 << 20
RANK = "role, rank"
STAGE = f"{RANK}, stage"
GPU = "node, gpu, uuid"
MOUNT = "node, mount"
STAGE_OPEN = "rl_rank_stage_open_seconds"
NFS_TIME = "nfs_operation_execute_seconds_total"
FREE_SPACE = "io_filesystem_available_bytes"
PRESSURE = "io_pressure_seconds_total"


@dataclass(frozen=True, slots=True)
class Signal:
    """One metric, or the ratio of two.  `floor` is a difference, in `unit`, that never counts as
    a deviation; an `age` grows by itself."""

    name: str
    unit: str
    floor: float
    metric: str
    by: str = RANK
    how: str = "max"
    """The largest value (`max`), the `sum` of values, or the sum of their `rate`."""
    per: str = ""
    """A metric to divide by."""
    more: Labels = field(default_factory=dict)
    age: bool = False

    @property
    def source(self) -> str:
        """What its values are, as PromQL would write it: a metric, a rate, or a ratio of two."""
        parts = [
            f"rate({each})" if self.how == "rate" else each for each in (self.metric, self.per)
        ]
        return " / ".join(parts if self.per else parts[:1])

    def expression(self, history: History, job: Labels, nodes: Labels) -> str:
        """PromQL for the ranks of a job, or for the devices and mounts of its nodes."""
        chosen = {**(job if self.metric.startswith("rl_") else nodes), **self.more}

        def of(metric: str) -> str:
            if self.how == "rate":
                return f"sum by ({self.by}) ({history.rate(metric, chosen)})"
            return f"{self.how} by ({self.by}) ({history.last(metric, chosen)})"

        return f"{of(self.metric)} / ({of(self.per)} > 0)" if self.per else of(self.metric)

    def severity(self, base: Baseline, value: float) -> float:
        """The distance of a value from the baseline, in multiples of the limit at which a value
        begins to deviate; 0 inside the baseline.

        The limit is six robust sigmas, 5 % of the median or the floor.  For ages, which grow by
        themselves, it is half of the highest value of the baseline or the floor.
        """
        if self.age:
            distance = max(0.0, value - base.high)
            limit = max((AGE_FACTOR - 1) * base.high, self.floor)
        else:
            distance = 0.0 if base.low <= value <= base.high else abs(value - base.median)
            spread = ROBUST_SIGMAS * MAD_TO_SIGMA * base.mad
            limit = max(spread, EFFECT * abs(base.median), self.floor)
        return distance / max(limit, sys.float_info.min)

    def severities(self, base: Baseline | None, values: Values) -> list[float | None]:
        """The severity of each value; unknown without a baseline."""
        return [
            None if value is None or base is None else self.severity(base, value)
            for value in values
        ]


SIGNALS = (
    Signal("stage duration", "s", 0.5, "rl_rank_stage_last_seconds", STAGE),
    Signal("stage open", "s", 2.0, STAGE_OPEN, STAGE, more={"stage": Not("idle")}, age=True),
    Signal("progress age", "s", 2.0, "rl_rank_progress_age_seconds", age=True),
    Signal("run-queue wait", "cores", 0.1, "rl_rank_run_queue_seconds_total", how="rate"),
    Signal("CPU", "cores", 0.25, "rl_rank_cpu_seconds_total", how="rate"),
    Signal("resident memory", "B", 64 * MIB, "rl_rank_resident_memory_bytes"),
    Signal("retransmissions", "1/s", 0.5, "rl_rank_tcp_retransmissions_total", how="rate"),
    Signal("TCP round trip", "s", 0.02, "rl_rank_tcp_rtt_seconds"),
    Signal("TCP send queue", "B", 65536, "rl_rank_tcp_send_queue_bytes", how="sum"),
    Signal("TCP bytes", "B/s", 1e5, "rl_rank_tcp_bytes_total", f"{RANK}, direction", "rate"),
    Signal("file bytes", "B/s", 1e6, "rl_rank_io_bytes_total", f"{RANK}, direction, layer", "rate"),
    Signal("scalar", "", 1e-9, "rl_scalar", f"{RANK}, name"),
    Signal("GPU utilisation", "ratio", 0.15, "gpu_utilization_ratio", GPU),
    Signal("SM activity", "ratio", 0.15, "gpu_sm_active_ratio", GPU),
    Signal("GPU memory", "B", 512 * MIB, "gpu_memory_used_bytes", GPU),
    Signal("NFS time an operation", "s", 0.02, NFS_TIME, MOUNT, "rate", "nfs_operations_total"),
    Signal("canary", "s", 0.1, "io_canary_seconds", f"{MOUNT}, phase"),
    Signal("free space", "ratio", 0.02, FREE_SPACE, MOUNT, per="io_filesystem_size_bytes"),
    Signal("checkpoint size", "B", MIB, "io_checkpoint_size_bytes", "directory"),
    Signal("pressure", "ratio", 0.15, PRESSURE, "node, resource", "rate", more={"kind": "some"}),
    Signal("probe", "s", 0.1, "net_probe_seconds", "node, target, phase"),
    Signal("clock offset", "s", 0.01, "clock_offset_seconds", "node"),
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Statistics of the known values of a series; `deviation` is that of a sample (n - 1)."""

    count: int
    mean: float
    deviation: float
    median: float
    mad: float
    low: float
    high: float

    @property
    def two_sigma(self) -> tuple[float, float]:
        """Mean - 2 sigma, mean + 2 sigma."""
        return self.mean - 2 * self.deviation, self.mean + 2 * self.deviation


def baseline_of(values: Values) -> Baseline | None:
    """The baseline of the known values; None if there are too few of them."""
    known = [value for value in values if value is not None]
    if len(known) < MIN_SAMPLES:
        return None
    median = statistics.median(known)
    return Baseline(
        count=len(known),
        mean=statistics.fmean(known),
        deviation=statistics.stdev(known),
        median=median,
        mad=statistics.median([abs(value - median) for value in known]),
        low=min(known),
        high=max(known),
    )


def sustained(severities: Values, begin: int = 0) -> int | None:
    """The column where the first sustained deviation begins, at `begin` at the earliest; None if
    there is none.

    Unknown values do not count, and a gap as long as a run ends the run.
    """
    needed, among = PERSISTENCE
    recent: list[tuple[int, bool]] = []
    for index, severity in enumerate(severities[begin:], begin):
        if recent and index - recent[-1][0] > among:
            recent.clear()
        if severity is None:
            continue
        recent = [*recent[-(among - 1) :], (index, severity > 1)]
        raised = [at for at, up in recent if up]
        if len(raised) >= needed:
            return raised[0]
    return None


def is_steady(past: Values, signal: Signal) -> bool:
    """Whether the second half of a baseline does not deviate from its first half."""
    half = len(past) // 2
    if len(past) < 4 * MIN_SAMPLES:
        return True
    return sustained(signal.severities(baseline_of(past[:half]), past[half:])) is None


@dataclass(frozen=True, slots=True)
class Finding:
    """One series of one component during the run.

    `stage`: the stage of the series, else that of the rank when the series first deviated.
    `deviated`: the Unix time of the first sustained deviation; None if there was none.
    `steady`: whether the baseline itself does not deviate.
    `peak`: the value furthest from the baseline; without a baseline, the largest value.
    """

    signal: Signal
    component: Component
    stage: str
    detail: str
    baseline: Baseline | None
    deviated: float | None
    steady: bool
    peak: float | None
    severity: float
    values: Values
    severities: Values
    labels: Mapping[str, str] = field(default_factory=dict)
    past: Values = ()
    """The values of the baseline, on its own grid."""

    @property
    def title(self) -> str:
        """The name of the signal, with the labels that distinguish this series."""
        stage = self.stage if self.signal.name.startswith("stage") else ""
        more = ", ".join(part for part in (self.detail, stage) if part)
        return f"{self.signal.name} ({more})" if more else self.signal.name


@dataclass(frozen=True, slots=True)
class Scene:
    """The circumstances of a run: its grid, the injection, the stages of ranks, the owners of
    GPUs."""

    grid: Grid
    injected: float
    stages: Mapping[Component, Sequence[str | None]]
    """The stage of every rank, by column."""
    gpu_owner: Mapping[str, Component]
    """The rank of a GPU, by uuid, if the GPU has only one."""


def findings_of(
    signal: Signal, before: Sequence[Line], during: Sequence[Line], scene: Scene
) -> list[Finding]:
    """The findings of one signal; series that ended before the run are left out."""
    past = {frozenset(line.labels.items()): line.values for line in before}
    return [
        _finding(signal, past.get(frozenset(line.labels.items()), []), line, scene)
        for line in during
    ]


def steady(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that deviated from a steady baseline, earliest first."""
    chosen = [each for each in findings if each.deviated is not None and each.steady]
    return sorted(chosen, key=lambda each: (each.deviated or 0.0, -each.severity))


def _finding(signal: Signal, past: Values, line: Line, scene: Scene) -> Finding:
    labels, grid = line.labels, scene.grid
    component = component_of(labels)
    if component.kind == "gpu":
        component = scene.gpu_owner.get(labels.get("uuid", ""), component)
    baseline = baseline_of(past)
    begin = max(0, grid.index(scene.injected))
    severities = signal.severities(baseline, line.values)
    first = sustained(severities, begin)
    run = [(at, value) for at, value in line.known() if at >= begin]
    if baseline:
        run = [(at, severity) for at, _ in run if (severity := severities[at] or 0.0)]
    peak = max(run, key=lambda each: each[::-1], default=(None,))[0]
    return Finding(
        signal=signal,
        component=component,
        stage=labels.get("stage") or _stage_at(scene.stages.get(component), first),
        detail=", ".join(v for k, v in sorted(labels.items()) if k not in _IDENTITY),
        baseline=baseline,
        deviated=None if first is None else grid.time(first),
        steady=baseline is None or is_steady(past, signal),
        peak=None if peak is None else line.values[peak],
        severity=0.0 if peak is None else severities[peak] or 0.0,
        values=line.values,
        severities=severities,
        labels=labels,
        past=past,
    )


def _stage_at(stages: Sequence[str | None] | None, index: int | None) -> str:
    """The stage of a rank at a column, or its last known stage before."""
    if stages is None or index is None:
        return ""
    return next((stage for stage in reversed(stages[: index + 1]) if stage), "")
