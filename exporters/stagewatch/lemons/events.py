"""Asks a Prometheus for interruptions of nodes and GPUs, and accounting for jobs that failed
there."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from stagewatch.lemons.ledger import Event, Unit
from stagewatch.prometheus.api import PrometheusApi, Track
from stagewatch.prometheus.selectors import Not, Regex, select
from stagewatch.report.history import runs
from stagewatch.report.ledger import DAY, split, window
from stagewatch.report.periods import Period
from stagewatch.slurm.notation import REASON_CLASSES, expand_or_none
from stagewatch.slurm.transport.text import slurm_runner

VERDICT_SECONDS, NODE_SECONDS, JOB_SECONDS = 60.0, 300.0, 900.0
"""Seconds between two looks: a verdict may last a minute, a node is out for longer, and jobs have a
node for hours, which takes a look at all ranks."""

GAP_SECONDS = 600.0
"""A verdict that comes back within this time is the same one."""

MAX_CLOSE = 2000
"""The most verdicts for which the GPU and the cost are queried: the latest."""

FAILED_STATES = "BF,F,NF,OOM"
"""Slurm's states of jobs that failed: at boot, by themselves, with a node, out of memory."""

NO_FAULT = ("maintenance", "none")
"""Classes of reasons to drain a node that has no fault."""

SACCT_SECONDS = 120.0


