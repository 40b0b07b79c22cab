"""Metric declarations, the samples of one collection, and their text.

This module renders samples at about a fifth of the cost of `prometheus_client`, which keeps an
agent that collects every second under one per cent of a core. The tests check the result with that
library's own parser.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

MAX_LABEL_LENGTH = 200
"""Longest label value in characters; longer ones are cut, since users control some of them."""

_LARGEST = sys.float_info.max

MAX_SERIES = 20_000
"""Most label sets one metric may have in one collection; the rest is dropped and counted."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """The declaration of one metric family; `docs/metrics.md` is generated from these."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: counters, and only they, end in _total")


def gauge(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    """A metric that rises and falls."""
    return Metric(name, "gauge", help, labels)


def counter(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    """A metric that only grows; its name ends in `_total`."""
    return Metric(name, "counter", help, labels)


def histogram(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    """A metric of buckets, with a sum and a count."""
    return Metric(name, "histogram", help, labels)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative bucket counts for ascending upper bounds, without the +Inf bucket."""

    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    count: int
    sum: float


Labels = tuple[str, ...]


@dataclass(slots=True)
class Samples:
    """The samples of one collection: per metric, one value for each set of label values.

    A repeated label set replaces the earlier value, so no exposition holds a series twice.
    """

    families: dict[Metric, dict[Labels, float | Histogram]] = field(default_factory=dict)
    dropped: int = 0
    denied: int = 0
    """Processes that the agent may not read."""

    def add(self, metric: Metric, value: float | None, *labels: object) -> None:
        """Record one value.  `None`, NaN and infinities are left out: absent, never a sentinel."""
        if value is None or not -_LARGEST <= value <= _LARGEST:
            return
        self._put(metric, +value, labels)  # True is 1

    def add_all(self, metric: Metric, values: Mapping[Any, float]) -> None:
        """Record a value for every label, or tuple of labels."""
        for labels, value in values.items():
            self.add(metric, value, *(labels if isinstance(labels, tuple) else (labels,)))

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: object) -> None:
        """Record a whole histogram."""
        self._put(metric, histogram, labels)

    def value(self, metric: Metric, *labels: object) -> float | None:
        """The number recorded for these label values, if there is one."""
        found = self.families.get(metric, {}).get(tuple(map(clean, labels)))
        return found if isinstance(found, (int, float)) else None

    def _put(self, metric: Metric, value: float | Histogram, labels: Sequence[object]) -> None:
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name} takes the labels {metric.labels}, not {labels!r}")
        family = self.families.get(metric)
        if family is None:
            family = self.families[metric] = {}
        key = _cleaned(*labels)
        if len(family) >= MAX_SERIES and key not in family:
            self.dropped += 1
            return
        family[key] = value


class Renderer:
    """Renders a collector's samples repeatedly, and reuses the text of unchanged metrics."""

    def __init__(self) -> None:
        self._known: dict[Metric, tuple[dict[Labels, float | Histogram], str]] = {}

    def render(self, samples: Samples) -> bytes:
        """The text of a collection."""
        text: list[str] = []
        known: dict[Metric, tuple[dict[Labels, float | Histogram], str]] = {}
        for metric, family in samples.families.items():
            before = self._known.get(metric)
            if before is not None and before[0] == family:
                lines = before[1]
            else:
                lines = "".join(
                    [
                        f"{_series(metric, labels)}{value!r}\n"
                        if type(value) is not Histogram
                        else _histogram(metric, labels, value)
                        for labels, value in family.items()
                    ]
                )
            known[metric] = (family, lines)
            text += (_header(metric), lines)
        self._known = known
        return "".join(text).encode("utf-8", "replace")


def render(samples: Samples) -> bytes:
    """The text of a single collection."""
    return Renderer().render(samples)


@lru_cache(maxsize=4096)
def _header(metric: Metric) -> str:
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {metric.kind}\n"


def _pairs(names: Labels, labels: Labels) -> str:
    """The label pairs between the braces; an empty label equals none, and is left out."""
    return ",".join(
        [f'{name}="{escape(text)}"' for name, text in zip(names, labels, strict=True) if text]
    )


@lru_cache(maxsize=8192)  # nearly all label sets are those of the collection before
def _series(metric: Metric, labels: Labels) -> str:
    """The text before the value, with the space."""
    pairs = _pairs(metric.labels, labels)
    return f"{metric.name}{{{pairs}}} " if pairs else f"{metric.name} "


def _histogram(metric: Metric, labels: Labels, value: Histogram) -> str:
    amounts = (*value.cumulative, value.count, value.sum, value.count)
    names = _histogram_series(metric, labels, value.bounds)
    return "".join([f"{name}{amount!r}\n" for name, amount in zip(names, amounts, strict=True)])


@lru_cache(maxsize=256)
def _histogram_series(metric: Metric, labels: Labels, bounds: tuple[float, ...]) -> Labels:
    """The texts before the values of buckets, sum and count."""
    pairs = _pairs(metric.labels, labels)
    prefix = f"{pairs}," if pairs else ""
    braces = f"{{{pairs}}}" if pairs else ""
    limits = [*(repr(float(bound)) for bound in bounds), "+Inf"]
    return (
        *(f'{metric.name}_bucket{{{prefix}le="{limit}"}} ' for limit in limits),
        f"{metric.name}_sum{braces} ",
        f"{metric.name}_count{braces} ",
    )


@lru_cache(maxsize=8192, typed=True)  # typed: 1 and True are equal, but not as texts
def _cleaned(*labels: object) -> Labels:
    return tuple([clean(label) for label in labels])


def clean(label: object) -> str:
    """A label value that the format allows, cut to `MAX_LABEL_LENGTH`.

    This runs before values are compared, so that equal results are one series.
    """
    text = label if type(label) is str else str(label)
    if len(text) > MAX_LABEL_LENGTH:
        text = text[:MAX_LABEL_LENGTH]
    if text.isprintable():
        return text
    return text.encode("utf-8", "replace").decode().replace("\r", " ").replace("\0", " ")


def escape(text: str) -> str:
    """A label value, escaped for quotes."""
    if text.isalnum():
        return text
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
