"""The latest series of an agent by the names of metrics and labels, for its status page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from stagewatch.core.exposition import Histogram, Labels, Metric, Samples

Key = tuple[str, ...]


class Series:
    """The series of several collections, by the names of metrics and labels."""

    def __init__(self, collections: Iterable[Samples]) -> None:
        self._families: dict[str, list[tuple[Metric, Mapping[Labels, float | Histogram]]]] = {}
        for samples in collections:
            for metric, family in list(samples.families.items()):
                self._families.setdefault(metric.name, []).append((metric, family))

    def samples(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The labels and values of a metric's series; none if no collector has it."""
        for metric, family in self._families.get(name, ()):
            for labels, value in family.items():
                if not isinstance(value, Histogram):
                    yield dict(zip(metric.labels, labels, strict=True)), value

    def values_by(self, name: str, keys: Sequence[str]) -> dict[Key, float]:
        """The values of a metric by some of its labels; a missing label counts as empty."""
        return {key_of(labels, keys): value for labels, value in self.samples(name)}

    def reader(self, keys: Sequence[str]) -> Callable[[str, Key], float | None]:
        """A function that looks up a metric's value by some of its labels."""
        values = cache(lambda name: self.values_by(name, keys))
        return lambda name, key: values(name).get(key)

    def labels_by(self, name: str, keys: Sequence[str]) -> dict[Key, dict[str, str]]:
        """All labels of a metric's series (such as `gpu_info`) by some of them."""
        return {key_of(labels, keys): labels for labels, _ in self.samples(name)}


def key_of(labels: Mapping[str, str], keys: Sequence[str]) -> Key:
    return tuple([labels.get(key, "") for key in keys])


def natural(key: Key) -> tuple[tuple[int, int, str], ...]:
    """Sorts label values as people do: numbers by size and before words."""
    return tuple(
        [
            (0, int(part), "") if part.isdecimal() and len(part) < 20 else (1, 0, part)
            for part in key
        ]
    )
