"""The open stage, progress and totals of every rank, from the stage records."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Histogram, Metric, Samples, counter, gauge, histogram
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.model import RANK_LABELS, SHOWN_SECONDS
from stagewatch.ranks.node_sums import add_node_sums
from stagewatch.ranks.own_work import OwnWork
from stagewatch.ranks.rations import Rations
from stagewatch.ranks.records import Calls, Life, RankRecord, StageTotals
from stagewatch.record import BUCKET_BOUNDS, GAP_MEMORY, OTHER_CALLS, POINT_TO_POINT
from stagewatch.stages import CODES

RETIRED_SECONDS = 900.0
"""How long the totals of ended ranks still count after a job's last rank on this node."""
MAX_RETIRED = 256
"""Most (job, role) pairs whose ended ranks count; the one longest without a rank goes first."""
MAX_ROLES_PER_USER = 32
"""The most roles of one user's jobs whose totals are shown on a node, and as many of ended jobs: a
role has some six hundred series."""
INSIDE_AFTER_SECONDS = 1.0
"""Shorter collectives have no series: those of a healthy job would come and go all the time."""
STEP_AFTER_SECONDS = 10.0
"""Shorter steps have no series either."""
SLOW_AFTER_SECONDS = 2.0
"""A stage that was opened more lately has no series for how often it was completed."""
MAX_EXPECTED_SECONDS = 86_400.0
"""Longest pause that a trainer may announce."""
MAX_NAMES = 128
"""The most names of one kind of one role of a job: programs have few, attacks many."""
MAX_CALLS = 32
"""The most names of calls, since each is a histogram."""
MAX_JOBS = 512
"""The most roles of jobs whose names are remembered; the one longest without a name goes first."""

STAGE_LABELS = ("job_id", "role", "stage")
RANK_STAGE_LABELS = (*RANK_LABELS, "stage")
CALL_LABELS = ("job_id", "role", "name")
GROUP_LABELS = (*RANK_LABELS, "group")

