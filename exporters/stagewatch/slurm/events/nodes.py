"""Counts how nodes leave service, from snapshots of the nodes and from events in accounting.

Only accounting shows a node that goes down and returns before the next snapshot (ReturnToService=2
needs two seconds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stagewatch.core.state_file import Past, decode, encode
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

    when: Past
    kind: str
    reason_class: str


class _Span(NamedTuple):
    """The two snapshots between which a node left service."""

    after: Past
    before: Past


@dataclass(slots=True)
class NodeCounts:
    """What the state file keeps."""

    oldest: Past
    last_poll: Past
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    recent: dict[str, Failure] = field(default_factory=dict)
    known: dict[str, str | None] | None = None
    """How each node was out of service in the last snapshot; `None` for one in service."""
    seen: dict[tuple[str, int], int] = field(default_factory=dict)
    spans: dict[str, list[_Span]] = field(default_factory=dict)


class NodeLedger:
    """Counts how nodes leave service; used by one thread. All times are Unix seconds."""

    def __init__(self, now: float, kept: NodeCounts | None = None) -> None:
        self._kept = kept or NodeCounts(float(int(now)), now)  # Slurm's times are whole seconds
        self.failures = self._kept.failures
        """By kind and reason class."""
        self.recent = self._kept.recent
        """By node, the latest last."""

    def observe_nodes(self, nodes: Iterable[Node], now: float) -> None:
        """Count the changes since the previous snapshot."""
        seen: dict[str, str | None] = {}
        for node in nodes:
            unknown = node.state == "UNKNOWN"
            if unknown and not node.flags & _PASSING:  # for a moment after each start of slurmctld
                if self._kept.known and node.name in self._kept.known:
                    seen[node.name] = self._kept.known[node.name]
                continue
            flags = node.flags if unknown else node.flags - _PASSING
            kind = seen[node.name] = node_availability(node.state, flags)
            if self._kept.known is None or kind is None:
                continue
            if _RANK[kind] > _RANK[self._kept.known.get(node.name)]:
                self._count_failure(node, kind, now)
        self._kept.known = seen
        self._kept.last_poll = now

    def observe_events(self, events: Iterable[NodeEvent], now: float) -> None:
        """Count the events in accounting that no snapshot has shown."""
        for event in events:
            key = (event.node, event.start)
            if key in self._kept.seen or event.start < self._kept.oldest:
                continue
            if event.end is None or event.end > self._kept.last_poll:
                continue  # a snapshot can still show it
            self._kept.seen[key] = event.start
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
        self._kept.spans.setdefault(node.name, []).append(_Span(self._kept.last_poll, now))
        self._remember(node.name, Failure(node.reason_time or now, *why))

    def _was_seen(self, event: NodeEvent) -> bool:
        return any(
            span.after - _SLACK <= event.start <= span.before + _SLACK
            for span in self._kept.spans.get(event.node, ())
        )

    def _remember(self, node: str, failure: Failure) -> None:
        self.recent.pop(node, None)
        self.recent[node] = failure
        while len(self.recent) > _MAX_RECENT:
            del self.recent[next(iter(self.recent))]

    def _forget(self, oldest: float) -> None:
        if oldest <= self._kept.oldest:
            return
        self._kept.oldest = oldest
        self._kept.seen = {key: start for key, start in self._kept.seen.items() if start >= oldest}
        kept = {
            name: [span for span in spans if span.before >= oldest]
            for name, spans in self._kept.spans.items()
        }
        self._kept.spans = {name: spans for name, spans in kept.items() if spans}

    def dump(self) -> dict[str, Any]:
        """The content of the state file."""
        content: dict[str, Any] = encode(self._kept)
        return content

    @classmethod
    def load(cls, saved: Any) -> NodeLedger:
        """Load the content.  Raises one of `core.state_file.BROKEN`."""
        kept: NodeCounts = decode(NodeCounts, saved)
        return cls(kept.oldest, kept)
