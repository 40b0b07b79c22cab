"""Sentences on the slow ranks of a job, on what may explain them, and on a job that is slow as a
whole.

The words and the figures are the judge's own, as in the alerts `SlowRank` and `JobSlow`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from stagewatch.judgement.witnesses import with_value
from stagewatch.prometheus.api import Series

Ask = Callable[[str], list[Series]]
"""Returns the series of a metric, for one job of one cluster."""
RankKey = tuple[str, str, str]
"""Node, role and rank."""

_BESIDE = {
    "best_hours": "in its best hours of the last day",
    "earlier_runs": "in earlier runs of its name, user and number of ranks",
}


def slow_ranks(ask: Ask, most: int) -> list[str]:
    """A sentence for each slow rank, those that cost the most first."""
    slow = ask("rank:rl_slow:ratio")
    if not slow:
        return []
    costs = {rank_of(one): one.value for one in ask("rank:rl_slow_cost:ratio")}
    slow.sort(key=lambda one: -costs.get(rank_of(one), 0.0))
    seconds = {rank_of(one): one.value for one in ask("rank:rl_slow_cost:seconds_per_step")}
    beside = witnesses(ask)
    sentences = []
    for one in slow[:most]:
        node, _, rank = key = rank_of(one)
        cost = f", which costs {seconds[key]:.2g} s a step" if key in seconds else ""
        stands = f": {'; '.join(beside[key])}" if key in beside else ""
        sentences.append(
            f"Slow: rank {rank} on {node} works {one.value:.2f} times as long as its peers"
            f"{cost}{stands}."
        )
    if len(slow) > most:
        sentences.append(f"And {len(slow) - most} more.")
    return sentences


def witnesses(ask: Ask) -> Mapping[RankKey, Sequence[str]]:
    """The sentences on what may explain each slow rank, in the order of the alert; each only once,
    even with several judges."""
    found: defaultdict[RankKey, dict[str, str]] = defaultdict(dict)
    for one in sorted(ask("rl_rank_slow_witness"), key=lambda one: one.labels.get("witness", "")):
        found[rank_of(one)][one.labels.get("witness", "")] = _clause(one)
    return {rank: tuple(clauses.values()) for rank, clauses in found.items()}


def slow_job(ask: Ask) -> list[str]:
    """For each role whose steps take longer than they did, a sentence on that and on the causes."""
    slow = ask("job_role:rl_slow_job_told:ratio")
    if not slow:
        return []
    times = {one.labels.get("role", ""): one.value for one in ask("job_role:rl_step_time:seconds")}
    causes = ask("rl_job_slow_cause_share")
    return [
        f"Slow as a whole: over the last hour a step of {role} took {times.get(role, 0):.2g} s, "
        f"{one.value:.2f} times as long as {_BESIDE.get(beside, 'before')}; "
        f"{_grown(role, beside, causes)}."
        for one in slow
        for role, beside in [(one.labels.get("role", ""), one.labels.get("beside", ""))]
    ]


def _grown(role: str, beside: str, causes: Sequence[Series]) -> str:
    parts = {
        one.labels.get("words", ""): _clause(one)
        for one in causes
        if (one.labels.get("role", ""), one.labels.get("beside", "")) == (role, beside)
    }
    return "; ".join(parts.values()) or "no single stage explains most of the growth"


def _clause(series: Series) -> str:
    """The sentence in the labels of a series, as a part of a longer one."""
    text = with_value(series.labels.get("words", ""), series.value).removesuffix(".")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def rank_of(series: Series) -> RankKey:
    """The rank that a series belongs to."""
    labels = series.labels
    node = labels.get("node") or labels.get("instance", "an unknown node")
    return node, labels.get("role", ""), labels.get("rank", "")