UP = gauge(
    "rl_rank_up",
    "1 while the rank's process lives, 0 once it is gone without having closed its record.",
    RANK_LABELS,
)
STEP = gauge("rl_rank_step", "Last step the rank reported.", RANK_LABELS)
STEP_AGE = gauge(
    "rl_rank_step_age_seconds",
    "Time since the rank began its present step, on a clock that counts suspend; absent below "
    "10 s.",
    RANK_LABELS,
)
PROGRESS_AGE = gauge(
    "rl_rank_progress_age_seconds",
    "Time since the rank's training thread last made progress, on a clock that counts suspend; "
    "for a rank without a mark of progress, since it last entered or left a collective.",
    RANK_LABELS,
)
UNMARKED = gauge(
    "rl_rank_unmarked",
    "1 for a rank that has made no mark of progress, so that only its collectives show that it "
    "goes on; it counts as in init. Absent otherwise.",
    RANK_LABELS,
)
STAGE_CODE = gauge(
    "rl_rank_stage_code",
    "The innermost open stage: 0 idle, 1 rollout, 2 reward, 3 logprob, 4 advantage, 5 train, "
    "6 weights_update, 7 checkpoint, 8 eval, 9 init, 10 cleanup, 11 other.",
    RANK_LABELS,
)
STAGE_OPEN = gauge(
    "rl_rank_stage_open_seconds",
    "How long the rank's innermost open stage has been open; for `idle`, since the last mark.",
    (*RANK_LABELS, "stage", "substage"),
)
GAPS = histogram(
    "rl_progress_gap_seconds",
    "Time between progress marks while the stage was the innermost open one.",
    STAGE_LABELS,
)
DURATIONS = histogram("rl_stage_duration_seconds", "Duration of completed stages.", STAGE_LABELS)
FAILURES = counter(
    "rl_stage_failures_total",
    "Exceptions that left a stage, by type.",
    (*STAGE_LABELS, "error"),
)
FIRST_FAILURE = gauge(
    "rl_rank_first_failure_timestamp_seconds",
    "When the rank's first exception left a stage, as Unix time; kept when others follow.",
    (*RANK_LABELS, "stage", "error"),
)
COLLECTIVES = gauge(
    "rl_rank_collective_seq",
    "Collectives that the rank has entered since the process group was made.",
    GROUP_LABELS,
)
MESSAGES = counter(
    "rl_rank_messages_total",
    "Sends to another rank and receives from one that the rank has entered; absent before the "
    "first.",
    RANK_LABELS,
)
INSIDE = gauge(
    "rl_rank_collective_inside_seconds",
    "How long the rank has been inside a collective, from 1 s on. `op` is torch.distributed's name "
    "(unknown: none was given), `peer` the rank that a send or receive (group p2p) is with.",
    (*GROUP_LABELS, "op", "peer"),
)
ELEMENTS = gauge(
    "rl_rank_collective_elements",
    "Elements of the tensor in the collective that the rank is inside of, from 1 s on, if all "
    "members of the group must have the same number.",
    GROUP_LABELS,
)
GROUP_SIZE = gauge("rl_rank_group_size", "Members of the process group, where known.", GROUP_LABELS)
EXPECTED = gauge(
    "rl_rank_expected_seconds",
    "Time left of the pause that the trainer has announced by `stagewatch.expect`.",
    RANK_LABELS,
)
STARTED = gauge(
    "rl_rank_started_timestamp_seconds",
    "When the rank's record was begun, as Unix time: its counts of collectives begin there.",
    RANK_LABELS,
)
LONGEST_GAP = gauge(
    "rl_progress_gap_longest_seconds",
    "Longest time between progress marks from which a rank here has recovered in the stage, "
    "including the first of a stage.",
    STAGE_LABELS,
)
RECENT_GAP = gauge(
    "rl_progress_gap_recent_seconds",
    "Longest time between progress marks from which a rank here has recovered in the stage, "
    "without the first of a stage; it fades to a half in 27 hours.",
    STAGE_LABELS,
)
SCALAR = gauge("rl_scalar", "Last value the rank published.", (*RANK_LABELS, "name"))
TOKENS = counter(
    "rl_tokens_total",
    "Tokens that ranks have counted by `stagewatch.throughput`.",
    STAGE_LABELS,
)
FLOPS = counter(
    "rl_flops_total",
    "Floating-point operations of the model that ranks have counted by `stagewatch.throughput`.",
    STAGE_LABELS,
)
SAMPLES = counter(
    "rl_samples_total",
    "Samples that ranks have counted by `stagewatch.throughput`.",
    STAGE_LABELS,
)
CALL_SECONDS = histogram(
    "rl_call_seconds",
    "Duration of calls of a tool, environment or reward function (`stagewatch.call`).",
    CALL_LABELS,
)
CALL_ERRORS = counter(
    "rl_call_errors_total",
    "Calls of a tool, environment or reward function that ended by an exception.",
    CALL_LABELS,
)
CALLS_OPEN = gauge(
    "rl_calls_in_flight",
    "Calls of a tool, environment or reward function that the rank waits for.",
    (*RANK_LABELS, "name"),
)
CALL_OLDEST = gauge(
    "rl_call_oldest_seconds",
    "How long the oldest of the calls in flight has been; absent where there is none.",
    (*RANK_LABELS, "name"),
)
SKIPPED = gauge(
    "stagewatch_records_skipped",
    "Files in the record directory that were passed over in the last look, by reason.",
    ("reason",),
)
DROPPED = gauge(
    "stagewatch_record_entries_dropped",
    "Stages, scalars, groups and threads that found no room in a rank's record.",
    RANK_LABELS,
)
LAST = gauge(
    "rl_rank_stage_last_seconds",
    "How long the rank took for the stage when it last completed it; the mean of those it "
    "completed since the look before, if there were several.",
    RANK_STAGE_LABELS,
)
OPEN_COMPLETIONS = gauge(
    "rl_rank_stage_open_completions",
    "How often the rank has completed its innermost open stage, once that has been open for 2 s; a "
    "rank that is behind its peers has completed it less often. Absent before the first time.",
    RANK_STAGE_LABELS,
)
OPEN_LONG = gauge(
    "rl_rank_stage_open_long_seconds",
    "How long the rank's innermost open stage has been open, once that is 2 s, if it has completed "
    "the stage before: rules look among these for ranks that are slower than their peers.",
    RANK_STAGE_LABELS,
)
COMPLETIONS = gauge(
    "rl_stage_completions",
    "How often the ranks of the role on this node have completed the stage (median).",
    STAGE_LABELS,
)
COMPLETERS = gauge(
    "rl_stage_completed_ranks",
    "Ranks of the role on this node that have completed the stage.",
    STAGE_LABELS,
)
COMPLETED_AGE = gauge(
    "rl_stage_completed_age_seconds",
    "Time since ranks of the role on this node last completed the stage (median), as far as the "
    "agent saw it. A peer that has begun the stage since then is not behind.",
    STAGE_LABELS,
)
CHECKPOINT_AGE = gauge(
    "rl_checkpoint_completed_age_seconds",
    "Time since a rank of the role on this node last completed the stage checkpoint, as far as the "
    "agent saw it.",
    ("job_id", "role"),
)
JOB = gauge(
    "rl_job_info",
    "1 for a job with ranks on this node, with the user's name for it, and the uid of the owner of "
    "its records.",
    ("job_id", "job_name", "uid"),
)
FOLDED = counter(
    "stagewatch_names_folded_total",
    "Times that a name from a rank was left out because its job had shown too many, by kind.",
    ("kind",),
)


