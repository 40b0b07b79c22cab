"""The node's metrics as a check looks them up, from an agent's text or from collectors here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stagewatch.core.exposition import Samples

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True, slots=True)
class One:
    """One series."""

    labels: dict[str, str]
    value: float

    @property
    def gpu(self) -> str:
        """The GPU it is about, as an operator would call it."""
        mig = f" instance {self.labels['mig']}" if self.labels.get("mig") else ""
        return f"GPU {self.labels.get('gpu') or self.labels.get('pci_bus_id') or '?'}{mig}"


class Series:
    """All series by metric name."""

    def __init__(self, found: Iterable[tuple[str, One]] = ()) -> None:
        self._by_name: dict[str, list[One]] = {}
        for name, one in found:
            self._by_name.setdefault(name, []).append(one)

    def __call__(self, name: str, **labels: str) -> list[One]:
        """The series of a metric whose labels include these."""
        return [one for one in self._by_name.get(name, ()) if labels.items() <= one.labels.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the first of them."""
        found = self(name, **labels)
        return found[0].value if found else None

    def nonzero(self, name: str, **labels: str) -> list[One]:
        """Those with another value than 0."""
        return [one for one in self(name, **labels) if one.value]


def parse(text: str) -> Series:
    """Prometheus' text format; lines that are none are passed over."""
    return Series(_parse_lines(text))


def _parse_lines(text: str) -> Iterator[tuple[str, One]]:
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        labels = {
            name: re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), value)
            for name, value in _LABEL.findall(match[2] or "")
        }
        try:
            yield match[1], One(labels, float(match[3]))
        except ValueError:
            continue


def from_samples(samples: Samples) -> Iterator[tuple[str, One]]:
    """What collectors of this process found."""
    for metric, family in samples.families.items():
        for labels, value in family.items():
            if isinstance(value, (int, float)):
                pairs = zip(metric.labels, labels, strict=True)
                yield metric.name, One({k: v for k, v in pairs if v}, float(value))
