"""The story of a whole job in a few sentences, out of what the recording rules say of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import Series
from stagewatch.verdict.role_story import SHOWN, RoleStory, RoleTeller, clock, long, node_of

Labels = dict[str, str]

_MEANING = {
    "process_gone": "its process has ended without closing its record",
    "left_loop_early": "it has left the loop that the others are still in",
    "collective_behind": "it has entered fewer collectives than the others",
    "io_blocked": "it waits for storage",
    "odd_one_out": "it waits unlike all others",
    "stage_behind": "its peers have completed that stage, and the job waits for it",
}


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
    """Whether anything is wrong with it, as far as the rules and the ranks' records show."""


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
        roles = [
            self._role(role, [found for found in ups if found.labels.get("role", "") == role])
            for role in sorted({found.labels.get("role", "") for found in ups})
        ]
        sentences = [sentence for role in roles for sentence in role.sentences]
        behind = self._ask("rank:rl_stall:stage_behind")
        culprits = self._ask("job:rl_stall:culprit") + behind
        sentences += [_culprit(found.labels) for found in culprits[:SHOWN]]
        if len(culprits) > SHOWN:
            sentences.append(f"And {len(culprits) - SHOWN} more ranks at fault.")
        # A role that waits for the rank that is behind hangs without a culprit of its own.
        nobody = [] if behind else self._ask("job:rl_stall:group_only")
        if nobody:
            sentences.append("No rank stands out: suspect the transport, a switch or a GPU.")
        slow = self._ask("rank:rl_straggler:ratio")
        sentences += [
            f"Straggler: rank {found.labels['rank']} on {node_of(found.labels)}, in "
            f"{found.labels['stage']} for {found.value:.1f} times what its peers take."
            for found in slow[:SHOWN]
        ]
        sentences += (
            self._failure() + self._waste() + self._faults({node_of(u.labels) for u in ups})
        )
        wrong = bool(culprits or nobody or slow) or any(role.wrong for role in roles)
        return Story(self._job_id, tuple(sentences), wrong)

    def _role(self, role: str, ups: list[Series]) -> RoleStory:
        cluster = "" if self._alone else f" of cluster {self._cluster or 'without a name'}"

        def ask(metric: str, form: str = "{0}") -> list[Series]:
            return self._ask(metric, role, form)

        teller = RoleTeller(ask, ups, self._now)
        return teller.tell(f"Job {self._job_id} ({role}){cluster}")

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
            f"First failure: rank {labels['rank']} ({labels['role']}) on {node_of(labels)} raised "
            f"{labels['error']} in {labels['stage']} at {clock(found.value, self._now)}."
        ]

    def _waste(self) -> list[str]:
        seconds = sum(found.value for found in self._ask("job:rl_wasted_gpu_seconds:total"))
        return [f"Wasted so far: {long(seconds)} of GPU time."] if seconds > 0 else []

    def _faults(self, nodes: set[str]) -> list[str]:
        return [
            f"A fault is being injected on {node_of(found.labels)}: {found.labels['fault_type']}, "
            f"id {found.labels['id']}, at {found.labels.get('target_worker') or 'no one worker'}."
            for found in self._api.query(
                f'fault_injection_active{{cluster="{_quoted(self._cluster)}"}} == 1'
            )
            if node_of(found.labels) in nodes
        ][:SHOWN]

    def _ask(self, metric: str, role: str | None = None, form: str = "{0}") -> list[Series]:
        matchers = [
            f'cluster="{_quoted(self._cluster)}"',
            f'job_id="{_quoted(self._job_id)}"',
        ]
        if role is not None:
            matchers.append(f'role="{_quoted(role)}"')
        return self._api.query(form.format(f"{metric}{{{', '.join(matchers)}}}"))


def _culprit(labels: Labels) -> str:
    evidence = labels.get("evidence", "")
    return (
        f"Culprit: rank {labels['rank']} ({labels['role']}), pid {labels.get('pid') or 'unknown'} "
        f"on {node_of(labels)}, in {labels.get('stage') or 'no known stage'}: "
        f"{_MEANING.get(evidence, evidence)} ({evidence})."
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