class StagesCollector(Collector):
    """Stage metrics of the ranks that keep a record."""

    shown_seconds = SHOWN_SECONDS

    def __init__(
        self,
        ranks: RankDirectory,
        *,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ranks = ranks
        self._boot_clock = boot_clock
        self._clock = clock
        self._last: dict[str, RankRecord] = {}
        self._retired: dict[tuple[str, str], Totals] = {}
        self._last_durations = LastDurations()
        self._own_work = OwnWork()
        self._names = Vocabulary()
        self._rations = Rations()

    def collect(self) -> Samples:
        census = self._ranks.look(copied=True)
        now = self._boot_clock()
        sums = self._sums(census.records, now)
        owners: dict[tuple[str, ...], int] = {rank.key[:2]: rank.uid for rank in census.ranks}
        owners |= {rank.key: rank.uid for rank in census.ranks}
        owners |= {key: totals.uid for key, totals in sums.items()}
        out = self._rations.samples(owners)
        for reason, count in census.skipped.items():
            out.add(SKIPPED, count, reason)
        records = [rank.record for rank in census.ranks if rank.record is not None]
        shown = [record for record in records if record.life is not Life.CLOSED]
        for record in shown:
            _current(out, record, now, self._names)
        _jobs(out, shown)
        add_node_sums(out, shown, now, self._clock())
        self._last_durations.add(out, shown, now)
        self._own_work.add(out, shown, now, self._names.admits)
        _totals(out, sums)
        self._names.show(out)
        self._rations.add_left_out()
        if not out.families:
            raise NoData("no rank keeps a stage record on this node")
        return out

    def _sums(self, records: tuple[RankRecord, ...], now: float) -> dict[tuple[str, str], Totals]:
        """The totals over the ranks of each role, including ended ones, as far as there is room."""
        sums: dict[tuple[str, str], Totals] = defaultdict(Totals)
        for record in sorted(records, key=lambda one: (one.life is not Life.ALIVE, one.created)):
            sums[record.job_id, record.role].uid = record.uid
            sums[record.job_id, record.role].add(record, self._names)
        self._retire(records, now, sums)
        for key in _beyond(list(sums), sums):
            del sums[key]
            self._names.leave_out("role")
        for key, ended in self._retired.items():
            sums[key].uid = ended.uid
            sums[key].add_all(ended.stages, ended.failures, ended.calls, ended.work)
        return sums

    def _retire(
        self, records: tuple[RankRecord, ...], now: float, live: Collection[tuple[str, str]]
    ) -> None:
        """Keep the totals of ranks that have ended since the last look for a while."""
        current = {record.name: record for record in records}
        for name, record in self._last.items():
            if name not in current:
                key = record.job_id, record.role
                self._retired.setdefault(key, Totals(now, record.uid)).add(record, self._names)
        self._last = current
        for key, retired in list(self._retired.items()):
            if key in live:
                retired.fade(now)
            elif now - retired.seen > RETIRED_SECONDS:
                del self._retired[key]
        by_age = sorted(self._retired, key=lambda key: -self._retired[key].seen)
        for key in {*_beyond(by_age, self._retired), *by_age[MAX_RETIRED:]}:
            del self._retired[key]


def _totals(out: Samples, sums: Mapping[tuple[str, str], Totals]) -> None:
    """Add histograms and failures; ended ranks still count, so that no counter drops."""
    for (job_id, role), totals in sums.items():
        for stage, total in totals.stages.items():
            labels = job_id, role, stage
            _histogram(out, DURATIONS, total.durations, total.duration_seconds, *labels)
        for stage, total in totals.stages.items():
            _histogram(out, GAPS, total.gaps, total.gap_seconds, job_id, role, stage)
            out.add(LONGEST_GAP, total.longest_gap or None, job_id, role, stage)
            out.add(RECENT_GAP, total.recent_gap or None, job_id, role, stage)
        for (stage, error), count in totals.failures.items():
            out.add(FAILURES, count, job_id, role, stage, error)
        for stage, amounts in totals.work.items():
            for metric, amount in zip((TOKENS, FLOPS, SAMPLES), amounts, strict=True):
                out.add(metric, amount if amount > 0 else None, job_id, role, stage)
        _ended_calls(out, totals.calls, job_id, role)


def _beyond(
    keys: list[tuple[str, str]], totals: Mapping[tuple[str, str], Totals]
) -> list[tuple[str, str]]:
    """The roles for which their user has no room."""
    users: Counter[int] = Counter()
    beyond = []
    for key in keys:
        users[totals[key].uid] += 1
        if users[totals[key].uid] > MAX_ROLES_PER_USER:
            beyond.append(key)
    return beyond


@dataclass(slots=True)
class Totals:
    """Sums over the ranks of a (job, role), including ended ones."""

    seen: float = 0.0
    """When a rank was last seen, on the clock that counts suspend."""
    uid: int = -1
    """The user of these ranks."""
    stages: dict[str, StageTotals] = field(default_factory=dict)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: dict[str, Calls] = field(default_factory=dict)
    work: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Tokens, floating-point operations and samples, by stage."""

    def add(self, record: RankRecord, names: Vocabulary) -> None:
        """Add the totals of a record."""
        self.add_all(record.totals, _failures(record, names), _calls(record, names), record.work)

    def add_all(
        self,
        stages: Mapping[str, StageTotals],
        failures: Mapping[tuple[str, str], int],
        calls: Mapping[str, Calls],
        work: Mapping[str, tuple[float, float, float]],
    ) -> None:
        """Add other sums."""
        for stage, totals in stages.items():
            mine = self.stages.get(stage)
            self.stages[stage] = totals if mine is None else mine + totals
        for key, count in failures.items():
            self.failures[key] += count
        for name, one in calls.items():
            self.calls[name] = self.calls[name] + one if name in self.calls else one
        for stage, (tokens, flops, samples) in work.items():
            before = self.work.get(stage, (0.0, 0.0, 0.0))
            self.work[stage] = before[0] + tokens, before[1] + flops, before[2] + samples

    def fade(self, now: float) -> None:
        """Let the recent gaps fade until now, as the gaps of a live record do."""
        left = max(0.0, 1 - (now - self.seen) * 1e9 / 2**GAP_MEMORY)
        for stage, totals in self.stages.items():
            self.stages[stage] = totals._replace(recent_gap=totals.recent_gap * left)
        self.seen = now


class LastDurations:
    """How often ranks have completed a stage, and how long each rank took the last time.

    Derived from the growth of a record's totals between two looks.
    """

    def __init__(self) -> None:
        self._looks: dict[str, dict[str, _Completed]] = {}

    def add(self, out: Samples, records: list[RankRecord], now: float) -> None:
        """Take in the records of all ranks that are there, and forget all others.

        `now` is a time of the clock that counts suspend.
        """
        looks: dict[str, dict[str, _Completed]] = {}
        completions: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
        ages: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        for record in records:
            open_ = record.open
            before = self._looks.get(record.name)
            looks[record.name] = stages = {}
            for stage, totals in record.totals.items():
                count, seconds = sum(totals.durations), totals.duration_seconds
                old_count, old_seconds, last, when = (before or {}).get(stage, _NEVER)
                if count > old_count:
                    last = max(0.0, seconds - old_seconds) / (count - old_count)
                    when = None if before is None else now
                stages[stage] = count, seconds, last, when
                if count:
                    rank = record.job_id, record.role, record.rank, stage
                    role = record.job_id, record.role, stage
                    out.add(LAST, last, *rank)
                    completions[role].append(count)
                    if when is not None:
                        ages[role].append(now - when)
                    if open_ and open_.stage == stage and now - open_.started >= SLOW_AFTER_SECONDS:
                        out.add(OPEN_COMPLETIONS, count, *rank)
                        out.add(OPEN_LONG, now - open_.started, *rank)
        for role, counts in completions.items():
            out.add(COMPLETIONS, median(counts), *role)
            out.add(COMPLETERS, len(counts), *role)
        for role, of_ranks in ages.items():
            out.add(COMPLETED_AGE, median(of_ranks), *role)
            if role[-1] == "checkpoint":
                out.add(CHECKPOINT_AGE, min(of_ranks), *role[:-1])
        self._looks = looks


_Completed = tuple[int, float, float, float | None]
"""Completions, their seconds, the last one's seconds, and when it was seen."""
_NEVER: _Completed = 0, 0.0, 0.0, None


class Vocabulary:
    """The first names of each kind that each role of each job has used.

    It keeps names that users choose from becoming unbounded labels.
    """

    def __init__(self) -> None:
        self._names: OrderedDict[tuple[str, str, str], set[str]] = OrderedDict()
        self._folded: Counter[str] = Counter()

    def admits(self, kind: str, job_id: str, role: str, name: str, most: int = MAX_NAMES) -> bool:
        """Whether the name may become a label; counts refused names."""
        key = (kind, job_id, role)
        names = self._names.setdefault(key, set())
        self._names.move_to_end(key)
        if len(self._names) > MAX_JOBS:
            self._names.popitem(last=False)
        if name in names:
            return True
        if len(names) >= most:
            self._folded[kind] += 1
            return False
        names.add(name)
        return True

    def leave_out(self, kind: str) -> None:
        """Count a name for which there was no room."""
        self._folded[kind] += 1

    def show(self, out: Samples) -> None:
        """Add how often names were left out."""
        for kind, count in self._folded.items():
            out.add(FOLDED, count, kind)


def _current(out: Samples, record: RankRecord, now: float, names: Vocabulary) -> None:
    key = job_id, role, _ = record.job_id, record.role, record.rank
    out.add(UP, int(record.life is Life.ALIVE), *key)
    lane = record.training
    frame = record.open
    if lane is not None:
        out.add(STEP, lane.step, *key)
        step_age = 0.0 if lane.step_began is None else now - lane.step_began
        out.add(STEP_AGE, step_age if step_age >= STEP_AFTER_SECONDS else None, *key)
    age = max(0.0, now - record.progress) if record.progress else None
    out.add(PROGRESS_AGE, age, *key)
    out.add(UNMARKED, int(record.unmarked) or None, *key)
    out.add(STAGE_CODE, CODES[frame.stage] if frame else CODES["idle"], *key)
    if frame is not None:
        admitted = names.admits("substage", job_id, role, frame.substage)
        substage = frame.substage if admitted else "other"
        out.add(STAGE_OPEN, max(0.0, now - frame.started), *key, frame.stage, substage)
    else:
        out.add(STAGE_OPEN, age, *key, "idle", "")
    out.add(STARTED, record.created, *key)
    expected = min(record.expected_until - now, MAX_EXPECTED_SECONDS)
    out.add(EXPECTED, expected if expected > 0 else None, *key)
    first = record.first_failure
    if first is not None:
        error = _error(names, record, first.stage, first.error)
        out.add(FIRST_FAILURE, first.time, *key, first.stage, error)
    if record.dropped:
        out.add(DROPPED, record.dropped, *key)
    _groups(out, record, now, names)
    if record.life is Life.ALIVE:
        _open_calls(out, record, now, names)
    for name, value in record.scalars.items():
        if names.admits("scalar", job_id, role, name):
            out.add(SCALAR, value, *key, name)


def _jobs(out: Samples, records: Iterable[RankRecord]) -> None:
    """Add one name per job, even if its ranks state several."""
    named: dict[str, RankRecord] = {}
    for record in records:
        if record.job_name:
            first = named.setdefault(record.job_id, record)
            if record.job_name < first.job_name:
                named[record.job_id] = record
    for job_id, record in named.items():
        out.add(JOB, 1, job_id, record.job_name, record.uid)


def _groups(out: Samples, record: RankRecord, now: float, names: Vocabulary) -> None:
    """Add the process groups of the rank, and the collectives in which it has been for a while."""
    job_id, role = record.job_id, record.role
    inside = record.inside if record.life is Life.ALIVE else {}
    for name, group in record.groups.items():
        if not names.admits("group", job_id, role, name):
            continue
        key = job_id, role, record.rank, name
        if name == POINT_TO_POINT:
            out.add(MESSAGES, group.sequence or None, job_id, role, record.rank)
        else:
            out.add(COLLECTIVES, group.sequence, *key)
            out.add(
                GROUP_SIZE, group.size or (record.world_size if name == "world" else None), *key
            )
        seconds = now - group.entered
        if name in inside and seconds >= INSIDE_AFTER_SECONDS:
            peer = "" if group.peer is None else str(group.peer)
            if not names.admits("peer", job_id, role, peer):
                peer = "other"
            out.add(INSIDE, seconds, *key, group.op, peer)
            out.add(ELEMENTS, group.elements, *key)


def _calls(record: RankRecord, names: Vocabulary) -> dict[str, Calls]:
    """The record's calls by name, as far as their names may become labels."""
    calls: dict[str, Calls] = {}
    for own, one in record.calls.items():
        admitted = names.admits("call", record.job_id, record.role, own, MAX_CALLS)
        name = own if admitted or own == OTHER_CALLS else OTHER_CALLS
        calls[name] = calls[name] + one if name in calls else one
    return calls


def _open_calls(out: Samples, record: RankRecord, now: float, names: Vocabulary) -> None:
    for name, calls in _calls(record, names).items():
        key = record.job_id, record.role, record.rank, name
        out.add(CALLS_OPEN, calls.open, *key)
        age = max(0.0, now - calls.oldest) if calls.oldest < math.inf else None
        out.add(CALL_OLDEST, age, *key)


def _ended_calls(out: Samples, calls: Mapping[str, Calls], job_id: str, role: str) -> None:
    for name, one in calls.items():
        _histogram(out, CALL_SECONDS, one.durations, one.seconds, job_id, role, name)
        out.add(CALL_ERRORS, one.errors, job_id, role, name)


def _failures(record: RankRecord, names: Vocabulary) -> Counter[tuple[str, str]]:
    """The record's failures by stage and type, as far as their names may become labels."""
    failures: Counter[tuple[str, str]] = Counter()
    for (stage, error), count in record.failures.items():
        failures[stage, _error(names, record, stage, error)] += count
    return failures


def _error(names: Vocabulary, record: RankRecord, stage: str, error: str) -> str:
    """The exception's type, or `other` once the job has shown too many."""
    admitted = names.admits("error", record.job_id, record.role, f"{stage} {error}")
    return error if admitted else "other"


def _histogram(
    out: Samples, metric: Metric, counts: tuple[int, ...], seconds: float, *labels: str
) -> None:
    if any(counts):
        *cumulative, total = accumulate(counts)
        out.add_histogram(
            metric, Histogram(BUCKET_BOUNDS, tuple(cumulative), total, seconds), *labels
        )


SPEC = Declaration(
    name="stages",
    page="ranks",
    help="open stage, progress, durations and failures of ranks, from their stage records",
    interval=2.5,  # samples are equally old at every scrape, five seconds apart
    options=NoOptions,
)
