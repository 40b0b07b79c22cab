"""The story of a whole job in a few sentences, out of what the recording rules say of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from stagewatch.errors import StagewatchError
from stagewatch.sources.prometheus_api import Series

Labels = dict[str, str]

_MEANING = {
    "process_gone": "its process has ended without closing its record",
    "left_loop_early": "it has left the loop that the others are still in",
    "collective_behind": "it has entered fewer collectives than the others",
    "io_blocked": "it waits for storage",
    "odd_one_out": "it waits unlike all others",
    "stage_behind": "its peers have completed that stage, and the job waits for it",
}
_DOING = {
    "spin": "spin",
    "compute": "compute",
    "parked": "are parked",
    "io": "wait for storage",
    "stopped": "are stopped",
    "traced": "are held by a debugger",
    "gone": "are gone",
    "unknown": "are unclear",
}
_EXCUSES = {
    "computing": "a rank computes something long",
    "debugger": "a debugger holds a rank",
    "long_stage": "a rank is in a stage that may take long",
    "idle": "no stage is open",
}
_SHOWN = 6


class Queries(Protocol):
    """A server that answers instant queries."""

    def query(self, expression: str) -> list[Series]:
        """The series of an instant vector."""
        ...


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of a job."""

    job_id: str
    sentences: tuple[str, ...]
    wrong: bool
    """Whether the rules find anything wrong with it."""


class Teller:
    """Asks a Prometheus about one job, at one moment (Unix seconds)."""

    def __init__(self, api: Queries, job_id: str, now: float | None = None) -> None:
        self._api = api
        self._job_id = job_id
        self._now = time.time() if now is None else now

    def tell(self) -> Story:
        """The whole story.  Raises `StagewatchError` where the server does not know the job.

        Where several clusters have a job of this id, each has a story of its own.
        """
        ups = self._api.query(f'rl_rank_up{{job_id="{_quoted(self._job_id)}"}}')
        if not ups:
            raise StagewatchError(
                f"no node agent that this Prometheus scrapes shows a rank of job {self._job_id}"
            )
        clusters = sorted({found.labels.get("cluster", "") for found in ups})
        stories = [
            _OfCluster(self._api, self._job_id, self._now, cluster, alone=len(clusters) == 1).tell()
            for cluster in clusters
        ]
        return Story(
            self._job_id,
            tuple(sentence for story in stories for sentence in story.sentences),
            any(story.wrong for story in stories),
        )


