"""Facts about the ranks of this node, from their records and a few looks at their processes."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from stagewatch.core.errors import SourceError
from stagewatch.gpu.device_state import Device
from stagewatch.host.guarded import Files
from stagewatch.host.procfs import Procfs
from stagewatch.judgement.facts import Inside, RankFacts, RecordState, seems_still, silent_seconds
from stagewatch.judgement.limits import (
    DEFAULT,
    NOTHING_SHOWN,
    Limits,
    Shown,
    Stages,
    budget_seconds,
    quantile,
)
from stagewatch.ranks.directory import Census, RankDirectory
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.family_io import FamilyCounters, FamilyIo
from stagewatch.ranks.model import Rank, RankKey
from stagewatch.ranks.records import Life, RankRecord, StageTotals
from stagewatch.ranks.stages import INSIDE_AFTER_SECONDS
from stagewatch.ranks.wait_class import WINDOW_SAMPLES, Sample, Sampler, WaitClass, classify
from stagewatch.ranks.work import working


@dataclass(slots=True)
class _Role:
    """The gaps between marks of all ranks of a role by stage: what one rank had, another may
    have."""

    totals: dict[str, StageTotals] = field(default_factory=dict)
    live: int = 0
    """Number of live ranks with a record."""

    def add(self, record: RankRecord) -> None:
        """Add the record of one more rank."""
        self.live += record.life is Life.ALIVE
        for stage, mine in record.totals.items():
            self.totals[stage] = self.totals[stage] + mine if stage in self.totals else mine

    @property
    def stages(self) -> dict[str, Shown]:
        """The gaps by stage."""
        return {
            stage: Shown(
                sum(totals.gaps),
                quantile(totals.gaps, 0.99),
                totals.longest_gap,
                totals.recent_gap,
            )
            for stage, totals in self.totals.items()
        }


class Observer:
    """Keeps the last few samples of ranks and makes facts from them."""

    def __init__(
        self,
        proc: Procfs,
        limits: Limits = DEFAULT,
        device: Callable[[str], str] = lambda uuid: "",
        still: Callable[[RankKey], float | None] = lambda key: None,
    ) -> None:
        """`device`: what a GPU does, by its UUID; `still`: how many seconds a rank has stood
        still."""
        self._limits = limits
        self._device = device
        self._still = still
        self._sampler = Sampler(proc)
        self._windows: dict[int, deque[Sample]] = {}

    def look(self, ranks: Iterable[Rank]) -> None:
        """Take a sample of these ranks, and forget all others."""
        windows, self._windows = self._windows, {}
        alive = [rank for rank in ranks if rank.life is Life.ALIVE]
        looks = [(rank, self._sampler.look(rank, time.monotonic())) for rank in alive]
        for rank, sample in zip(alive, self._sampler.complete(looks), strict=True):
            if sample is not None:
                window = windows.get(rank.pid) or deque(maxlen=WINDOW_SAMPLES)
                self._windows[rank.pid] = window
                window.append(sample)

    def facts(
        self, ranks: Iterable[Rank], *, full: bool = False, at_work: Collection[RankKey] = ()
    ) -> list[RankFacts]:
        """The facts of those of these ranks that have not closed their record.

        `full`: the record directory has no room.  `at_work`: the ranks that moved bytes or took
        memory, or whose children did.
        """
        here = [rank for rank in ranks if rank.life is not Life.CLOSED]
        roles = _roles(here)
        return [
            _facts(
                rank,
                self._windows.get(rank.pid, ()),
                roles[rank.job_id, rank.role],
                self._limits,
                device=self._device(rank.gpu),
                idle=None if rank.record else self._still(rank.key),
                full=full,
                at_work=rank.key in at_work,
            )
            for rank in here
        ]


def _roles(here: Iterable[Rank]) -> dict[tuple[str, str], _Role]:
    roles: dict[tuple[str, str], _Role] = {}
    for rank in here:
        shown = roles.setdefault((rank.job_id, rank.role), _Role())
        if rank.record:
            shown.add(rank.record)
    return roles


def shown_by(ranks: Iterable[Rank]) -> dict[tuple[str, str], Stages]:
    """The gaps by stage of ranks that have not closed their record, by job and role."""
    here = [rank for rank in ranks if rank.life is not Life.CLOSED]
    return {key: role.stages for key, role in _roles(here).items()}


def observe(
    directory: RankDirectory,
    proc: Procfs,
    *,
    looks: int,
    pause: float,
    sleep: Callable[[float], None] = time.sleep,
    files: Files | None = None,
    limits: Limits = DEFAULT,
) -> list[RankFacts]:
    """Look at every rank `looks` times, `pause` seconds apart, and return their facts.

    `files` show which ranks are at work, by what they and their children move.
    """
    observer = Observer(proc, limits)
    census = Census()
    began, before = time.monotonic(), _counters(directory, proc, files)
    for look in range(looks):
        if look:
            sleep(pause)
        census = directory.look()
        observer.look(census.ranks)
    after = _counters(directory, proc, files)
    seconds = time.monotonic() - began
    at_work = working(before, after, seconds) if before is not None and after is not None else ()
    return observer.facts(census.ranks, full=census.full, at_work=at_work)


def _counters(directory: RankDirectory, proc: Procfs, files: Files | None) -> FamilyCounters | None:
    """The counters of all processes of ranks; `None` if they cannot be read."""
    if files is None:
        return None
    with contextlib.suppress(SourceError):
        return FamilyIo(ProcessFamilies(directory.ranks, proc), files).look()
    return None


def _facts(
    rank: Rank,
    window: Sequence[Sample],
    shown: _Role,
    limits: Limits,
    *,
    device: str,
    idle: float | None,
    full: bool,
    at_work: bool,
) -> RankFacts:
    record = rank.record
    lane = record.training if record else None
    frame = record.open if record else None
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    began = lane.step_began if lane else None
    stage = frame.stage if frame else ("idle" if record else None)
    first = record.first_failure if record else None
    alive = rank.life is Life.ALIVE and bool(window)
    seconds = window[-1].time - window[0].time if len(window) > 1 else 0.0
    wait_class = WaitClass.GONE if rank.life is Life.GONE else classify(window)
    inside = _inside(record, now) if record and alive else {}
    waited = window[-1].storage_wait_seconds if alive else 0.0
    at_work = at_work or wait_class is WaitClass.COMPUTE
    still = seems_still(wait_class, inside, waited, at_work=at_work)
    age = max(0.0, now - record.progress) if record and record.progress else idle
    taught = shown.stages.get(stage or "", NOTHING_SHOWN).taught(shown.live)
    budget = None if idle is None else limits.bare_seconds
    if record and stage:
        budget = budget_seconds(shown.stages, stage, still=still, ranks=shown.live, limits=limits)
    ran = window[-1].run_seconds - window[0].run_seconds if seconds else 0.0
    return RankFacts(
        job_id=rank.job_id,
        role=rank.role,
        rank=rank.rank,
        pid=rank.pid,
        world_size=rank.world_size,
        stage=stage,
        substage=frame.substage if frame else "",
        stage_open_seconds=max(0.0, now - frame.started) if frame else None,
        step=lane.step if lane else None,
        progress_age_seconds=silent_seconds(age, inside, taught=taught),
        budget_seconds=budget,
        collectives=record.collectives if record else {},
        state=window[-1].state if alive else "-",
        wait_channel=window[-1].channel if alive else "",
        cpu_ratio=ran / seconds if alive and seconds else None,
        wait_class=wait_class,
        first_failure=f"{first.error} in {first.stage}" if first else "",
        first_failure_time=first.time if first else None,
        first_failure_age_seconds=max(0.0, time.time() - first.time) if first else None,
        record=RecordState.KEPT if record else RecordState.NO_ROOM if full else RecordState.NONE,
        inside=inside,
        calls=_calls(record, now) if record and alive else {},
        group_sizes=_sizes(record, rank.world_size) if record else {},
        started=record.created if record else None,
        expected_seconds=max(0.0, record.expected_until - now) if record else None,
        gaps=sum(sum(totals.gaps) for totals in record.totals.values()) if record else None,
        stages=_stages(record) if record else frozenset(),
        at_work=at_work,
        unmarked=idle is not None,
        step_age_seconds=max(0.0, now - began) if began is not None else None,
        storage_wait_seconds=waited,
        device=Device(device) if device and alive else None,
    )


def _inside(record: RankRecord, now: float) -> dict[str, Inside]:
    return {
        name: Inside(group.op, now - group.entered, group.peer, group.elements)
        for name, group in record.inside.items()
        if now - group.entered >= INSIDE_AFTER_SECONDS
    }


def _stages(record: RankRecord) -> frozenset[str]:
    return frozenset(stage for stage, totals in record.totals.items() if totals.longest_gap)


def _calls(record: RankRecord, now: float) -> dict[str, float]:
    return {
        name: max(0.0, now - one.oldest)
        for name, one in record.calls.items()
        if one.oldest < math.inf
    }


def _sizes(record: RankRecord, world_size: int | None) -> dict[str, int]:
    sizes = {name: group.size for name, group in record.groups.items()}
    if "world" in sizes:
        sizes["world"] = sizes["world"] or world_size
    return {name: size for name, size in sizes.items() if size}
