"""Judges the ranks of each job on this node: has it hung or stopped, and which rank is at fault?

It first decides whether the ranks are stalled, then names a culprit, or abstains.  The recording
rules (`alerts/stalls.rules.yaml`) judge a whole cluster in the same order; this verdict is for a
person who could only log in to the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.core.words import duration
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.verdict.facts import RankFacts
from stagewatch.verdict.thresholds import (
    COMPUTING_SECONDS,
    MIN_SECONDS,
    PATIENCE_SECONDS,
    SETTLE_SECONDS,
)
from stagewatch.verdict.words import BEEN, doing, sleeps_in, who

Ranks = Sequence[RankFacts]

_IDLE = "no stage is open, all are idle"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one role of a job, as far as this node shows."""

    job_id: str
    role: str
    stalled: bool
    """Whether no rank makes progress any more."""
    evidence: str
    """`process_gone`, `left_loop_early`, `collective_behind`, `io_blocked`, `odd_one_out`,
    `group_only`, `raised` (stopped since an exception), or empty where nothing is wrong or the
    facts do not suffice."""
    culprits: tuple[RankFacts, ...]
    sentence: str

    @property
    def wrong(self) -> bool:
        """Whether somebody should act."""
        return bool(self.evidence)


def judge(ranks: Ranks) -> list[Verdict]:
    """A verdict for each role of each job on this node."""
    return [
        _judge_role([rank for rank in ranks if (rank.job_id, rank.role) == key], ranks, key)
        for key in sorted({(rank.job_id, rank.role) for rank in ranks})
    ]


def _judge_role(ranks: Ranks, node: Ranks, key: tuple[str, str]) -> Verdict:
    job_id, role = key
    others = [rank for rank in node if rank.job_id == job_id and rank.role != role]
    job = f"job {job_id} ({role})" if others else f"job {job_id}"
    gone = tuple(rank for rank in ranks if rank.wait_class is WaitClass.GONE)
    live = tuple(rank for rank in ranks if rank.wait_class is not WaitClass.GONE)
    first = _first_failure(ranks)
    failure = f"; first failure: {first}" if first else ""
    stuck = stalled(live, others)
    if not live:
        whole = "its only rank here is" if len(gone) == 1 else f"all its {len(gone)} ranks here are"
        return Verdict(job_id, role, False, "process_gone", (), f"{job}: {whole} gone{failure}")
    if gone:
        still = f", without progress for {_since(live)}" if _silent(live) else ""
        sentence = (
            f"{job}: {who(gone)} ended without closing its record; {doing(live)}{still}{failure}"
        )
        return Verdict(job_id, role, stuck, "process_gone", gone, sentence)
    if stuck:
        return _stuck(job, live, failure)
    excused = excuse(live)
    if failed(live) and _silent(live) and excused in ("", _IDLE):
        return Verdict(job_id, role, False, "raised", (), f"{job}: {_stopped(ranks, live)}")
    return Verdict(job_id, role, False, "", (), f"{job}: {_going(live, excused)}{failure}")


def _stuck(job: str, live: Ranks, failure: str) -> Verdict:
    job_id, role = live[0].job_id, live[0].role
    culprits, evidence = _localise(live)
    if culprits:
        sentence = _accuse(job, live, culprits, evidence)
        return Verdict(job_id, role, True, evidence, culprits, sentence + failure)
    sentence = (
        f"{job}: no progress for {_since(live)} at step {_step(live)}: {doing(live)}; no rank of "
        f"this node stands out, so suspect the transport, a GPU or a rank of another node{failure}"
    )
    return Verdict(job_id, role, True, "group_only", (), sentence)


