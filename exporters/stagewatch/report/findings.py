"""Every series beside its baseline: what deviated, when and by how much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stagewatch.report.baseline import (
    MIN_SAMPLES,
    Baseline,
    Judge,
    Values,
    baseline_of,
    first_sustained,
)
from stagewatch.report.components import Component, component_of
from stagewatch.report.history import Grid, Line
from stagewatch.report.signals import Signal

_IDENTITY = ("role", "rank", "node", "gpu", "uuid", "mount", "directory", "target", "stage")


@dataclass(frozen=True, slots=True)
class Finding:
    """One series of one component during the run.

    `stage` is that of the series, else the one the rank was in when it first deviated; `deviated`
    and `two_sigma` are Unix times of the first sustained deviation, None where there was none;
    `steady` is false where the baseline itself would have been called a deviation; `peak` is the
    value furthest beyond the baseline, without one the largest.
    """

    signal: Signal
    component: Component
    stage: str
    detail: str
    baseline: Baseline | None
    deviated: float | None
    two_sigma: float | None
    steady: bool
    peak: float | None
    peak_time: float | None
    severity: float
    values: Sequence[float | None]
    severities: Sequence[float | None]

    @property
    def title(self) -> str:
        """What is measured, with what tells it from others of its kind."""
        more = ", ".join(
            part for part in (self.detail, self.stage if self._own_stage else "") if part
        )
        return f"{self.signal.name} ({more})" if more else self.signal.name

    @property
    def _own_stage(self) -> bool:
        return self.signal.name.startswith("stage")


@dataclass(frozen=True, slots=True)
class Scene:
    """What findings need to know of the run: its grid, the injection, and who is where."""

    grid: Grid
    injected: float
    stages: Mapping[Component, Sequence[str | None]]
    """The stage each rank was in, by column."""
    gpu_owner: Mapping[str, Component]
    """The rank that a GPU belongs to, by uuid, where it is one."""


def findings_of(
    signal: Signal, before: Sequence[Line], during: Sequence[Line], scene: Scene
) -> list[Finding]:
    """The findings of one signal; series that were only there before are left out."""
    known = {_key(line): line for line in before}
    return [_finding(signal, known.get(_key(line)), line, scene) for line in during]


def _key(line: Line) -> frozenset[tuple[str, str]]:
    return frozenset(line.labels.items())


def _finding(signal: Signal, before: Line | None, line: Line, scene: Scene) -> Finding:
    component = component_of(line.labels)
    if component.kind == "gpu":
        component = scene.gpu_owner.get(line.labels.get("uuid", ""), component)
    past = before.values if before else []
    baseline = baseline_of(past)
    begin = max(0, scene.grid.index(scene.injected))
    severities: list[float | None] = [None] * len(line.values)
    first = sigma = peak_at = None
    steady = True
    if baseline:
        judge = Judge(baseline, signal.floor, signal.age)
        severities = [None if value is None else judge.severity(value) for value in line.values]
        first = first_sustained(_flags(line.values, judge.deviates), begin)
        sigma = first_sustained(_flags(line.values, judge.beyond_two_sigma), begin)
        steady = is_steady(past, signal)
        known = [(each, at) for at, each in enumerate(severities[begin:], begin) if each]
        peak_at = max(known)[1] if known else None
    else:
        largest = [(value, at) for at, value in enumerate(line.values) if value is not None]
        peak_at = max((each for each in largest if each[1] >= begin), default=(0.0, None))[1]
    labels = line.labels
    stage = labels.get("stage") or _stage_at(scene.stages.get(component), first)
    return Finding(
        signal=signal,
        component=component,
        stage=stage,
        detail=", ".join(v for k, v in sorted(labels.items()) if k not in _IDENTITY),
        baseline=baseline,
        deviated=None if first is None else scene.grid.time(first),
        two_sigma=None if sigma is None else scene.grid.time(sigma),
        steady=steady,
        peak=None if peak_at is None else line.values[peak_at],
        peak_time=None if peak_at is None else scene.grid.time(peak_at),
        severity=0.0 if peak_at is None else severities[peak_at] or 0.0,
        values=line.values,
        severities=severities,
    )


def is_steady(past: Sequence[float | None], signal: Signal) -> bool:
    """Whether the second half of a baseline is no deviation from its first half."""
    half = len(past) // 2
    first = baseline_of(past[:half])
    if first is None or len(past) < 4 * MIN_SAMPLES:
        return True
    judge = Judge(first, signal.floor, signal.age)
    return first_sustained(_flags(past[half:], judge.deviates)) is None


def _flags(values: Values, test: Callable[[float], bool]) -> list[bool | None]:
    return [None if value is None else test(value) for value in values]


def _stage_at(stages: Sequence[str | None] | None, index: int | None) -> str:
    """The stage a rank was in at a column, or was last known to be in before."""
    if stages is None or index is None:
        return ""
    return next((stage for stage in reversed(stages[: index + 1]) if stage), "")
