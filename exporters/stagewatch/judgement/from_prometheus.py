"""Facts about the ranks of whole jobs, from the node agents' series in a Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from stagewatch.gpu.device_state import Device
from stagewatch.judgement.facts import (
    ANYBODY,
    Inside,
    KernelWait,
    RankFacts,
    RecordState,
    seems_still,
    silent_seconds,
)
from stagewatch.judgement.limits import (
    DEFAULT,
    NOTHING_SHOWN,
    REMEMBERED_SECONDS,
    Limits,
    Shown,
    Stages,
    budget_seconds,
)
from stagewatch.judgement.memory import Moment
from stagewatch.prometheus.api import Series
from stagewatch.prometheus.selectors import matchers
from stagewatch.ranks.nccl.layout import STATES, Communicator, Transfer
from stagewatch.ranks.stacks import Stack
from stagewatch.ranks.wait_class import WaitClass

JobKey = tuple[str, str]
"""Cluster (empty if it has no name) and job."""
RankKey = tuple[str, str, str]
"""Role, rank and node."""
Labelled = tuple[dict[str, str], float]

FAILURE = "rl_rank_first_failure_timestamp_seconds"
UP, STILL, AGE = "rl_rank_up", "rl_rank_still_seconds", "rl_rank_progress_age_seconds"
_HEARD = "rl_rank_tcp_last_receive_age_seconds"
METRICS = (
    UP,
    STILL,
    AGE,
    "rl_rank_info",
    "rl_rank_started_timestamp_seconds",
    "rl_rank_expected_seconds",
    "rl_rank_at_work",
    "rl_rank_storage_wait_seconds",
    "rl_rank_stage_open_seconds",
    "rl_rank_wait_class",
    "rl_rank_device_state",
    "rl_rank_step",
    "rl_rank_step_age_seconds",
    "rl_rank_unmarked",
    "rl_rank_collective_seq",
    "rl_rank_group_size",
    "rl_rank_collective_inside_seconds",
    "rl_rank_collective_elements",
    "rl_call_oldest_seconds",
    FAILURE,
    "rl_rank_stack_group",
    "rl_rank_stack_frame_info",
    "rl_rank_waits_for",
    "rl_rank_connection_info",
    _HEARD,
    "rl_rank_nccl_operation",
    "rl_rank_nccl_wait_info",
    "rank:rl_straggler:ratio",
)
"""The metrics behind the facts."""
SUMS = {
    "gaps": "job_role_stage:rl_progress_gaps:count",
    "p99_seconds": "job_role_stage:rl_progress_gap_seconds:p99",
    "longest_seconds": "job_role_stage:rl_progress_gap_longest:seconds",
    "recent_seconds": "job_role_stage:rl_progress_gap_recent:seconds",
}
"""The records of `alerts/stalls.rules.yaml` with sums over the gaps of a role and stage."""
_SCRAPES = "5s"
_VANISHED, _VANISHED_SHARE = 3, 0.1
"""If at least so many targets, and more than this share of all, are scraped no more, the judge
counts them as lost from its sight, and not their nodes as lost."""


_PER_LABEL = {
    "rl_rank_collective_seq": "group",
    "rl_rank_group_size": "group",
    "rl_rank_collective_inside_seconds": "group",
    "rl_rank_collective_elements": "group",
    "rl_call_oldest_seconds": "name",
}
"""Metrics with several series per rank, and the label that tells these apart."""


class Queries(Protocol):
    """A server that answers instant queries."""

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        """The series of an instant vector, as of a Unix time."""
        ...


@dataclass(frozen=True, slots=True)
class Departed:
    """A rank that was scraped within the last quarter of an hour and is not any more."""

    seconds: float
    """Time since it was last scraped."""
    pid: int = 0
    world_size: int | None = None
    node_lost: bool = False
    """Whether the agent of its node does not answer."""


@dataclass(slots=True)
class JobSeries:
    """The series of one job at one moment, and what is known of its past."""

    by: defaultdict[str, list[Labelled]] = field(default_factory=lambda: defaultdict(list))
    """Samples by metric."""
    shown: dict[str, dict[str, Shown]] = field(default_factory=dict)
    departed: Mapping[RankKey, Departed] = field(default_factory=dict)
    scraped: dict[RankKey, float] = field(default_factory=dict)
    """When the failures of ranks were scraped, Unix seconds."""

    @property
    def present(self) -> str:
        """The metric that every rank of the job has; if a rank keeps a record, every rank that
        does."""
        return UP if self.by[UP] else STILL


def _sum_of_series(name: str, selector: str) -> str:
    """PromQL for a sum of `SUMS` from the series themselves, for a server without the rules."""
    if name == "p99_seconds":
        buckets = f"rl_progress_gap_seconds_bucket{{{selector}}}"
        summed = f"sum by (cluster, job_id, role, stage, le) ({buckets})"
        return f"histogram_quantile(0.99, {summed})"
    how, metric = {
        "gaps": ("sum", "rl_progress_gap_seconds_count"),
        "longest_seconds": ("max", "rl_progress_gap_longest_seconds"),
        "recent_seconds": ("max", "rl_progress_gap_recent_seconds"),
    }[name]
    return f"{how} by (cluster, job_id, role, stage) ({metric}{{{selector}}})"


def job_key(labels: Mapping[str, str]) -> JobKey:
    """The job that a series belongs to."""
    return labels.get("cluster", ""), labels.get("job_id", "")


def rank_key(labels: Mapping[str, str]) -> RankKey:
    """The rank that a series belongs to."""
    try:
        return labels["role"], labels["rank"], labels["node"]
    except KeyError:
        node = labels.get("node") or labels.get("instance", "")
        return labels.get("role", ""), labels.get("rank", ""), node


def matchers_of(keys: Collection[JobKey]) -> str:
    """Label matchers for these jobs.  For several clusters they may match further jobs, which the
    caller drops."""
    clusters, jobs = ({key[at] for key in keys} for at in (0, 1))
    return matchers(cluster=sorted(clusters), job_id=sorted(jobs))


def owners(api: Queries, keys: Sequence[JobKey], at: float | None = None) -> Mapping[JobKey, str]:
    """The users of jobs, from the Slurm agent's metrics."""
    found = api.query(f"job:slurm_owner:info{{{matchers_of(keys)}}}", at)
    return {job_key(one.labels): one.labels.get("user", "") for one in found}