def _going(live: Ranks, excused: str) -> str:
    """The sentence on ranks that do not hang; one that is parked between two steps progresses."""
    known = [rank for rank in live if rank.progress_age_seconds is not None]
    held = any(rank.wait_class is WaitClass.TRACED for rank in live)
    if known and not held and not failed(live) and all(map(_moved, known)):
        moved = f"in progress at step {_step(known)}, last progress {_since(known)} ago"
        return f"{moved}; at this moment {doing(live)}"
    if excused:
        return f"{doing(live)}: {excused}"
    if not known:
        return f"{doing(live)}: no rank keeps a stage record, so progress cannot be judged"
    overdue = sum(rank.overdue for rank in known)
    if overdue:
        return (
            f"{doing(live)}: {overdue} of {len(live)} overdue, the others still within their budget"
        )
    return f"{doing(live)}: step {_step(known)}, last progress {_since(known)} ago"


def _moved(rank: RankFacts) -> bool:
    """Whether the rank has just made progress."""
    seconds = rank.progress_age_seconds
    return seconds is not None and seconds < MIN_SECONDS and not rank.overdue


def stalled(live: Ranks, others: Ranks) -> bool:
    """Whether every live rank is overdue, at least half of them by a budget that they have taught,
    without an excuse, while none of the job's `others` sets up or saves: the rest may wait for
    that."""
    return (
        bool(live)
        and all(rank.overdue for rank in live)
        and 2 * sum(rank.armed for rank in live) >= len(live)
        and not excuse(live)
        and not any(_sets_up_or_saves(rank) for rank in others)
    )


def excuse(live: Ranks) -> str:
    """Why what looks like a stall is none; empty without such a reason."""
    for rank in live:
        since = rank.progress_age_seconds or 0.0
        if rank.wait_class is WaitClass.TRACED:
            return f"a debugger holds {who((rank,))}"
        if rank.wait_class is WaitClass.COMPUTE and rank.overdue and since < COMPUTING_SECONDS:
            return f"{who((rank,))} computes something long"
        if rank.stage in PATIENCE_SECONDS and not rank.overdue:
            return f"{who((rank,))} is in {rank.stage}, which may take long"
    if all(rank.stage == "idle" and rank.wait_class is WaitClass.PARKED for rank in live):
        return _IDLE
    return ""


def _sets_up_or_saves(rank: RankFacts) -> bool:
    return (
        rank.stage in ("init", "checkpoint")
        and rank.wait_class is not WaitClass.GONE
        and not rank.overdue
    )


def _localise(live: Ranks) -> tuple[tuple[RankFacts, ...], str]:
    """The ranks that stand out, and the evidence: the collective sequence, then the wait class."""
    behind = _minority(live, _behind(live))
    if behind:
        # No peer can stop a rank or make it wait for storage, but such a rank holds up its peers.
        for wait_class, evidence in (
            (WaitClass.STOPPED, "odd_one_out"),
            (WaitClass.IO, "io_blocked"),
        ):
            cause = tuple(rank for rank in behind if rank.wait_class is wait_class)
            if cause:
                return cause, evidence
        early = _left_early(live, behind)
        return behind, "left_loop_early" if early else "collective_behind"
    if 2 * sum(rank.wait_class is WaitClass.UNKNOWN for rank in live) >= len(live):
        return (), ""
    for wait_class in (WaitClass.STOPPED, WaitClass.IO, WaitClass.PARKED, WaitClass.SPIN):
        odd = _minority(live, tuple(rank for rank in live if rank.wait_class is wait_class))
        if odd and wait_class is WaitClass.IO:
            return odd, "io_blocked"
        if odd:
            return odd, "left_loop_early" if _left_early(live, odd) else "odd_one_out"
    return (), ""


def _minority(live: Ranks, some: tuple[RankFacts, ...]) -> tuple[RankFacts, ...]:
    return some if 2 * len(some) < len(live) else ()


def _behind(live: Ranks) -> tuple[RankFacts, ...]:
    most: Counter[str] = Counter()
    for rank in live:
        for group, sequence in rank.collectives.items():
            most[group] = max(most[group], sequence)
    return tuple(
        rank
        for rank in live
        if any(sequence < most[group] for group, sequence in rank.collectives.items())
    )


