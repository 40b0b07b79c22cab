"""Shapes that were played once, as case files: written from what a Prometheus holds of them, and
judged again in seconds.

A file has the moments at which a rank of the job was in trouble, 5 s apart: of others the judge
asks nothing, and forgets what was before.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.judgement.case_file import CaseFile, Truth, as_json, packed, read
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.memory import Course, Moment, State
from stagewatch.judgement.watch import JobKey, Judged, Watch
from tests.hangbench import score
from tests.hangbench.player import Played
from tests.hangbench.probes import OUTSIDER, pids_in
from tests.hangbench.shape import Shape

LOOK_SECONDS = 5.0
TRIES = 30
"""Looks at one moment, each of which ends when Prometheus has not answered for 10 s."""
RECORDED = Path(__file__).with_name("recorded")
BLIND = Path(__file__).with_name("recorded_blind")
DRAWN = Path(__file__).with_name("recorded_drawn")
"""The latest sets, as they were first played."""
EXPECTED = "expected.json"
SUFFIX = ".json.gz"


class Recorder:
    """Writes a case for each shape once it was played, as the judge would have seen it.

    What was written stays, whatever becomes of those that are played later.
    """

    def __init__(self, watch: Watch, directory: Path, begun: float) -> None:
        """`begun`: Unix time before any shape was played."""
        self._watch, self._directory, self._next = watch, directory, begun
        self._moments: defaultdict[str, list[tuple[str, Moment]]] = defaultdict(list)
        """Of jobs that are played, each with its cluster."""
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, played: Played) -> None:
        """Write one; those of slow ranks apart, which the judge answers otherwise.  Raises
        `SourceError` where the Prometheus does not answer."""
        name = played.shape.name
        while self._next <= played.ended:
            for (cluster, job_id), job in self._look().items():
                self._moments[job_id].append((cluster, job.moments[-1]))
            self._next += LOOK_SECONDS
        seen = [
            (cluster, moment)
            for cluster, moment in self._moments.pop(name, [])
            if played.began <= moment.time <= played.ended
        ]
        if _is_judged(played.shape):
            cluster = seen[-1][0] if seen else ""
            case = CaseFile(
                cluster, name, [moment for _, moment in seen], truth=score.truth_of(played)
            )
            (self._directory / f"{name}{SUFFIX}").write_bytes(packed(as_json(case)))

    def _look(self) -> Mapping[JobKey, Judged]:
        """All jobs in trouble, once Prometheus has time to answer."""
        for _ in range(TRIES):
            with contextlib.suppress(SourceError):
                return self._watch.look(self._next).jobs
        return self._watch.look(self._next).jobs


def _is_judged(shape: Shape) -> bool:
    return shape.kind != "straggler" and shape.slow is None


def cases(directory: Path) -> Iterator[CaseFile]:
    """Those of a directory, by name."""
    for file in sorted(directory.glob(f"*{SUFFIX}")):
        yield read(file)


def replay(some: Iterable[CaseFile]) -> list[score.Outcome]:
    """Judge each job again, and score the answers."""
    return [
        score.outcome(case.job_id, case.truth, _seen(case, case.truth))
        for case in some
        if case.truth is not None
    ]


def summary(one: score.Outcome) -> str:
    """The answer in a few words, which a test holds."""
    early = [f"{one.early} before the trigger"] if one.early else []
    paged = ["paged"] if one.paged_after is not None and not one.healthy else []
    return ", ".join([one.answer, *paged, *early])


def expected(directory: Path) -> dict[str, str]:
    """The summary of each shape of a directory, as it was when somebody last looked."""
    told: dict[str, str] = json.loads((directory / EXPECTED).read_text())
    return told


def accept(outcomes: Iterable[score.Outcome], directory: Path) -> None:
    """Expect these from now on."""
    told = {one.name: summary(one) for one in outcomes}
    (directory / EXPECTED).write_text(json.dumps(told, indent=0, sort_keys=True) + "\n")


def looks(case: CaseFile) -> Iterator[tuple[float, list[State]]]:
    """What the judge says at each moment; it begins anew where the job was in no trouble."""
    course, before = Course(), 0.0
    for moment in case.moments:
        if moment.time - before > 1.5 * LOOK_SECONDS:
            course = Course(watched=True)
        before = moment.time
        yield moment.time, course.look(moment)


def _seen(case: CaseFile, truth: Truth) -> score.Seen:
    """What the judge has said from the job's begin to its end."""
    seen = score.Seen()
    suspicions, pages = [], []
    budgets = {}
    for time, states in looks(case):
        charges = [charge for state in states for charge in state.verdict.charges]
        stalled = [state.verdict for state in states if state.verdict.stalled]
        if stalled or charges:
            suspicions.append(time)
            roles = [verdict.case.live for verdict in stalled or (s.verdict for s in states)]
            given = [rank.budget_seconds for live in roles for rank in live]
            budgets[time] = max((one for one in given if one is not None), default=None)
        if any(state.paged for state in states):
            pages.append(time)
        ranks = _outside(stalled, truth)
        if time < truth.trigger or not (charges or ranks):
            continue
        seen.evidence |= {charge.evidence for charge in charges}
        ranks |= {score.number_of(truth, c.rank.role, c.rank.rank) for c in charges}
        lasts = int(LOOK_SECONDS / score.STEP_SECONDS)
        seen.named |= {time + second * score.STEP_SECONDS: ranks for second in range(lasts)}
    seen.raised(suspicions, pages, truth.trigger)
    seen.budget = budgets.get(seen.suspected)
    return seen


def _outside(stalled: Iterable[Verdict], truth: Truth) -> frozenset[int]:
    """The processes that are no ranks and are told as what a role waits for; nobody where the file
    does not know their pids."""
    told = (
        min({wait.outsider for wait in verdict.case.outside} - {""}, default="")
        for verdict in stalled
        if verdict.evidence == OUTSIDER and truth.servers
    )
    return frozenset().union(*(score.outsiders(truth.servers, pids_in(text)) for text in told))
