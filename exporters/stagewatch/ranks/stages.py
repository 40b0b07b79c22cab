"""The open stage, progress and totals of every rank, from the stage records."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Histogram, Metric, Samples
from stagewatch.ranks.directory import Rank, RankDirectory
from stagewatch.ranks.last_durations import LastDurations
from stagewatch.ranks.rank_record import Life, RankRecord, StageTotals
from stagewatch.ranks.vocabulary import Vocabulary
from stagewatch.record import BUCKET_BOUNDS, BUCKETS
from stagewatch.stages import CODES

if TYPE_CHECKING:
    from stagewatch.node_context import NodeContext

RETIRED_SECONDS = 900.0
"""How long the totals of ended ranks are still counted after a job's last rank on this node."""
MAX_RETIRED = 256
"""Most (job, role) pairs whose ended ranks are counted; the one longest without a rank goes."""

RANK = ("job_id", "role", "rank")
STAGE = ("job_id", "role", "stage")

UP = Metric(
    "rl_rank_up",
    "gauge",
    "1 while the rank's process lives, 0 once it is gone without having closed its record.",
    RANK,
)
STEP = Metric("rl_rank_step", "gauge", "Last step the rank reported.", RANK)
PROGRESS_AGE = Metric(
    "rl_rank_progress_age_seconds",
    "gauge",
    "Time since the rank's training thread last made progress, on a clock that counts suspend.",
    RANK,
)
STAGE_CODE = Metric(
    "rl_rank_stage_code",
    "gauge",
    "The innermost open stage: 0 idle, 1 rollout, 2 reward, 3 logprob, 4 advantage, 5 train, "
    "6 weights_update, 7 checkpoint, 8 eval, 9 init, 10 cleanup, 11 other.",
    RANK,
)
STAGE_OPEN = Metric(
    "rl_rank_stage_open_seconds",
    "gauge",
    "How long the rank's innermost open stage has been open; for `idle`, since the last mark.",
    (*RANK, "stage", "substage"),
)
GAPS = Metric(
    "rl_progress_gap_seconds",
    "histogram",
    "Time between progress marks while the stage was the innermost open one.",
    STAGE,
)
DURATIONS = Metric("rl_stage_duration_seconds", "histogram", "Duration of completed stages.", STAGE)
FAILURES = Metric(
    "rl_stage_failures_total",
    "counter",
    "Exceptions that left a stage, by type.",
    (*STAGE, "error"),
)
FIRST_FAILURE = Metric(
    "rl_rank_first_failure_timestamp_seconds",
    "gauge",
    "When the rank's first exception left a stage, as Unix time; kept when others follow.",
    (*RANK, "stage", "error"),
)
COLLECTIVES = Metric(
    "rl_rank_collective_seq",
    "gauge",
    "Collectives entered by the rank since it began, per process group.",
    (*RANK, "group"),
)
SCALAR = Metric("rl_scalar", "gauge", "Last value the rank published.", (*RANK, "name"))
SKIPPED = Metric(
    "stagewatch_records_skipped",
    "gauge",
    "Files in the record directory that were passed over in the last look, by reason.",
    ("reason",),
)
DROPPED = Metric(
    "stagewatch_record_entries_dropped",
    "gauge",
    "Stages, scalars, groups and threads that found no room in a rank's record.",
    RANK,
)


class Totals:
    """Sums over the ranks of a (job, role), those that have ended included."""

    def __init__(self, seen: float = 0.0) -> None:
        self.seen = seen
        """When a rank was last there, on the clock that counts suspend."""
        self.durations: dict[str, list[int]] = defaultdict(lambda: [0] * BUCKETS)
        self.duration_seconds: dict[str, float] = defaultdict(float)
        self.gaps: dict[str, list[int]] = defaultdict(lambda: [0] * BUCKETS)
        self.gap_seconds: dict[str, float] = defaultdict(float)
        self.failures: dict[tuple[str, str], int] = defaultdict(int)

    def add(self, record: RankRecord, names: Vocabulary) -> None:
        """Count a record in."""
        for stage, totals in record.totals.items():
            self._add_stage(stage, totals)
        for (stage, error), count in record.failures.items():
            self.failures[stage, _error(names, record, stage, error)] += count

    def _add_stage(self, stage: str, totals: StageTotals) -> None:
        for mine, theirs in ((self.durations, totals.durations), (self.gaps, totals.gaps)):
            mine[stage] = [a + b for a, b in zip(mine[stage], theirs, strict=True)]
        self.duration_seconds[stage] += totals.duration_seconds
        self.gap_seconds[stage] += totals.gap_seconds

    def merge(self, other: Totals) -> None:
        """Count another's sums in."""
        for stage in other.durations:
            self._add_stage(
                stage,
                StageTotals(
                    tuple(other.durations[stage]),
                    other.duration_seconds[stage],
                    tuple(other.gaps[stage]),
                    other.gap_seconds[stage],
                ),
            )
        for key, count in other.failures.items():
            self.failures[key] += count