@dataclass(slots=True)
class Past:
    """The interruptions of one cluster, and the hours in which jobs had its nodes and GPUs."""

    nodes: dict[Unit, float] = field(default_factory=dict)
    gpus: dict[Unit, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    numbers: dict[Unit, str] = field(default_factory=dict)
    """The number of each GPU on its node."""

    @property
    def of_nodes(self) -> Iterator[Event]:
        """The events, each of its node."""
        return (replace(each, unit=each.unit._replace(gpu="")) for each in self.events)

    @property
    def of_gpus(self) -> Iterator[Event]:
        """The events whose GPU is known."""
        return (each for each in self.events if each.unit.gpu)


def read_past(api: PrometheusApi, period: Period, cluster: str) -> dict[str, Past]:
    """The past of each cluster.  Raises `SourceError`."""
    labels = {"cluster": cluster} if cluster else {}
    pasts: dict[str, Past] = defaultdict(Past)
    _exposure(api, period, labels, pasts)
    found = [*_verdicts(api, period, labels), *_xids(api, period, labels)]
    found += _out(api, period, labels, pasts)
    for event in found:
        pasts[event.unit.cluster].events.append(event)
    return dict(pasts)


def _exposure(
    api: PrometheusApi, period: Period, labels: Mapping[str, str], pasts: dict[str, Past]
) -> None:
    """The hours in which jobs had each node, and the GPUs it had."""
    held = " or ".join(
        f"group by (cluster, node) ({select(metric, **labels)}{more})"
        for metric, more in (("slurm_job_node", ""), ("gpu:job:info", ""), ("rl_rank_up", " == 1"))
    )
    known = select("gpu_info", **labels, mig="")
    for day in split(period, DAY):
        here: dict[Unit, float] = {}
        looks = f"({held})[{window(day)}:{JOB_SECONDS:.0f}s]"
        for each in api.query(f"count_over_time({looks})", day.end):
            unit = Unit(each.labels.get("cluster", ""), each.labels.get("node", ""))
            here[unit] = each.value * JOB_SECONDS / 3600
            of_nodes = pasts[unit.cluster].nodes
            of_nodes[unit] = of_nodes.get(unit, 0.0) + here[unit]
        gpus = f"last_over_time({known}[{window(day)}])"
        for each in api.query(f"group by (cluster, node, uuid, gpu) ({gpus})", day.end):
            node = Unit(each.labels.get("cluster", ""), each.labels.get("node", ""))
            gpu = node._replace(gpu=each.labels.get("uuid", ""))
            past = pasts[gpu.cluster]
            past.numbers[gpu] = each.labels.get("gpu", "")
            past.gpus[gpu] = past.gpus.get(gpu, 0.0) + here.get(node, 0.0)


def _verdicts(api: PrometheusApi, period: Period, labels: Mapping[str, str]) -> Iterator[Event]:
    """The times when the judge named a rank, or a rank or a node was slow."""
    slow = {"alertname": ("SlowRank", "SlowNode"), "alertstate": "firing"}
    found = []
    for kind, series in (
        ("named", select("job:rl_stall:culprit", **labels, node=Not(""))),
        ("slow", select("ALERTS", **labels, **slow, node=Not(""))),
    ):
        query = f"group by (cluster, node, job_id, role, rank) ({series})"
        for track in api.query_range(query, period.start, period.end, VERDICT_SECONDS):
            found += [(kind, track, start, end) for start, end in _runs(track, GAP_SECONDS)]
    verdicts = [(_verdict(*each), each[1]) for each in found]
    verdicts.sort(key=lambda each: each[0].start, reverse=True)
    for at, (event, track) in enumerate(verdicts):
        if not any(_beside(event, other) for other, _ in verdicts):
            yield _closely(api, event, track) if at < MAX_CLOSE else event


def _beside(one: Event, other: Event) -> bool:
    """Whether two nodes were named together.  That accuses neither: several ranks that behave alike
    have the same code, and not the same fault."""
    same = one.job == other.job and one.unit.cluster == other.unit.cluster
    return same and one.unit != other.unit and one.start < other.end and other.start < one.end


def _verdict(kind: str, track: Track, start: float, end: float) -> Event:
    of = track.labels.get
    unit = Unit(of("cluster", ""), of("node", ""))
    return Event(kind, unit, start, end + VERDICT_SECONDS, of("job_id", ""), of("rank", ""))


def _closely(api: PrometheusApi, event: Event, track: Track) -> Event:
    """The event with the rank's GPU, if it has one, and the cost of the stall."""
    job = {name: track.labels.get(name, "") for name in ("cluster", "job_id", "role")}
    if event.rank:
        rank = {**job, "node": event.unit.node, "rank": event.rank}
        before = f"last_over_time({select('rl_rank_info', **rank)}[15m])"
        gpus = {each.labels.get("uuid", "") for each in api.query(before, event.start)} - {""}
        if len(gpus) == 1:
            event = replace(event, unit=event.unit._replace(gpu=gpus.pop()))
    if event.kind == "named":
        length = event.end - event.start
        stalled = f"max_over_time({select('rl_job_stalled_gpus', **job)}[{length:.0f}s])"
        gpus_held = max((each.value for each in api.query(stalled, event.end)), default=0.0)
        event = replace(event, lost=length * gpus_held)
    return event


def _xids(api: PrometheusApi, period: Period, labels: Mapping[str, str]) -> Iterator[Event]:
    """Critical errors of GPUs, at the times that the agents export."""
    critical = select("gpu_xid_last_timestamp_seconds", **labels, severity="critical")
    query = f"max by (cluster, node, uuid, xid) ({critical})"
    for track in api.query_range(query, period.start, period.end, NODE_SECONDS):
        of = track.labels.get
        unit = Unit(of("cluster", ""), of("node", ""), of("uuid", ""))
        for when in sorted({value for _, value in track.samples}):
            if period.start <= when <= period.end:
                yield Event("xid", unit, when, when)


def _out(
    api: PrometheusApi, period: Period, labels: Mapping[str, str], pasts: Mapping[str, Past]
) -> Iterator[Event]:
    """The times when a node was down or failing, or drained for a fault."""
    gpus = Counter(unit._replace(gpu="") for past in pasts.values() for unit in past.gpus)
    out = "slurm_node_unavailable_info"
    gone = select(out, **labels, kind=Not("drain"), reason_class=Not("maintenance"))
    reasons = Regex("|".join(each for each in REASON_CLASSES if each not in NO_FAULT))
    drained = select(out, **labels, kind="drain", reason_class=reasons)
    purpose = f"unless on (cluster, node) {select('node:slurm_on_purpose:info', **labels)}"
    query = f"group by (cluster, node) ({gone} {purpose} or {drained})"
    for track in api.query_range(query, period.start, period.end, NODE_SECONDS):
        unit = Unit(track.labels.get("cluster", ""), track.labels.get("node", ""))
        for start, last in _runs(track, 2 * NODE_SECONDS):
            end = min(last + NODE_SECONDS, period.end)
            yield Event("out", unit, start, end, lost=gpus[unit] * (end - start))


def _runs(track: Track, gap: float) -> list[tuple[float, float]]:
    return runs([when for when, _ in track.samples], gap)


def failed_jobs(period: Period) -> Counter[str]:
    """The runs of jobs that failed, by each node that they had, from accounting.

    Raises `SourceError`.
    """
    now = time.time()
    command = (
        "sacct", "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2",
        f"--state={FAILED_STATES}", f"--starttime=now-{now - period.start:.0f}seconds",
        f"--endtime=now-{now - period.end:.0f}seconds", "--format=NodeList",
    )  # fmt: skip
    output = slurm_runner().run(command, SACCT_SECONDS).decode(errors="replace")
    failed: Counter[str] = Counter()
    for nodes in output.split("\n"):
        failed.update(expand_or_none(nodes))
    return failed