def shown_of(values: Mapping[str, float]) -> Shown:
    """The gaps of a role in a stage, from their sums by the names of `SUMS`."""
    return Shown(
        int(values.get("gaps", 0)),
        values.get("p99_seconds", 0.0),
        values.get("longest_seconds", 0.0),
        values.get("recent_seconds", 0.0),
    )


class Asker:
    """Reads the moments of jobs from a server."""

    def __init__(self, api: Queries, limits: Limits = DEFAULT, *, recorded: bool = True) -> None:
        """`recorded`: the server has the rules' sums; else they are made from the series."""
        self._api = api
        self._limits = limits
        self._recorded = recorded
        self.blind = False
        """Whether, at the last look, agents were missing from the scraped targets."""

    def moments(self, keys: Collection[JobKey], at: float) -> dict[JobKey, Moment]:
        """These jobs as they were at a Unix time."""
        self.blind = False
        if not keys:
            return {}
        jobs: dict[JobKey, JobSeries] = {key: JobSeries() for key in keys}
        names = matchers(__name__=METRICS)
        for one in self._api.query(f"{{{names}, {matchers_of(keys)}}}", at):
            if (job := jobs.get(job_key(one.labels))) is not None:
                job.by[one.labels["__name__"]].append((one.labels, one.value))
        self._failures(jobs, at)
        self._sums(jobs, at)
        fewer = self._with_fewer_ranks(jobs, at)
        for present in (UP, STILL):
            left = self._departed(
                present, [key for key in fewer if jobs[key].present == present], at
            )
            for key, ranks in left.items():
                jobs[key].departed = ranks
        return {key: moment(key[1], job, at, self._limits) for key, job in jobs.items()}

    def _failures(self, jobs: Mapping[JobKey, JobSeries], at: float) -> None:
        """Read when the first failures were scraped, since their age is as of that time."""
        if any(job.by[FAILURE] for job in jobs.values()):
            for one in self._api.query(f"timestamp({FAILURE}{{{matchers_of(jobs)}}})", at):
                if (job := jobs.get(job_key(one.labels))) is not None:
                    job.scraped[rank_key(one.labels)] = one.value

    def _sums(self, jobs: Mapping[JobKey, JobSeries], at: float) -> None:
        """Read the sums over the gaps of each role and stage."""
        selector = matchers_of(jobs)
        found: dict[tuple[JobKey, str, str], dict[str, float]] = defaultdict(dict)
        for name, record in SUMS.items():
            asked = f"{record}{{{selector}}}" if self._recorded else _sum_of_series(name, selector)
            for one in self._api.query(asked, at):
                labels = one.labels
                place = job_key(labels), labels.get("role", ""), labels.get("stage", "")
                if one.value == one.value:  # a quantile of nothing is no number
                    found[place][name] = one.value
        for (key, role, stage), values in found.items():
            if key in jobs:
                jobs[key].shown.setdefault(role, {})[stage] = shown_of(values)

    def _with_fewer_ranks(self, jobs: Mapping[JobKey, JobSeries], at: float) -> list[JobKey]:
        """The jobs that may have fewer live ranks than earlier in the last quarter of an hour."""
        record = f"job:rl_ranks_live:count{{{matchers_of(jobs)}}}"
        most = f"max_over_time({record}[{REMEMBERED_SECONDS:.0f}s])"
        if not self._recorded:
            return list(jobs)
        fewer = self._api.query(f"{most} > {record} or {most} unless {record}", at)
        uncounted = {key for key, job in jobs.items() if job.present == STILL}
        return sorted({job_key(one.labels) for one in fewer} & jobs.keys() | uncounted)

    def _departed(
        self, present: str, keys: Collection[JobKey], at: float
    ) -> dict[JobKey, dict[RankKey, Departed]]:
        """By job, the ranks that were scraped lately and are not any more; `present` is the metric
        that every rank has."""
        if not keys:
            return {}
        selector, window = matchers_of(keys), f"{REMEMBERED_SECONDS:.0f}s"
        last = self._api.query(
            f"max_over_time(timestamp({present}{{{selector}}} {'== 1' * (present == UP)})"
            f"[{window}:{_SCRAPES}])"
            f" unless on (cluster, node, instance, job_id, role, rank) {present}{{{selector}}}",
            at,
        )
        if not last:
            return {}
        infos = {
            (job_key(one.labels), rank_key(one.labels)): one.labels
            for one in self._api.query(f"last_over_time(rl_rank_info{{{selector}}}[{window}])", at)
        }
        answers, vanished = self._agents(at)
        self.blind |= bool(vanished)
        found: dict[JobKey, dict[RankKey, Departed]] = defaultdict(dict)
        for one in last:
            key, rank = job_key(one.labels), rank_key(one.labels)
            info = infos.get((key, rank), {})
            place = key[0], rank[2]
            if place in vanished:
                continue
            found[key][rank] = Departed(
                max(0.0, at - one.value),
                _whole(info.get("pid", "")) or 0,
                _whole(info.get("world_size", "")),
                node_lost=bool(answers) and place not in answers,
            )
        return found

    def _agents(self, at: float) -> tuple[set[JobKey], set[JobKey]]:
        """Cluster and node of every agent that answers, and of the vanished targets, if they are
        too many to be lost nodes."""
        now = self._api.query('up{job="stagewatch"}', at)
        asked = {_agent_key(one.labels) for one in now}
        before = {
            _agent_key(one.labels)
            for one in self._api.query('last_over_time(up{job="stagewatch"}[15m])', at)
        }
        gone = before - asked
        many = len(gone) >= _VANISHED and len(gone) > _VANISHED_SHARE * len(before)
        return {_agent_key(one.labels) for one in now if one.value}, gone if many else set()