class StagesCollector(Collector):
    """Stage metrics of the ranks that keep a record."""

    def __init__(
        self,
        ranks: RankDirectory,
        *,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._ranks = ranks
        self._boot_clock = boot_clock
        self._last: dict[str, RankRecord] = {}
        self._retired: dict[tuple[str, str], Totals] = {}
        self._last_durations = LastDurations()
        self._names = Vocabulary()

    def collect(self) -> Samples:
        found = self._ranks.look()
        out = Samples()
        for reason, count in found.skipped.items():
            out.add(SKIPPED, count, reason)
        now = self._boot_clock()
        for rank in found.ranks:
            if rank.record is not None:
                _current(out, rank, rank.record, now, self._names)
        shown = [rank.record for rank in found.ranks if rank.record is not None]
        self._last_durations.add(out, [r for r in shown if r.life is not Life.CLOSED], now)
        self._totals(out, found.records, now)
        self._names.show(out)
        if not out.families:
            raise NoData("no rank keeps a stage record on this node")
        return out

    def _totals(self, out: Samples, records: tuple[RankRecord, ...], now: float) -> None:
        """Histograms and failures; a rank that ended keeps counting, so that nothing drops."""
        current = {record.name: record for record in records}
        for name, record in self._last.items():
            if name not in current:
                key = (record.job_id, record.role)
                self._retired.setdefault(key, Totals(now)).add(record, self._names)
        self._last = current
        sums: dict[tuple[str, str], Totals] = defaultdict(Totals)
        for record in records:
            sums[(record.job_id, record.role)].add(record, self._names)
        for key, retired in list(self._retired.items()):
            if key in sums:
                retired.seen = now
            elif now - retired.seen > RETIRED_SECONDS:
                del self._retired[key]
        by_age = sorted(self._retired, key=lambda key: self._retired[key].seen)
        for key in by_age[: max(0, len(by_age) - MAX_RETIRED)]:
            del self._retired[key]
        for key, retired in self._retired.items():
            sums[key].merge(retired)
        for (job_id, role), totals in sums.items():
            _histograms(out, totals, job_id, role)


def _current(out: Samples, rank: Rank, record: RankRecord, now: float, names: Vocabulary) -> None:
    if record.life is Life.CLOSED:
        return
    key = rank.key
    out.add(UP, int(record.life is Life.ALIVE), *key)
    lane = record.training
    frame = record.open
    if lane is not None:
        out.add(STEP, lane.step, *key)
        if lane.progress:
            out.add(PROGRESS_AGE, max(0.0, now - lane.progress), *key)
    out.add(STAGE_CODE, CODES[frame.stage] if frame else CODES["idle"], *key)
    if frame is not None:
        age = max(0.0, now - frame.started)
        known = names.admits("substage", record.job_id, record.role, frame.substage)
        out.add(STAGE_OPEN, age, *key, frame.stage, frame.substage if known else "other")
    elif lane is not None and lane.progress:
        out.add(STAGE_OPEN, max(0.0, now - lane.progress), *key, "idle", "")
    for group, sequence in record.collectives.items():
        if names.admits("group", record.job_id, record.role, group):
            out.add(COLLECTIVES, sequence, *key, group)
    for name, value in record.scalars.items():
        if names.admits("scalar", record.job_id, record.role, name):
            out.add(SCALAR, value, *key, name)
    first = record.first_failure
    if first is not None:
        error = _error(names, record, first.stage, first.error)
        out.add(FIRST_FAILURE, first.time, *key, first.stage, error)
    if record.dropped:
        out.add(DROPPED, record.dropped, *key)


def _error(names: Vocabulary, record: RankRecord, stage: str, error: str) -> str:
    """The exception's type, or `other` once the job has shown too many."""
    known = names.admits("error", record.job_id, record.role, f"{stage} {error}")
    return error if known else "other"


def _histograms(out: Samples, totals: Totals, job_id: str, role: str) -> None:
    for stage, counts in totals.durations.items():
        if any(counts):
            histogram = _histogram(counts, totals.duration_seconds[stage])
            out.add_histogram(DURATIONS, histogram, job_id, role, stage)
    for stage, counts in totals.gaps.items():
        if any(counts):
            out.add_histogram(
                GAPS, _histogram(counts, totals.gap_seconds[stage]), job_id, role, stage
            )
    for (stage, error), count in totals.failures.items():
        out.add(FAILURES, count, job_id, role, stage, error)


def _histogram(counts: list[int], total: float) -> Histogram:
    cumulative = tuple(accumulate(counts))
    return Histogram(BUCKET_BOUNDS, cumulative[:-1], cumulative[-1], total)


def _build(options: NoOptions, context: NodeContext) -> StagesCollector:
    return StagesCollector(context.ranks)


SPEC = CollectorSpec(
    name="stages",
    help="open stage, progress, durations and failures of ranks, from their stage records",
    interval=1.0,
    options=NoOptions,
    build=_build,
)