def _left_early(live: Ranks, suspects: Ranks) -> bool:
    """Whether the suspects are parked, in a stage or at a step of their own, while all peers spin:
    those wait inside the loop that the suspects have left."""
    others = [rank for rank in live if rank not in suspects]
    stages = {rank.stage for rank in others}
    steps = [rank.step for rank in others if rank.step is not None]

    def elsewhere(rank: RankFacts) -> bool:
        if rank.stage not in stages:
            return True
        return rank.step is not None and bool(steps) and not min(steps) <= rank.step <= max(steps)

    return (
        all(rank.wait_class is WaitClass.PARKED for rank in suspects)
        and all(rank.wait_class is WaitClass.SPIN for rank in others)
        and all(elsewhere(rank) for rank in suspects)
    )


def _accuse(job: str, live: Ranks, culprits: Ranks, evidence: str) -> str:
    others = [rank for rank in live if rank not in culprits]
    first = culprits[0]
    state = BEEN[first.wait_class]
    channel = sleeps_in(first.wait_channel)
    if first.wait_class in (WaitClass.PARKED, WaitClass.IO) and channel:
        state += f" in {channel}"
    one = len(culprits) == 1
    sentence = (
        f"{job}: {doing(others)}, {who(culprits)} {'has' if one else 'have'} been {state} "
        f"for {_since(culprits)} at step {_step(culprits)}"
    )
    if evidence == "left_loop_early":
        return f"{sentence}: {'it' if one else 'they'} left the loop early"
    if evidence == "collective_behind":
        return f"{sentence}: {'it' if one else 'they'} entered fewer collectives than the others"
    return sentence


def failed(ranks: Ranks) -> bool:
    """Whether no rank has completed anything since the last exception that one raised."""
    raised = [rank.first_failure_age_seconds for rank in ranks]
    last = min((seconds for seconds in raised if seconds is not None), default=None)
    moved = [rank.progress_age_seconds for rank in ranks]
    since = min((seconds for seconds in moved if seconds is not None), default=None)
    return last is not None and since is not None and since >= last - SETTLE_SECONDS


def _silent(live: Ranks) -> bool:
    """Whether every rank is overdue, or is idle and not just between two steps."""
    return bool(live) and all(
        rank.overdue or (rank.stage == "idle" and (rank.progress_age_seconds or 0.0) >= MIN_SECONDS)
        for rank in live
    )


def _raised(ranks: Ranks) -> list[RankFacts]:
    """The ranks that raised an exception, the first first: the others usually follow from it."""
    raised = [rank for rank in ranks if rank.first_failure_age_seconds is not None]
    return sorted(raised, key=lambda rank: rank.first_failure_time or 0.0)


def _first_failure(ranks: Ranks) -> str:
    """Which rank raised first, what, in which stage and when; empty if none did."""
    raised = _raised(ranks)
    if not raised:
        return ""
    first = raised[0]
    ago = duration(first.first_failure_age_seconds or 0.0)
    return f"{who((first,))}, {first.first_failure}, {ago} ago"


def _stopped(ranks: Ranks, live: Ranks) -> str:
    """The sentence on ranks that do nothing any more since an exception."""
    count = len(_raised(ranks))
    raised = f"{count} of {len(ranks)} ranks raised an exception, first"
    if count == 1:
        raised = "an exception was raised by"
    none = "none has" if len(live) > 1 else "it has not"
    return (
        f"stopped at step {_step(live)}: {raised} {_first_failure(ranks)}; {doing(live)}, and "
        f"{none} completed anything for {_since(live)}"
    )


def _since(ranks: Ranks) -> str:
    """How long ago the last progress of any of them was."""
    return duration(min((rank.progress_age_seconds or 0.0 for rank in ranks), default=0.0))


def _step(ranks: Ranks) -> str:
    """The furthest step of any of them."""
    steps = [rank.step for rank in ranks if rank.step is not None]
    return str(max(steps)) if steps else "unknown"
