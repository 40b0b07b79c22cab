"""Who was named as slow in a shape that was played, when, and whether that is right.

Of the product only the names of its alerts and their labels are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from stagewatch.prometheus.api import PrometheusApi, Track
from tests.hangbench.player import Look, Played
from tests.hangbench.score import answers, named_by

NAMES = ("SlowRank", "SlowNode")
"""Alerts that name who is slow."""
ROTATES = "SlownessRotates"
"""The alert that another rank is slow each step, which names nobody."""
STEP_SECONDS = 5.0
POLL_SECONDS = 10.0
APART_SECONDS = 30.0
"""Between the two times that an answer must be right for a shape to be over."""
SOUND = 0.5
"""Of the slowness that a shape announces, how much there must have been."""


@dataclass(frozen=True)
class Spell:
    """An alert that fired without a break."""

    alert: str
    ranks: frozenset[int]
    """Processes it names."""
    begin: float
    """Unix seconds."""
    end: float


@dataclass
class Heard:
    """What a Prometheus with the rules has recorded of a job."""

    spells: list[Spell] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    """Names of critical alerts of the job."""

    def named(self) -> dict[float, frozenset[int]]:
        """The processes named, by each time at which that changed."""
        some = [one for one in self.spells if one.alert in NAMES]
        changes = {time for one in some for time in (one.begin, one.end + STEP_SECONDS)}
        return {
            when: frozenset().union(*(one.ranks for one in some if one.begin <= when <= one.end))
            for when in sorted(changes)
        }


def collect(api: PrometheusApi, played: Played) -> Heard:
    """Read what was recorded of a job from its begin to its end."""
    firing = f'ALERTS{{job_id="{played.shape.name}", alertstate="firing"}}'
    tracks = api.query_range(firing, played.began, played.ended, STEP_SECONDS)
    heard = Heard(pages=sorted({t.labels["alertname"] for t in tracks if _critical(t.labels)}))
    for track in tracks:
        if track.labels["alertname"] in (*NAMES, ROTATES):
            heard.spells += spells(track, named_by(track, played))
    return heard


def _critical(labels: Mapping[str, str]) -> bool:
    return labels.get("severity") == "critical"


def spells(track: Track, ranks: frozenset[int]) -> list[Spell]:
    """The spells of one series of `ALERTS`."""
    made: list[Spell] = []
    for when, _ in track.samples:
        if made and when - made[-1].end <= 2 * STEP_SECONDS:
            made[-1] = Spell(made[-1].alert, ranks, made[-1].begin, when)
        else:
            made.append(Spell(track.labels["alertname"], ranks, when, when))
    return made


def named_twice(api: PrometheusApi) -> Callable[[Played], bool]:
    """Whether the right ones have been named at two times so far, as Prometheus says now and then;
    never where nobody is to be named."""
    polled: dict[str, float] = {}
    first: dict[str, float] = {}

    def enough(played: Played) -> bool:
        name, now = played.shape.name, time.time()
        if played.shape.healthy or now - polled.get(name, 0.0) < POLL_SECONDS:
            return False
        polled[name] = now
        firing = api.query(f'ALERTS{{job_id="{name}", alertstate="firing"}}')
        told = {one.labels["alertname"] for one in firing}
        named: frozenset[int] = frozenset().union(
            *(
                named_by(Track(one.labels, []), played)
                for one in firing
                if one.labels["alertname"] in NAMES
            )
        )
        if not (named and named in answers(played)) and not (
            played.shape.expect.rotates == "must" and ROTATES in told and not named
        ):
            return False
        return now - first.setdefault(name, now) >= APART_SECONDS

    return enough


def own_work(looks: Iterable[Look], since: float) -> dict[int, float]:
    """Seconds that each process worked outside of communication in an average step, from a time
    on; without those that made no step."""
    after = [look for look in looks if look.time >= since]
    if not after:
        return {}
    first, last = after[0], after[-1]
    own = {}
    for rank, (before, now) in enumerate(zip(first.ranks, last.ranks, strict=False)):
        if (steps := now[2] - before[2]) > 0:
            waited = last.waited[rank] - first.waited[rank]
            own[rank] = (last.time - first.time - waited) / steps
    return own


def slowness(played: Played) -> float | None:
    """How many times as long as their peers the slow ones worked after the trigger, in the median;
    in a healthy shape, the longest of all.  None where that cannot be told."""
    own = own_work(played.looks, played.triggered + 1)
    slow = played.shape.slow
    assert slow is not None
    culprits = answers(played)[0] if answers(played) else frozenset()
    peers = _peers(played, own)
    theirs = [own[rank] for rank in culprits if rank in own]
    if not peers or not median(peers) or (culprits and not theirs):
        return None
    return (median(theirs) if theirs else max(peers)) / median(peers)


def _peers(played: Played, own: Mapping[int, float]) -> list[float]:
    """The work of those that the slow ones are compared with."""
    slow, culprits = played.shape.slow, frozenset[int]().union(*answers(played))
    among = slow.peers if slow and slow.peers else tuple(own)
    return [own[rank] for rank in among if rank in own and rank not in culprits]


def unsound(played: Played) -> str:
    """Empty if the right ones were slow, and they alone, as the shape says; else what was wrong."""
    if wrong := played.sound():
        return wrong
    slow = played.shape.slow
    assert slow is not None
    if not answers(played) or not answers(played)[0]:
        return ""
    excess, measured = slow.factor - 1, slowness(played)
    least = SOUND * excess * slow.share
    if measured is None or not least <= measured - 1 <= 2 * excess:
        return f"the slow ones took {measured or 0:.2f} times as long, not {slow.factor:g} times"
    peers = _peers(played, own_work(played.looks, played.triggered + 1))
    if (widest := max(peers) / median(peers)) > 1 + least:
        return f"one that is said to be healthy took {widest:.2f} times as long as its peers"
    return ""


@dataclass
class SlowOutcome:
    """The scores of one shape, as they go into the results."""

    name: str
    title: str
    kind: str
    healthy: bool
    must: bool
    """Whether somebody, or that it rotates, must be told; else nothing need be."""
    rotates: bool
    """Whether it must be told that slowness rotates, and nobody be named."""
    expected: list[int]
    """Processes; empty: nobody."""
    factor: float
    stage: float
    noise: float
    course: str
    world: int
    backend: str
    measured: float | None
    unsound: str
    """What the job did instead of what the shape says; then it counts not."""
    seconds: float
    """Of the job, of which it was watched."""
    told_after: float | None
    """Seconds from the trigger to the right answer."""
    false: list[str]
    """Each spell in which somebody was named wrongly: alert, processes, seconds after the begin."""
    rotates_after: float | None
    pages: list[str]


def judge(played: Played, heard: Heard) -> SlowOutcome:
    """Score a shape."""
    shape, right = played.shape, answers(played)
    slow = shape.slow
    assert slow is not None
    measured = slowness(played)
    turns = [one.begin for one in heard.spells if one.alert == ROTATES]
    rotates_after = _after(min(turns, default=0.0), played)
    told = _told(heard, played)
    rotates = shape.expect.rotates == "must"
    return SlowOutcome(
        name=shape.name,
        title=shape.title,
        kind=shape.kind,
        healthy=shape.healthy,
        must=shape.expect.suspicion == "must" and (rotates or bool(right and right[0])),
        rotates=rotates,
        expected=sorted(right[0]) if right else [],
        factor=slow.factor,
        stage=slow.stage,
        noise=shape.jitter,
        course=slow.course,
        world=shape.world,
        backend=shape.backend,
        measured=measured and round(measured, 3),
        unsound=unsound(played),
        seconds=round(played.ended - played.began, 1),
        told_after=rotates_after if rotates else told,
        false=[
            f"{one.alert} {sorted(one.ranks)} {one.begin - played.began:.0f} s"
            for one in wrong(heard, played)
        ],
        rotates_after=rotates_after,
        pages=heard.pages,
    )


def wrong(heard: Heard, played: Played) -> list[Spell]:
    """Spells that name somebody who is not slow, or not yet."""
    allowed: frozenset[int] = frozenset().union(*answers(played))
    return [
        one
        for one in heard.spells
        if one.alert in NAMES and one.ranks and (one.ranks - allowed or one.end < played.triggered)
    ]


def _told(heard: Heard, played: Played) -> float | None:
    """Seconds until exactly the right ones were named."""
    for when, named in heard.named().items():
        if named and named in answers(played) and when >= played.triggered:
            return _after(when, played)
    return None


def _after(when: float, played: Played) -> float | None:
    return round(when - played.triggered, 1) if when else None