def _agent_key(labels: Mapping[str, str]) -> JobKey:
    return labels.get("cluster", ""), labels.get("node") or labels.get("instance", "")


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _wait_class(labels: Mapping[str, str]) -> WaitClass:
    """The wait class of a series; `UNKNOWN` for one of a later version."""
    name = labels.get("class", "")
    return WaitClass(name) if name in WaitClass._value2member_map_ else WaitClass.UNKNOWN


def _device(labels: Mapping[str, str]) -> Device | None:
    """The GPU's state of a series; `None` for one of a later version."""
    name = labels.get("state", "")
    return Device(name) if name in Device._value2member_map_ else None


# ---- From series to facts -----------------------------------------------------------------------


def moment(job_id: str, job: JobSeries, at: float, limits: Limits = DEFAULT) -> Moment:
    """All ranks of a job at a Unix time, from its series."""
    tables = _Tables(job)
    live = Counter(key[0] for key in tables.present if tables.lives(key))
    roles: dict[str, _Role] = {}
    ranks = []
    for key in sorted(
        {*tables.present, *job.departed}, key=lambda key: (key[0], _number(key[1]), key[2])
    ):
        if key[1].isdecimal():
            role = roles.get(key[0])
            if role is None:
                role = roles[key[0]] = _Role(job.shown.get(key[0], {}), live[key[0]], limits)
            ranks.append(tables.facts(job_id, key, at, role))
    return Moment(at, tuple(ranks), {role: dict(stages) for role, stages in job.shown.items()})


