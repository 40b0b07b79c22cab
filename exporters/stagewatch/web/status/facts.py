"""Looks values up by metric and label name in what all collectors last found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stagewatch.core.exposition import Histogram, Labels, Metric, Samples

Key = tuple[str, ...]


class Facts:
    """The series of several collections, found by name; no collector needs to be imported."""

    def __init__(self, collections: Iterable[Samples]) -> None:
        self._families: dict[str, list[tuple[Metric, Mapping[Labels, float | Histogram]]]] = {}
        for samples in collections:
            for metric, family in list(samples.families.items()):
                self._families.setdefault(metric.name, []).append((metric, family))

    def series(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The labels and value of each series of a metric; none if nobody has it."""
        for metric, family in self._families.get(name, ()):
            for labels, value in family.items():
                if not isinstance(value, Histogram):
                    yield dict(zip(metric.labels, labels, strict=True)), value

    def by(self, name: str, keys: Sequence[str]) -> dict[Key, float]:
        """The values of a metric by these of its labels; a label it lacks counts as empty."""
        return {_key(labels, keys): value for labels, value in self.series(name)}

    def sums(self, name: str, keys: Sequence[str]) -> dict[Key, float]:
        """The values of a metric, added up over the labels that are not among these."""
        out: dict[Key, float] = {}
        for labels, value in self.series(name):
            key = _key(labels, keys)
            out[key] = out.get(key, 0.0) + value
        return out

    def labels(self, name: str, keys: Sequence[str]) -> dict[Key, dict[str, str]]:
        """All labels of a metric's series (such as `gpu_info`) by some of them."""
        return {_key(labels, keys): labels for labels, _ in self.series(name)}

    def label(self, name: str, label: str, keys: Sequence[str]) -> dict[Key, str]:
        """One label of the series whose value is not 0, by others: the class in force, say."""
        return {
            _key(labels, keys): labels.get(label, "")
            for labels, value in self.series(name)
            if value
        }


def _key(labels: Mapping[str, str], keys: Sequence[str]) -> Key:
    return tuple([labels.get(key, "") for key in keys])


def natural(key: Key) -> tuple[tuple[int, int, str], ...]:
    """Sorts label values as people do: numbers by size and before words."""
    return tuple(
        [
            (0, int(part), "") if part.isdecimal() and len(part) < 20 else (1, 0, part)
            for part in key
        ]
    )
