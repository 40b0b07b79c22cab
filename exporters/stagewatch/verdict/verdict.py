"""The verdict over the ranks of one job on one node: trigger, then localise, or abstain.

The cluster-wide verdict is the work of the recording rules (`alerts/stalls.rules.yaml`), in the
same order; this one is for a person who could only log in to the node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from stagewatch.ranks.wait_class import WaitClass, sleeps_in
from stagewatch.verdict.budget import COMPUTING_SECONDS, MIN_SECONDS, PATIENCE_SECONDS
from stagewatch.verdict.facts import RankFacts
from stagewatch.verdict.failures import failed, first_failure, silent, stopped
from stagewatch.verdict.words import BEEN, Ranks, age, doing, span, step, who

_IDLE = "no stage is open, all are idle"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one role of a job as far as this node shows."""

    job_id: str
    role: str
    stalled: bool
    """Whether no rank makes progress any more."""
    evidence: str
    """`process_gone`, `left_loop_early`, `collective_behind`, `io_blocked`, `odd_one_out`,
    `group_only`, `raised` (stopped since an exception), or empty where nothing is wrong or nothing
    can be said."""
    culprits: tuple[RankFacts, ...]
    sentence: str

    @property
    def wrong(self) -> bool:
        """Whether somebody should act."""
        return bool(self.evidence)


def judge(ranks: Ranks) -> list[Verdict]:
    """A verdict for each role of each job on this node."""
    jobs = Counter((rank.job_id, rank.role) for rank in ranks)
    return [
        _judge_role([rank for rank in ranks if (rank.job_id, rank.role) == key], ranks, key)
        for key in sorted(jobs)
    ]


def _judge_role(ranks: Ranks, node: Ranks, key: tuple[str, str]) -> Verdict:
    job_id, role = key
    others = [rank for rank in node if rank.job_id == job_id and rank.role != role]
    job = f"job {job_id} ({role})" if others else f"job {job_id}"
    gone = tuple(rank for rank in ranks if rank.wait_class is WaitClass.GONE)
    live = tuple(rank for rank in ranks if rank.wait_class is not WaitClass.GONE)
    first = first_failure(ranks)
    failure = f"; first failure: {first}" if first else ""
    stuck = stalled(live, others)
    if not live:
        whole = "its only rank here is" if len(gone) == 1 else f"all its {len(gone)} ranks here are"
        return Verdict(job_id, role, False, "process_gone", (), f"{job}: {whole} gone{failure}")
    if gone:
        still = f", without progress for {span(age(live))}" if silent(live) else ""
        sentence = (
            f"{job}: {who(gone)} ended without closing its record; {doing(live)}{still}{failure}"
        )
        return Verdict(job_id, role, stuck, "process_gone", gone, sentence)
    if stuck:
        return _stuck(job, live, failure)
    excused = excuse(live)
    if failed(live) and silent(live) and excused in ("", _IDLE):
        return Verdict(job_id, role, False, "raised", (), f"{job}: {stopped(ranks, live)}")
    return Verdict(job_id, role, False, "", (), f"{job}: {_going(live, excused)}{failure}")


def _stuck(job: str, live: Ranks, failure: str) -> Verdict:
    job_id, role = live[0].job_id, live[0].role
    culprits, evidence = _localise(live)
    if culprits:
        sentence = _accuse(job, live, culprits, evidence)
        return Verdict(job_id, role, True, evidence, culprits, sentence + failure)
    sentence = (
        f"{job}: no progress for {span(age(live))} at step {step(live)}: {doing(live)}; no rank of "
        f"this node stands out, so suspect the transport, a GPU or a rank of another node{failure}"
    )
    return Verdict(job_id, role, True, "group_only", (), sentence)


def _going(live: Ranks, excused: str) -> str:
    """Of ranks that do not hang: a rank between two steps is parked, and yet makes progress."""
    known = [rank for rank in live if rank.progress_age_seconds is not None]
    held = any(rank.wait_class is WaitClass.TRACED for rank in live)
    if known and not held and not failed(live) and all(map(_moved, known)):
        moved = f"in progress at step {step(known)}, last progress {span(age(known))} ago"
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
    return f"{doing(live)}: step {step(known)}, last progress {span(age(known))} ago"


def _moved(rank: RankFacts) -> bool:
    """Just now."""
    seconds = rank.progress_age_seconds
    return seconds is not None and seconds < MIN_SECONDS and not rank.overdue


def stalled(live: Ranks, others: Ranks) -> bool:
    """Every live rank is overdue, at least half of them against a budget they have taught, there is
    no excuse, and nobody of the job's `others` sets up or saves, which the rest may wait for."""
    return (
        bool(live)
        and all(rank.overdue for rank in live)
        and 2 * sum(rank.armed for rank in live) >= len(live)
        and not excuse(live)
        and not any(_sets_up_or_saves(rank) for rank in others)
    )


def excuse(live: Ranks) -> str:
    """What looks like a stall and is none; empty if there is no such thing."""
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
    """Who stands out, and by what: the collective sequence first, then the odd wait class."""
    behind = _minority(live, _behind(live))
    if behind:
        # No peer can bring a rank to stop or to wait for storage: others may be behind for it.
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
    """Parked where none of their peers is, while those all spin: they wait for them inside the
    loop that they have left.  Another stage, or a step that none of the peers is at."""
    others = [rank for rank in live if rank not in suspects]
    stages = {rank.stage for rank in others}
    steps = [rank.step for rank in others if rank.step is not None]

    def elsewhere(rank: RankFacts) -> bool:
        step = rank.step
        outside = step is not None and bool(steps) and not min(steps) <= step <= max(steps)
        return rank.stage not in stages or outside

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
        f"for {span(age(culprits))} at step {step(culprits)}"
    )
    if evidence == "left_loop_early":
        return f"{sentence}: {'it' if one else 'they'} left the loop early"
    if evidence == "collective_behind":
        return f"{sentence}: {'it' if one else 'they'} entered fewer collectives than the others"
    return sentence