class _Role:
    """The gaps between marks of all ranks of a role, and the budgets that follow from them."""

    def __init__(self, shown: Stages, live: int, limits: Limits) -> None:
        self.stages = frozenset(stage for stage, one in shown.items() if one.longest_seconds)
        self._gaps = sum(one.gaps for one in shown.values())
        self._shown, self._live, self._limits = shown, live, limits
        self.bare_seconds = limits.bare_seconds
        """How long a rank without a record may stand still."""
        self._budgets: dict[tuple[str, bool], float] = {}

    def taught(self, stage: str | None) -> bool:
        """Whether the role has enough gaps in a stage to learn its length."""
        return self._shown.get(stage or "", NOTHING_SHOWN).taught(self._live)

    def gaps(self) -> int:
        """The role's number of gaps for the first rank that asks, and 0 for the others, so that
        their sum is right."""
        gaps, self._gaps = self._gaps, 0
        return gaps

    def budget(self, stage: str | None, *, still: bool) -> float | None:
        """How long a rank may be silent in a stage."""
        if stage is None:
            return None
        if (stage, still) not in self._budgets:
            self._budgets[stage, still] = budget_seconds(
                self._shown, stage, still=still, ranks=self._live, limits=self._limits
            )
        return self._budgets[stage, still]


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1


