"""Keeps names that users choose from becoming unbounded labels."""

from __future__ import annotations

from collections import Counter, OrderedDict

from stagewatch.core.exposition import Metric, Samples

MAX_NAMES = 128
"""Different names one role of a job may show, of a kind; a program has a few, an attack any."""
MAX_JOBS = 512
"""Roles of jobs remembered; the one that was longest without a name is forgotten first."""

FOLDED = Metric(
    "stagewatch_names_folded_total",
    "counter",
    "Times that a name a rank chose was left out, since its job had shown too many, by kind.",
    ("kind",),
)


class Vocabulary:
    """The first names that each role of each job has shown, by kind."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str], set[str]] = OrderedDict()
        self._folded: Counter[str] = Counter()

    def admits(self, kind: str, job_id: str, role: str, name: str) -> bool:
        """Whether the name may become a label; counts those that may not."""
        key = (kind, job_id, role)
        names = self._known.setdefault(key, set())
        self._known.move_to_end(key)
        if len(self._known) > MAX_JOBS:
            self._known.popitem(last=False)
        if name in names:
            return True
        if len(names) >= MAX_NAMES:
            self._folded[kind] += 1
            return False
        names.add(name)
        return True

    def show(self, out: Samples) -> None:
        """Add how much was left out."""
        for kind, count in self._folded.items():
            out.add(FOLDED, count, kind)
