"""Tells the story of a whole job in a few sentences, from its ranks and the recording rules."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stagewatch.core.errors import StagewatchError
from stagewatch.core.words import duration
from stagewatch.inspect.slowness import slow_job, slow_ranks
from stagewatch.judgement.limits import MIN_SECONDS, SETTLE_SECONDS
from stagewatch.judgement.words import DOING
from stagewatch.prometheus.api import Series
from stagewatch.prometheus.selectors import select

Rank = tuple[str, str]
"""Number and node."""

SHOWN = 6

_MEANING = {
    "process_gone": "its process has ended without closing its record",
    "left_loop_early": "it has left the loop that the others are still in",
    "awaited": "it has not entered what the others wait in",
    "mismatch": "it does not do what the others of its group do",
    "livelock": "it makes marks of progress but no steps, and the others wait",
    "missing": "it has ended, and the others wait for it",
    "node_lost": "its node does not answer any more, and the others wait for it",
    "io_blocked": "it waits for storage",
    "odd_one_out": "it waits unlike all others",
    "stack_differs": "its stack differs from those of all others",
    "stage_differs": "it is in a stage of its own",
    "role_differs": "its role stands there as a whole, and all other roles wait",
    "stage_behind": "its peers have completed that stage, and the job waits for it",
}
_EXCUSES = {
    "computing": "a rank is at work on something long",
    "debugger": "a debugger holds a rank",
    "long_stage": "a rank is in a stage that may take long",
    "other_role": "a rank of another role is in a stage that may take long",
    "idle": "no stage is open",
    "expected": "a rank has announced a pause",
    "suspended": "all its ranks are stopped, or were a moment ago",
}
_NOBODY = {
    "mismatch": "Ranks of one group are in different collectives, and no side is the majority.",
    "missing": "They wait for ranks that no agent shows.",
    "other_role": "Another role of the job may hold it up.",
    "cycle": "Every rank that another waits for waits itself.",
}


class Queries(Protocol):
    """A server that answers instant queries."""

    def query(self, expression: str) -> list[Series]:
        """The series of an instant vector."""
        ...


@dataclass(frozen=True, slots=True)
class Story:
    """The sentences about a job."""

    job_id: str
    sentences: tuple[str, ...]
    wrong: bool
    """Whether anything is wrong with it, as far as the rules and the ranks' records show."""


def tell(api: Queries, job_id: str, now: float | None = None) -> Story:
    """The story of a job as of `now` (Unix seconds); each cluster with such a job adds its own.

    Raises `StagewatchError` where the server does not know the job.
    """
    ups = api.query(select("rl_rank_up", job_id=job_id))
    if not ups:
        raise StagewatchError(
            f"no node agent that this Prometheus scrapes shows a rank of job {job_id}"
        )
    now = time.time() if now is None else now
    clusters = sorted({up.labels.get("cluster", "") for up in ups})
    stories = [_of_cluster(api, job_id, name, now, alone=len(clusters) == 1) for name in clusters]
    return Story(
        job_id,
        tuple(sentence for story in stories for sentence in story.sentences),
        any(story.wrong for story in stories),
    )


@dataclass(frozen=True, slots=True)
class _Ask:
    """Asks the server about the series that have these labels."""

    api: Queries
    labels: dict[str, str]

    def __call__(self, metric: str, form: str = "{0}") -> list[Series]:
        """The series of a metric, or of an expression in which {0} stands for their selector."""
        return self.api.query(form.format(select(metric, **self.labels)))


def _of_cluster(api: Queries, job_id: str, cluster: str, now: float, *, alone: bool) -> Story:
    """The story of the job that one cluster knows by this id; the empty name is no label."""
    ask = _Ask(api, {"cluster": cluster, "job_id": job_id})
    ups = ask("rl_rank_up")
    where = "" if alone else f" of cluster {cluster or 'without a name'}"
    roles, states = [], []
    for name in sorted({up.labels.get("role", "") for up in ups}):
        of_role = [up for up in ups if up.labels.get("role", "") == name]
        roles.append(role := _Role(_Ask(api, {**ask.labels, "role": name}), of_role, now))
        states += role.sentences(f"Job {job_id} ({name}){where}")
    verdict = _verdict(ask)
    sentences = [*verdict]
    failures = ask("rl_rank_first_failure_timestamp_seconds")
    if failures:
        sentences.append(_first_failure(min(failures, key=lambda failure: failure.value), now))
    sentences += _faults(api, cluster, {_node(up.labels) for up in ups})
    if sentences and not alone:
        sentences.insert(0, f"In cluster {cluster or 'without a name'}:")
    sentences += states
    wasted = sum(total.value for total in ask("job:rl_wasted_gpu_seconds:total"))
    if wasted > 0:
        on_gpus = any(info.labels.get("uuid") for info in ask("rl_rank_info"))
        whose = "GPU time" if on_gpus else "its ranks' time"
        sentences.append(f"Wasted so far: {duration(wasted)} of {whose}.")
    wrong = bool(verdict) or any(role.wrong for role in roles)
    return Story(job_id, tuple(sentences), wrong)