class _Tables:
    """The series of a job by rank."""

    def __init__(self, job: JobSeries) -> None:
        self._job = job
        several = {
            "rl_rank_wait_class",
            "rl_rank_waits_for",
            "rl_rank_connection_info",
            *_PER_LABEL,
        }
        several |= {"rl_rank_nccl_operation", "rl_rank_nccl_wait_info", _HEARD}
        self._one = {name: _by_rank(job.by[name]) for name in METRICS if name not in several}
        self.present = self._one[job.present]
        """The series of the ranks that are there."""
        self._recorded = job.present == UP
        self._unmarked = not job.by[AGE]
        """Whether no rank of the job has made a mark."""
        self._classes = _by_rank(one for one in job.by["rl_rank_wait_class"] if one[1])
        self._per_label = {
            name: _by_rank_and(label, job.by[name]) for name, label in _PER_LABEL.items()
        }
        self._heard = _by_rank(
            (labels, -age) for labels, age in job.by[_HEARD] if labels.get("side") == "client"
        )
        self._waits: defaultdict[RankKey, list[KernelWait]] = defaultdict(list)
        waits, held = job.by["rl_rank_waits_for"], job.by["rl_rank_connection_info"]
        homes = _homes(labels for labels, _ in (*waits, *held))
        ends: defaultdict[str, list[KernelWait]] = defaultdict(list)
        for labels, _ in held:
            ends[labels.get("address", "")].append(_far_end(labels, homes))
        for labels, _ in waits:
            key = rank_key(labels)
            self._waits[key] += _joined(_kernel_wait(labels, homes), ends, key)
        self._nccl = _communicators(
            job.by["rl_rank_nccl_operation"], job.by["rl_rank_nccl_wait_info"]
        )

    def lives(self, key: RankKey) -> bool:
        """Whether the rank is there and has not died; a dead rank without a record is not there."""
        return key in self.present and not (self._recorded and self.present[key][1] == 0)

    def facts(self, job_id: str, key: RankKey, at: float, role: _Role) -> RankFacts:
        """The facts of one rank."""
        left = self._job.departed.get(key)
        here = key in self.present
        gone = not self.lives(key)
        info = self._labels("rl_rank_info", key)
        where = self._labels("rl_rank_stage_open_seconds", key)
        age = self._value(STILL if self._unmarked else AGE, key)
        failure = self._value(FAILURE, key)
        failed = self._labels(FAILURE, key)
        wait_class = WaitClass.GONE if gone else WaitClass.UNKNOWN
        if not gone and key in self._classes:
            wait_class = _wait_class(self._classes[key][0])
        stage = where.get("stage") or ("idle" if age is not None else None)
        if self._unmarked:
            stage = "init" if self._recorded and here else None
        inside = {} if gone else self._inside(key)
        waited = self._value("rl_rank_storage_wait_seconds", key) or 0.0
        at_work = bool(self._value("rl_rank_at_work", key))
        still = seems_still(wait_class, inside, waited, at_work=at_work)
        budget = role.budget(stage, still=still) if self._recorded else role.bare_seconds
        return RankFacts(
            job_id=job_id,
            role=key[0],
            rank=int(key[1]),
            pid=(_whole(info.get("pid", "")) or 0) if here or left is None else left.pid,
            world_size=left.world_size if left else _whole(info.get("world_size", "")),
            stage=stage,
            substage=where.get("substage", ""),
            stage_open_seconds=self._value("rl_rank_stage_open_seconds", key),
            step=_step(self._value("rl_rank_step", key)),
            progress_age_seconds=silent_seconds(age, inside, taught=role.taught(stage)),
            budget_seconds=None if gone else budget,
            collectives=self._counts("rl_rank_collective_seq", key),
            state="",
            wait_channel="",
            cpu_ratio=None,
            wait_class=wait_class,
            first_failure=f"{failed.get('error')} in {failed.get('stage')}" if failed else "",
            first_failure_time=failure,
            first_failure_age_seconds=None
            if failure is None
            else max(0.0, self._job.scraped.get(key, at) - failure),
            inside=inside,
            calls=self._calls(key),
            group_sizes=self._counts("rl_rank_group_size", key),
            started=self._value("rl_rank_started_timestamp_seconds", key),
            expected_seconds=self._value("rl_rank_expected_seconds", key),
            gaps=0 if gone else role.gaps(),
            stages=role.stages,
            at_work=at_work,
            step_age_seconds=self._value("rl_rank_step_age_seconds", key),
            storage_wait_seconds=waited,
            stack=self._stack(key),
            left_seconds=left.seconds if left and not here else None,
            node=key[2],
            node_lost=bool(left and left.node_lost),
            behind=self._value("rank:rl_straggler:ratio", key) is not None,
            unmarked=self._unmarked or bool(self._value("rl_rank_unmarked", key)),
            record=RecordState.KEPT if self._recorded else RecordState.NONE,
            gpu=info.get("uuid", ""),
            device=None if gone else _device(self._labels("rl_rank_device_state", key)),
            heard_seconds=-self._heard[key][1] if key in self._heard else None,
            kernel_waits=tuple(sorted(self._waits.get(key, ()), key=repr)),
            nccl=tuple(sorted(self._nccl.get(key, ()), key=repr)),
        )

    def _value(self, name: str, key: RankKey) -> float | None:
        found = self._one[name].get(key)
        return found[1] if found else None

    def _labels(self, name: str, key: RankKey) -> dict[str, str]:
        found = self._one[name].get(key)
        return found[0] if found else {}

    def _counts(self, name: str, key: RankKey) -> dict[str, int]:
        counts = self._per_label[name].get(key)
        return {label: int(value) for label, (_, value) in counts.items()} if counts else {}

    def _calls(self, key: RankKey) -> dict[str, float]:
        calls = self._per_label["rl_call_oldest_seconds"].get(key)
        return {name: seconds for name, (_, seconds) in calls.items()} if calls else {}

    def _inside(self, key: RankKey) -> dict[str, Inside]:
        calls = self._per_label["rl_rank_collective_inside_seconds"].get(key)
        if not calls:
            return {}
        elements = self._per_label["rl_rank_collective_elements"].get(key, {})
        return {
            group: Inside(
                labels.get("op", "unknown"),
                seconds,
                _whole(labels.get("peer", "")),
                int(elements[group][1]) if group in elements else None,
            )
            for group, (labels, seconds) in calls.items()
        }

    def _stack(self, key: RankKey) -> Stack:
        found = self._one["rl_rank_stack_group"].get(key)
        if not found:
            return Stack()
        line = self._labels("rl_rank_stack_frame_info", key)
        frame, call, whom = (line.get(name, "") for name in ("frame", "call", "whom"))
        return Stack(found[0].get("group", ""), bool(found[1]), frame, call=call, whom=whom)


