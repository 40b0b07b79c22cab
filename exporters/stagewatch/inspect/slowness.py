"""Says which ranks of a job are slow, what stands beside them, and whether all of it is slow.

The words are those of the alerts `SlowRank` and `JobSlow`; the figures are the rules' own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from stagewatch.prometheus.api import Series

Ask = Callable[[str], list[Series]]
"""The series of a metric, of one job of one cluster."""
RankKey = tuple[str, str, str]
"""Node, role and rank."""

_WITNESSES = {
    "core_wait": "its threads wait for a core {0:.0%} of the time",
    "cpu_limit": "a CPU limit stops it {0:.0%} of the time",
    "cpu_steal": "the hypervisor takes {0:.0%} of its node's processors away",
    "disk_wait": "it waits for disks {0:.0%} of the time",
    "swapped": "{0:.0%} of its memory is swapped out",
    "numa_other": "{0:.0%} of the pages that its node's processes take lie on another NUMA node "
    "than their processor",
    "data_wait": "it waits for data {0:.0%} of the time more than its peers",
    "nfs_read": "NFS reads take {0:.0%} of what they take on the job's other nodes",
    "gpu_clock": "its GPU's clock is at {0:.0%} of its peers'{2}",
    "gpu_throttled": "its GPU is slowed down {0:.0%} of the time ({1})",
    "pcie_width": "its GPU's PCIe link has {0:.0%} of its lanes",
    "tcp_repeats": "{0:.0%} of its TCP segments are sent again",
}
_ERRORS = {
    "nvlink": "its GPU's NVLinks have {0} errors a minute",
    "pcie": "its GPU's PCIe link repeats {0} packets a minute",
    "memory": "its GPU's memory mends {0} errors a minute",
}
_UNITS = {
    "sm": "its GPU's SMs are active {0:.0%} of the time {1} than those of its peers",
    "tensor": "its GPU's tensor cores are active {0:.0%} of the time {1} than those of its peers",
}
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
    """What may explain each slow rank, in the order in which the alert tells it."""
    found: defaultdict[RankKey, list[str]] = defaultdict(list)
    below = {
        rank_of(one): f", {one.value / 1e6:.3g}MHz below"
        for one in ask("rank:rl_slow_gpu_clock_below:hertz")
    }
    for one in sorted(ask("rank:rl_slow_witness:ratio"), key=_witness):
        form = _WITNESSES.get(_witness(one))
        if form is not None:
            reason = one.labels.get("reason", "").replace("_", " ")
            key = rank_of(one)
            found[key].append(form.format(one.value, reason, below.get(key, "")))
    for one in ask("rank:rl_slow_page_faults:per_second"):
        found[rank_of(one)].append(f"it waits for {_short(one.value)} pages a second from a disk")
    for one in ask("rank:rl_slow_gpu_errors:per_minute"):
        form = _ERRORS.get(one.labels.get("what", ""))
        if form is not None:
            found[rank_of(one)].append(form.format(_short(one.value)))
    for one in ask("rank:rl_slow_gpu_hotter:celsius"):
        found[rank_of(one)].append(f"its GPU is {one.value:.0f} °C hotter than those of its peers")
    for one in ask("rank:rl_slow_gpu_active_odd:ratio"):
        form = _UNITS.get(one.labels.get("unit", ""))
        if form is not None:
            beside = "more" if one.value > 0 else "less"
            found[rank_of(one)].append(form.format(abs(one.value), beside))
    return found


def _witness(series: Series) -> str:
    return series.labels.get("witness", "")


def slow_job(ask: Ask) -> list[str]:
    """A sentence for each role whose steps take longer than they did, and for what has grown."""
    slow = ask("job_role:rl_slow_job_told:ratio")
    if not slow:
        return []
    times = {one.labels.get("role", ""): one.value for one in ask("job_role:rl_step_time:seconds")}
    causes = ask("job_role_stage:rl_slow_job_cause:share")
    return [
        f"Slow as a whole: over the last hour a step of {role} took {times.get(role, 0):.2g} s, "
        f"{one.value:.2f} times as long as {_BESIDE.get(beside, 'before')}; "
        f"{_grown(role, beside, causes)}."
        for one in slow
        for role, beside in [(one.labels.get("role", ""), one.labels.get("beside", ""))]
    ]


def _grown(role: str, beside: str, causes: Sequence[Series]) -> str:
    parts = [
        f"{_part(one.labels)} is {one.value:.0%} of what it has grown by"
        for one in causes
        if (one.labels.get("role", ""), one.labels.get("beside", "")) == (role, beside)
    ]
    return "; ".join(parts) or "no one stage has most of what it has grown by"


def _part(labels: Mapping[str, str]) -> str:
    if labels.get("cause") == "data":
        return "waiting for data"
    if labels.get("cause") == "waiting":
        return "waiting in collectives"
    return f"work in {labels.get('stage', '')}"


def _short(count: float) -> str:
    """A number of two digits that count, with `k` for thousands."""
    thousands = count >= 1000
    return f"{float(f'{count / 1000 if thousands else count:.2g}'):g}{'k' if thousands else ''}"


def rank_of(series: Series) -> RankKey:
    """The rank that a series belongs to."""
    labels = series.labels
    node = labels.get("node") or labels.get("instance", "an unknown node")
    return node, labels.get("role", ""), labels.get("rank", "")