def _verdict(ask: _Ask) -> list[str]:
    """Who holds the job up or slows it down, and how that is seen; or that nobody can be named."""
    behind = ask("rank:rl_stall:stage_behind")
    culprits = ask("job:rl_stall:culprit") + behind
    frames = {_whose(one.labels): one.labels["frame"] for one in ask("rl_rank_stack_frame_info")}
    calls = {_whose(one.labels): one for one in ask("rank:rl_stall:call_seconds")}
    sentences = [
        _culprit(
            culprit.labels,
            frames.get(_whose(culprit.labels), ""),
            calls.get(_whose(culprit.labels)),
        )
        for culprit in culprits[:SHOWN]
    ]
    if len(culprits) > SHOWN:
        sentences.append(f"And {len(culprits) - SHOWN} more ranks at fault.")
    # A role that waits for the rank that is behind hangs without a culprit of its own.
    nobody = [] if behind else ask("job:rl_stall:group_only")
    if nobody:
        told = {one.labels.get("evidence", ""): one for one in reversed(nobody)}
        evidence = "call" if "call" in told else nobody[0].labels.get("evidence", "")
        stands_out = "No rank stands out: suspect the transport, a switch or a GPU."
        sentences.append(_NOBODY.get(evidence, stands_out))
        if evidence == "call":
            role = told["call"].labels.get("role")
            mine = [one for one in calls.values() if one.labels.get("role") == role]
            sentences[-1] = _in_calls(mine)
    slow = ask("rank:rl_straggler:ratio")
    sentences += [
        f"Straggler: rank {rank.labels['rank']} on {_node(rank.labels)}, in "
        f"{rank.labels['stage']} for {rank.value:.1f} times what its peers take."
        for rank in slow[:SHOWN]
    ]
    return [*sentences, *slow_ranks(ask, SHOWN), *slow_job(ask)]


