"""Counts how nodes leave service, from snapshots of the nodes and from events in accounting.

Only accounting shows a node that goes down and returns before the next snapshot (ReturnToService=2
needs two seconds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stagewatch.core.state_file import optional, past, text, whole
from stagewatch.slurm.model import Node, NodeEvent
from stagewatch.slurm.notation import node_availability, node_state, reason_class

_RANK = {None: 0, "drain": 1, "fail": 2, "down": 3}
_PASSING = frozenset(["NOT_RESPONDING"])
"""A node has this flag for a moment after every `resume`; if it is dead, it becomes DOWN. But a
node that died while slurmctld was away may stay UNKNOWN with this flag."""
_SLACK = 5.0
"""Largest difference in seconds between a snapshot and its event."""
_KEEP = 7 * 86400.0
_MAX_RECENT = 200


class Failure(NamedTuple):
    """When a node last left service, and how."""

    when: float
    kind: str
    reason_class: str


class _Span(NamedTuple):
    """The two snapshots between which a node left service."""

    after: float
    before: float


class NodeLedger:
    """Counts how nodes leave service; used by one thread. All times are Unix seconds."""

    def __init__(self, now: float) -> None:
        self.failures: Counter[tuple[str, str]] = Counter()
        """By kind and reason class."""

        self.recent: dict[str, Failure] = {}
        """By node, the latest last."""
        self._oldest = float(int(now))  # Slurm's times are whole seconds
        self._known: dict[str, str | None] | None = None
        """How each node was out of service in the last snapshot; `None` for one in service."""
        self._last_poll = now
        self._seen: dict[tuple[str, int], int] = {}
        self._spans: dict[str, list[_Span]] = {}

    def observe_nodes(self, nodes: Iterable[Node], now: float) -> None:
        """Count the changes since the previous snapshot."""
        seen: dict[str, str | None] = {}
        for node in nodes:
            unknown = node.state == "UNKNOWN"
            if unknown and not node.flags & _PASSING:  # for a moment after each start of slurmctld
                if self._known and node.name in self._known:
                    seen[node.name] = self._known[node.name]
                continue
            flags = node.flags if unknown else node.flags - _PASSING
            kind = seen[node.name] = node_availability(node.state, flags)
            if self._known is None or kind is None:
                continue
            if _RANK[kind] > _RANK[self._known.get(node.name)]:
                self._count_failure(node, kind, now)
        self._known = seen
        self._last_poll = now

    def observe_events(self, events: Iterable[NodeEvent], now: float) -> None:
        """Count the events in accounting that no snapshot has shown."""
        for event in events:
            key = (event.node, event.start)
            if key in self._seen or event.start < self._oldest:
                continue
            if event.end is None or event.end > self._last_poll:
                continue  # a snapshot can still show it
            self._seen[key] = event.start
            kind = node_availability(*node_state(event.state))
            if kind is None or self._was_seen(event):
                continue
            why = (kind, reason_class(event.reason))
            self.failures[why] += 1
            self._remember(event.node, Failure(event.start, *why))
        self._forget(now - _KEEP)

    def _count_failure(self, node: Node, kind: str, now: float) -> None:
        why = (kind, reason_class(node.reason))
        self.failures[why] += 1
        self._spans.setdefault(node.name, []).append(_Span(self._last_poll, now))
        self._remember(node.name, Failure(node.reason_time or now, *why))

    def _was_seen(self, event: NodeEvent) -> bool:
        return any(
            span.after - _SLACK <= event.start <= span.before + _SLACK
            for span in self._spans.get(event.node, ())
        )

    def _remember(self, node: str, failure: Failure) -> None:
        self.recent.pop(node, None)
        self.recent[node] = failure
        while len(self.recent) > _MAX_RECENT:
            del self.recent[next(iter(self.recent))]

    def _forget(self, oldest: float) -> None:
        if oldest <= self._oldest:
            return
        self._oldest = oldest
        self._seen = {key: start for key, start in self._seen.items() if start >= oldest}
        kept = {
            name: [span for span in spans if span.before >= oldest]
            for name, spans in self._spans.items()
        }
        self._spans = {name: spans for name, spans in kept.items() if spans}

    def dump(self) -> dict[str, Any]:
        """What the state file keeps."""
        return {
            "failures": [[*key, number] for key, number in self.failures.items()],
            "recent": {name: list(state) for name, state in self.recent.items()},
            "oldest": self._oldest,
            "last_poll": self._last_poll,
            "known": self._known or {},
            "seen": [[*key] for key in self._seen],
            "spans": {name: [list(span) for span in spans] for name, spans in self._spans.items()},
        }

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> NodeLedger:
        """Load the content.  Raises one of `core.state_file.BROKEN`."""
        ledger = cls(past(saved["oldest"]))
        ledger.failures.update({(text(k), text(c)): whole(n) for k, c, n in saved["failures"]})

        for name, (when, kind, why) in saved["recent"].items():
            ledger.recent[text(name)] = Failure(past(when), text(kind), text(why))
        ledger._last_poll = past(saved["last_poll"])
        known = {text(name): optional(text)(kind) for name, kind in saved["known"].items()}
        ledger._known = known or None
        ledger._seen = {(text(name), whole(start)): whole(start) for name, start in saved["seen"]}
        for name, spans in saved["spans"].items():
            ledger._spans[name] = [_Span(past(after), past(to)) for after, to in spans]
        return ledger