def _homes(series: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], str]:
    """The node of each process, by its machine and name.

    If agents of several nodes see the processes of one machine, the first node by name counts."""
    found: dict[tuple[str, str], str] = {}
    for labels in series:
        for name in (labels.get("process", ""), labels.get("through", "")):
            machine, node = labels.get("machine", ""), labels.get("node", "")
            if machine and name:
                found[machine, name] = min(node, found.get((machine, name), node))
    return found


def _kernel_wait(labels: Mapping[str, str], homes: Mapping[tuple[str, str], str]) -> KernelWait:
    """The wait that a series shows."""

    def process(label: str) -> str:
        name = labels.get(label, "")
        node = homes.get((labels.get("machine", ""), name), labels.get("node", ""))
        return f"{name} on {node}" if name not in ("", ANYBODY) and node else name

    return KernelWait(
        labels.get("how", ""),
        labels.get("for_role", ""),
        _whole(labels.get("for_rank", "")),
        process("process"),
        labels.get("address", ""),
        process("through"),
    )


def _far_end(labels: Mapping[str, str], homes: Mapping[tuple[str, str], str]) -> KernelWait:
    """Whom the other end of a connection waits for, as the node that holds this end shows it."""
    end = _kernel_wait(labels, homes)
    if end.rank is None and not end.process and not end.through:
        end = replace(end, role=labels.get("role", ""), rank=_whole(labels.get("rank", "")))
    return replace(end, address="")


def _joined(
    wait: KernelWait, ends: Mapping[str, Sequence[KernelWait]], key: RankKey
) -> list[KernelWait]:
    """The wait of a rank, with its address replaced by whom the node at that address names.

    `key`: the rank itself, for which it cannot wait."""
    if not wait.address:
        return [wait]
    found = [
        replace(end, how=wait.how, through=wait.through or end.through)
        for end in ends.get(wait.address, ())
    ]
    others = [one for one in found if (one.role, str(one.rank)) != key[:2]]
    return others if found or wait.through else [wait]


def _communicators(
    operations: Iterable[Labelled], waits: Iterable[Labelled]
) -> dict[RankKey, list[Communicator]]:
    """The communicators of each rank, from the series of NCCL's witnesses."""
    transfers: defaultdict[tuple[RankKey, str], set[Transfer]] = defaultdict(set)
    for labels, _ in waits:
        if (peer := _whole(labels.get("peer", ""))) is not None:
            one = Transfer(labels.get("waits", ""), peer, labels.get("network", ""))
            transfers[rank_key(labels), labels.get("communicator", "")].add(one)
    found: defaultdict[RankKey, list[Communicator]] = defaultdict(list)
    for labels, sequence in operations:
        key, communicator = rank_key(labels), labels.get("communicator", "")
        numbers = [_whole(labels.get(name, "")) for name in ("member", "members", "bytes")]
        member, members, size = (number or 0 for number in numbers)
        if None not in numbers and labels.get("state") in STATES:
            operation = labels.get("op", "unknown"), int(sequence), size, labels["state"]
            mine = tuple(sorted(transfers[key, communicator]))
            name = labels.get("name", "")
            witness = labels.get("witness", "")
            found[key].append(
                Communicator(communicator, name, member, members, *operation, mine, witness)
            )
    return found


def _step(value: float | None) -> int | None:
    return None if value is None else int(value)


def _by_rank(samples: Iterable[Labelled]) -> dict[RankKey, Labelled]:
    """One sample of each rank; of several, always the same one, whatever their order."""
    found: dict[RankKey, Labelled] = {}
    for sample in samples:
        first = found.setdefault(rank_key(sample[0]), sample)
        if first is not sample:
            pair = first, sample
            found[rank_key(sample[0])] = max(pair, key=lambda one: (one[1], sorted(one[0].items())))
    return found


def _by_rank_and(
    label: str, samples: Sequence[Labelled]
) -> defaultdict[RankKey, dict[str, Labelled]]:
    found: defaultdict[RankKey, dict[str, Labelled]] = defaultdict(dict)
    for sample in samples:
        labels, value = sample
        of_rank, name = found[rank_key(labels)], labels.get(label, "")
        if of_rank.setdefault(name, sample)[1] < value:
            of_rank[name] = sample
    return found