class _OfCluster:
    """The story of the job that one cluster knows by this id; the empty name is no label."""

    def __init__(self, api: Queries, job_id: str, now: float, cluster: str, *, alone: bool) -> None:
        self._api = api
        self._job_id = job_id
        self._now = now
        self._cluster = cluster
        self._alone = alone

    def tell(self) -> Story:
        ups = self._ask("rl_rank_up")
        sentences = []
        for role in sorted({found.labels.get("role", "") for found in ups}):
            sentences += self._role(role, [u for u in ups if u.labels.get("role", "") == role])
        behind = self._ask("rank:rl_stall:stage_behind")
        culprits = self._ask("job:rl_stall:culprit") + behind
        sentences += [_culprit(found.labels) for found in culprits[:_SHOWN]]
        if len(culprits) > _SHOWN:
            sentences.append(f"And {len(culprits) - _SHOWN} more ranks at fault.")
        # A role that waits for the rank that is behind hangs without a culprit of its own.
        nobody = [] if behind else self._ask("job:rl_stall:group_only")
        if nobody:
            sentences.append("No rank stands out: suspect the transport, a switch or a GPU.")
        slow = self._ask("rank:rl_straggler:ratio")
        sentences += [
            f"Straggler: rank {found.labels['rank']} on {_node(found.labels)}, in "
            f"{found.labels['stage']} for {found.value:.1f} times what its peers take."
            for found in slow[:_SHOWN]
        ]
        sentences += self._failure() + self._waste() + self._faults({_node(u.labels) for u in ups})
        wrong = bool(culprits or nobody or slow or self._ask("job:rl_stall:active"))
        return Story(self._job_id, tuple(sentences), wrong)

    def _role(self, role: str, ups: list[Series]) -> list[str]:
        ages = self._ask("rank:rl_progress_age:seconds", role)
        stalled = bool(self._ask("job:rl_stall:active", role))
        nodes = sorted({_node(found.labels) for found in ups})
        count = f"{len(ups)} rank{'s' if len(ups) > 1 else ''}"
        on = ", ".join(nodes[:_SHOWN]) + (
            f" and {len(nodes) - _SHOWN} more nodes" if len(nodes) > _SHOWN else ""
        )
        cluster = "" if self._alone else f" of cluster {self._cluster or 'without a name'}"
        head = f"Job {self._job_id} ({role}){cluster}, {count} on {on}"
        steps = [found.value for found in self._ask("rl_rank_step", role)]
        step = f" at step {max(steps):.0f}" if steps else ""
        if stalled and ages:
            since = min(found.value for found in ages)
            head += f": no progress since {self._clock(self._now - since)} ({_long(since)}){step}."
        elif ages:
            since = max(found.value for found in ages)
            head += f": in progress{step}; every rank has moved within {_long(since)}."
        else:
            head += ": no rank of it lives."
        lines = [head, self._doing(role)]
        excuses = {found.labels["excuse"] for found in self._ask("job:rl_stall:excused", role)}
        if excuses and not stalled:
            lines.append(f"Not called a stall, for {' and '.join(_EXCUSES[e] for e in excuses)}.")
        return [line for line in lines if line]

    def _doing(self, role: str) -> str:
        """How many ranks do what, in which stage."""
        stages = {
            (found.labels["rank"], _node(found.labels)): found.labels["stage"]
            for found in self._ask("rl_rank_stage_open_seconds", role)
        }
        doing = Counter(
            (found.labels["class"], stages.get((found.labels["rank"], _node(found.labels)), "?"))
            for found in self._ask("rl_rank_wait_class", role)
        )
        parts = [
            f"{count} {_DOING.get(kind, kind)} in {stage}"
            for (kind, stage), count in doing.most_common(_SHOWN)
        ]
        return f"Of them {', '.join(parts)}." if parts else ""

    def _failure(self) -> list[str]:
        found = min(
            self._ask("rl_rank_first_failure_timestamp_seconds"),
            key=lambda series: series.value,
            default=None,
        )
        if found is None:
            return []
        labels = found.labels
        return [
            f"First failure: rank {labels['rank']} ({labels['role']}) on {_node(labels)} raised "
            f"{labels['error']} in {labels['stage']} at {self._clock(found.value)}."
        ]

    def _waste(self) -> list[str]:
        seconds = sum(found.value for found in self._ask("job:rl_wasted_gpu_seconds:total"))
        return [f"Wasted so far: {_long(seconds)} of GPU time."] if seconds > 0 else []

    def _faults(self, nodes: set[str]) -> list[str]:
        return [
            f"A fault is being injected on {_node(found.labels)}: {found.labels['fault_type']}, "
            f"id {found.labels['id']}, at {found.labels.get('target_worker') or 'no one worker'}."
            for found in self._api.query(
                f'fault_injection_active{{cluster="{_quoted(self._cluster)}"}} == 1'
            )
            if _node(found.labels) in nodes
        ][:_SHOWN]

    def _ask(self, metric: str, role: str | None = None) -> list[Series]:
        matchers = [
            f'cluster="{_quoted(self._cluster)}"',
            f'job_id="{_quoted(self._job_id)}"',
        ]
        if role is not None:
            matchers.append(f'role="{_quoted(role)}"')
        return self._api.query(f"{metric}{{{', '.join(matchers)}}}")

    def _clock(self, when: float) -> str:
        today = time.strftime("%F", time.localtime(self._now))
        text = time.strftime("%F %T", time.localtime(when))
        return text.removeprefix(f"{today} ")


def _culprit(labels: Labels) -> str:
    evidence = labels.get("evidence", "")
    return (
        f"Culprit: rank {labels['rank']} ({labels['role']}), pid {labels.get('pid') or 'unknown'} "
        f"on {_node(labels)}, in {labels.get('stage') or 'no known stage'}: "
        f"{_MEANING.get(evidence, evidence)} ({evidence})."
    )


def _node(labels: Labels) -> str:
    return labels.get("node") or labels.get("instance") or "an unknown node"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _long(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
