"""The figures of earlier runs: a small file, which may be damaged or written by somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from stagewatch.core.state_file import StateFile, real, text

MAX_SERIES = 256
KEPT = 20
"""The number of latest figures that a series keeps."""

LEAST = 3
"""The least number of figures for a comparison."""

MAX_FIGURE = 1e18


class Past:
    """Earlier figures of a node's devices, from parts that passed."""

    def __init__(self, file: Path) -> None:
        self._file = StateFile(file, lost="its past begins anew", make_directory=True)
        self._series: dict[str, list[float]] = self._file.load(_read) or {}

    def usual(self, series: str) -> tuple[float, int] | None:
        """The median of earlier figures and their number; `None` if there are fewer than three."""
        values = self._series.get(series, [])
        return (median(values), len(values)) if len(values) >= LEAST else None

    def add(self, found: Mapping[str, float]) -> bool:
        """Add figures and write the file; returns whether that worked."""
        for series, value in found.items():
            before = self._series.pop(series, [])
            self._series[series] = [*before, value][-KEPT:]
        latest = list(self._series.items())[-MAX_SERIES:]
        self._file.save({"series": dict(latest)})
        return self._file.ok


def _read(content: Any) -> dict[str, list[float]]:
    series = content["series"]
    if len(series) > MAX_SERIES:
        raise ValueError("it has too many series")
    return {text(name): [_figure(one) for one in values[-KEPT:]] for name, values in series.items()}


def _figure(value: Any) -> float:
    if not 0 < (figure := real(value)) < MAX_FIGURE:
        raise ValueError(f"{value!r:.40} is no figure")
    return figure