def _whose(labels: dict[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("node", "role", "rank"))


def _in_calls(calls: Sequence[Series]) -> str:
    """What all ranks of a role wait for; the calls are their longest."""
    oldest = max(calls, key=lambda one: one.value, default=None)
    if oldest is None:  # they have ended between two questions
        return "All ranks were inside calls of tools, environments or reward functions."
    return (
        f"All ranks of the role {oldest.labels['role']} are inside calls of tools, environments or "
        f"reward functions, the longest of {oldest.labels['name']} for {duration(oldest.value)}."
    )


def _culprit(labels: dict[str, str], frame: str, call: Series | None) -> str:
    evidence = labels.get("evidence", "")
    op = labels.get("op", "").replace("unknown", "a collective")
    waited = f", in {op} of {labels['group']}" if labels.get("group") else ""
    inside = (
        f", inside its call of {call.labels['name']} for {duration(call.value)}" if call else ""
    )
    return (
        f"Culprit: rank {labels['rank']} ({labels['role']}), pid {labels.get('pid') or 'unknown'} "
        f"on {_node(labels)}, in {labels.get('stage') or 'no known stage'}"
        f"{f' at {frame}' if frame else ''}{inside}: "
        f"{_MEANING.get(evidence, evidence)}{waited} ({evidence})."
    )


def _first_failure(failure: Series, now: float) -> str:
    labels = failure.labels
    return (
        f"First failure: rank {labels['rank']} ({labels['role']}) on {_node(labels)} raised "
        f"{labels['error']} in {labels['stage']} at {_clock(failure.value, now)}."
    )


def _faults(api: Queries, cluster: str, nodes: set[str]) -> list[str]:
    active = api.query(f"{select('fault_injection_active', cluster=cluster)} == 1")
    return [
        f"A fault is being injected on {_node(fault.labels)}: {fault.labels['fault_type']}, "
        f"id {fault.labels['id']}, at {fault.labels.get('target_worker') or 'no one worker'}."
        for fault in active
        if _node(fault.labels) in nodes
    ][:SHOWN]


class _Role:
    """One role of a job: does it hang, has it stopped, is it idle or in progress?"""

    def __init__(self, ask: _Ask, ups: Sequence[Series], now: float) -> None:
        """Ask for everything; `ups` are the role's `rl_rank_up`."""
        self._now = now
        self._ups = ups
        living = {up.labels["rank"] for up in ups if up.value}
        self._gone = sorted(
            (_rank(up) for up in ups if up.labels["rank"] not in living),
            key=lambda rank: (rank[0].zfill(9), rank[1]),
        )
        alive = {_rank(up) for up in ups if up.value}
        self._ages = [age for age in ask("rl_rank_progress_age_seconds") if _rank(age) in alive]
        self._stalled = bool(ask("job:rl_stall:active"))
        self._excuses = {series.labels["excuse"] for series in ask("job:rl_stall:excused")}
        self._late = {_rank(series) for series in ask("rank:rl_stall:overdue_seconds")}
        self._failures = sorted(
            ask("rl_rank_first_failure_timestamp_seconds"), key=lambda failure: failure.value
        )
        # The rules' ages are as old as a scrape: only the samples show what followed an exception.
        last = ask("rl_rank_progress_age_seconds", "timestamp({0}) - {0}")
        self._last_progress = max((series.value for series in last), default=None)
        self._stages = {
            _rank(series): series.labels["stage"] for series in ask("rl_rank_stage_open_seconds")
        }
        self._classes = ask("rl_rank_wait_class")
        steps = [series.value for series in ask("rl_rank_step")]
        self._step = f" at step {max(steps):.0f}" if steps else ""
        self._stopped = (
            bool(self._ages)
            and not self._stalled
            and self._excuses <= {"idle"}
            and all(map(self._silent, self._ages))
            and (bool(self._gone) or self._failed())
        )
        """Whether no rank goes on after an exception or a death: every rank that lives is overdue,
        or is idle and not just between two steps, and nothing was completed since."""
        self.wrong = self._stopped or self._stalled or bool(self._gone)
        """Whether it hangs, has stopped after an exception, or has lost a rank."""

    def sentences(self, job: str) -> list[str]:
        """What the role does; `job` names the job and the role."""
        nodes = sorted({_node(up.labels) for up in self._ups})
        count = f"{len(self._ups)} rank{'s' if len(self._ups) > 1 else ''}"
        on = ", ".join(nodes[:SHOWN]) + (
            f" and {len(nodes) - SHOWN} more nodes" if len(nodes) > SHOWN else ""
        )
        sentences = [f"{job}, {count} on {on}: {self._state()}."]
        doing = Counter(
            (rank.labels["class"], self._stages.get(_rank(rank), "?")) for rank in self._classes
        ).most_common(SHOWN)
        if doing:
            parts = [
                f"{count} {DOING.get(kind, (kind, kind))[count > 1]} in {stage}"
                for (kind, stage), count in doing
            ]
            sentences.append(f"Of them {', '.join(parts)}.")
        excuses = sorted(self._excuses & _EXCUSES.keys())
        if excuses and not self._stalled and not self._stopped:
            whys = " and ".join(_EXCUSES[excuse] for excuse in excuses)
            sentences.append(f"Not called a stall, for {whys}.")
        return sentences

    def _silent(self, age: Series) -> bool:
        idle = self._stages.get(_rank(age)) == "idle" and age.value >= MIN_SECONDS
        return idle or _rank(age) in self._late

    def _failed(self) -> bool:
        """Whether no rank has completed anything since the last exception."""
        if not self._failures or self._last_progress is None:
            return False
        return self._last_progress <= self._failures[-1].value + SETTLE_SECONDS

    def _state(self) -> str:
        oldest = duration(max((age.value for age in self._ages), default=0.0))
        least = min((age.value for age in self._ages), default=0.0)
        youngest = duration(least)
        if not self._ages:
            ended = f"; it was{self._step}" if self._step else ""
            return "; ".join([f"no rank of it lives{ended}", *self._raised()])
        if self._stalled:
            since = _clock(self._now - least, self._now)
            return f"no progress since {since} ({youngest}){self._step}"
        if self._stopped:
            why = [self._lost()] if self._gone else []
            why += self._raised() if self._failed() else []
            other = "no other rank" if self._gone else "no rank"
            why.append(f"{other} has completed anything for {youngest}")
            return f"stopped{self._step}: {', '.join(why[:-1])}, and {why[-1]}"
        if self._gone:
            return (
                f"goes on{self._step} although {self._lost()}; every other rank has moved within "
                f"{oldest}"
            )
        if "idle" in self._excuses and least >= MIN_SECONDS:
            return f"idle{self._step}; no rank has completed anything for {youngest}"
        return f"in progress{self._step}; every rank has moved within {oldest}"

    def _lost(self) -> str:
        shown = [f"{rank} on {node}" for rank, node in self._gone[:SHOWN]]
        if len(self._gone) > SHOWN:
            shown.append(f"{len(self._gone) - SHOWN} more")
        if len(self._gone) == 1:
            return f"rank {shown[0]} is gone"
        return f"ranks {', '.join(shown[:-1])} and {shown[-1]} are gone"

    def _raised(self) -> list[str]:
        if not self._failures:
            return []
        first = self._failures[0]
        count = len({_rank(failure) for failure in self._failures})
        where = f"rank {first.labels['rank']} on {_node(first.labels)}"
        some = f"{count} of {len(self._ups)} ranks raised an exception, {where} first"
        if count == 1:
            some = f"{where} raised an exception"
        return [f"{some} ({duration(self._now - first.value)} ago)"]


def _node(labels: dict[str, str]) -> str:
    """The node of a series."""
    return labels.get("node") or labels.get("instance") or "an unknown node"


def _rank(series: Series) -> Rank:
    return series.labels["rank"], _node(series.labels)


def _clock(when: float, now: float) -> str:
    """The local time of day, with the date unless it is today's."""
    today = time.strftime("%F", time.localtime(now))
    return time.strftime("%F %T", time.localtime(when)).removeprefix(f"{today} ")
