"""How long each rank has worked and how long it was inside of collectives, by stage.

All ranks take equally long for a step of a synchronous job; what differs is how much they wait.
What a rank's training thread spends outside of collectives is its own work.
"""

from __future__ import annotations

from stagewatch.core.exposition import Metric, Samples
from stagewatch.ranks.model import RANK_LABELS
from stagewatch.ranks.records import Life, RankRecord

_LABELS = (*RANK_LABELS, "stage")

WORKED = Metric(
    "rl_rank_worked_seconds_total",
    "counter",
    "Time that the rank's training thread has spent outside of collectives while the stage was its "
    "innermost open one, up to now.",
    _LABELS,
)
WAITED = Metric(
    "rl_rank_waited_seconds_total",
    "counter",
    "Time that the rank's training thread has spent inside of collectives while the stage was its "
    "innermost open one, up to now: it waits for its peers there, or for the transport.",
    _LABELS,
)
DATA_WAIT = Metric(
    "rl_rank_data_wait_seconds_total",
    "counter",
    "Time that the rank's training thread has waited for batches of a PyTorch DataLoader, up to "
    "now; it counts as work.",
    RANK_LABELS,
)


class OwnWork:
    """Work and waiting of ranks, which never decrease as long as a rank's record is there."""

    def __init__(self) -> None:
        self._shown: dict[str, dict[str, tuple[int, int]]] = {}
        self._data: dict[str, int] = {}

    def add(self, out: Samples, records: list[RankRecord], now: float) -> None:
        """Take in the records of all ranks that are there, and forget all others.

        `now` is a time of the clock that counts suspend, no earlier than the records were read.
        What was under way when a record was read counts until then, so another look may find a
        little less: the higher figure stays until time has caught up with it.
        """
        before, self._shown = self._shown, {}
        data_before, self._data = self._data, {}
        for record in records:
            old = before.get(record.name, {})
            self._shown[record.name] = shown = {}
            for stage, times in _own_work(record, int(now * 1e9)).items():
                worked, waited = map(max, times, old.get(stage, times))
                shown[stage] = worked, waited
                key = record.job_id, record.role, record.rank, stage
                out.add(WORKED, worked / 1e9, *key)
                out.add(WAITED, waited / 1e9, *key)
            data = max(_data_wait(record, int(now * 1e9)), data_before.get(record.name, 0))
            self._data[record.name] = data
            if data:
                out.add(DATA_WAIT, data / 1e9, record.job_id, record.role, record.rank)


def work_and_waiting(record: RankRecord, now: float) -> tuple[float, float]:
    """Seconds that the training thread has worked and waited so far, over all stages.

    `now` is as in `OwnWork.add`.
    """
    times = _own_work(record, int(now * 1e9)).values()
    return sum(worked for worked, _ in times) / 1e9, sum(waited for _, waited in times) / 1e9


def _own_work(record: RankRecord, now: int) -> dict[str, tuple[int, int]]:
    """Nanoseconds worked and waited of the training thread by stage, at a time in nanoseconds."""
    lane = record.training
    if lane is None:
        return {}
    times = dict(lane.times)
    if record.life is Life.ALIVE and lane.progress:
        stage = lane.frames[-1].stage if lane.frames else "idle"
        spent, waited = times.get(stage, (0, 0))
        times[stage] = spent + max(0, now - int(lane.progress * 1e9)), waited
    work = {}
    for stage, (spent, so_far) in times.items():
        waited = min(max(0, so_far + now if so_far < 0 else so_far), spent)
        work[stage] = spent - waited, waited
    return work


def _data_wait(record: RankRecord, now: int) -> int:
    """Nanoseconds that the training thread has waited for data, at a time in nanoseconds."""
    lane = record.training
    if lane is None:
        return 0
    if lane.batches >= 0:
        return min(lane.batches, now)
    return max(0, lane.batches + now) if record.life is Life.ALIVE else 0
