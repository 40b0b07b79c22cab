"""What the rules and `stagewatch inspect` said of a shape that was played, and whether it is right.

Of the product only its names are used: the recorded series, the labels of its alerts, the JSON of
`inspect`, and how a case file tells the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stagewatch.judgement.case_file import Member, Truth
from stagewatch.prometheus.api import PrometheusApi, Track
from tests.hangbench.player import Played
from tests.hangbench.probes import LAG_SECONDS, OUTSIDER, pids_in
from tests.hangbench.shape import MAX_WORLD, server_number

ACTIVE, CULPRIT = "job:rl_stall:active", "job:rl_stall:culprit"
UNNAMED = "rl_job_unnamed"
"""Where no rank is named, what is known instead: of an outsider its command and pid."""
BUDGET = "rank:rl_stall:budget_seconds"
BARE_SECONDS = 300.0
"""How long a job without records must have been still; the rules give it no budget of its own."""
SUSPICIONS = ("JobStalled", "UninstrumentedJobStill")
"""Alerts below a page that speak of a hang; those of a starved rank, say, speak of other things."""
SLOWNESS = ("Straggler", "SlowRank", "SlowNode")
"""Alerts that speak of slow ranks, which count where a rank is slow."""
STEP_SECONDS = 1.0
STRANGER = -1
"""Stands for a rank that was named and is none of the job's."""
SERVER = "server "
"""Begins what stands for the role of a process that is no rank; its rank is its number."""

RIGHT, PARTIAL, WITHDRAWN = "right", "partial", "withdrawn"
INNOCENT, ABSTAINED, MISSED = "innocents", "abstained", "missed"
SILENT, SUSPECTED, PAGED = "silent", "suspected", "paged"


@dataclass
class Seen:
    """What a Prometheus with the rules has recorded of a job; times are Unix seconds."""

    suspected: float = 0.0
    """First after the trigger; 0: never."""
    paged: float = 0.0
    early: str = ""
    """What was raised before the trigger, `suspected` or `paged`."""
    named: dict[float, frozenset[int]] = field(default_factory=dict)
    """Processes named, by time."""
    evidence: set[str] = field(default_factory=set)
    alerts: dict[str, str] = field(default_factory=dict)
    """The worst severity of each alert of the job that fired, by its name."""
    budget: float | None = None
    """The longest that was given to a rank of the roles first suspected; None: no rank was overdue,
    as in a job that only goes on slowly."""

    def raised(self, suspicions: list[float], pages: list[float], trigger: float) -> None:
        """Note when the job was suspected, and when it was paged for."""
        either = suspicions + pages
        self.paged = min((time for time in pages if time >= trigger), default=0.0)
        self.suspected = min((time for time in either if time >= trigger), default=0.0)
        if any(time < trigger for time in either):
            self.early = PAGED if any(time < trigger for time in pages) else SUSPECTED

    def at(self, when: float) -> frozenset[int]:
        """The processes named at a time."""
        known = [time for time in self.named if when - 3 <= time <= when + STEP_SECONDS]
        return self.named[max(known)] if known else frozenset()

    def between(self, begin: float, end: float) -> set[frozenset[int]]:
        """All sets of processes that were named at a second of a time, perhaps the empty one."""
        answers = [ranks for time, ranks in self.named.items() if begin <= time <= end]
        seconds = max(1, int((end - begin) / STEP_SECONDS))
        return set(answers) | ({frozenset()} if len(answers) < seconds else set())


def collect(api: PrometheusApi, played: Played) -> Seen:
    """Read what was recorded of a job from its begin to its end."""
    seen = Seen()
    job = f'job_id="{played.shape.name}"'
    begin, trigger, end = played.began, played.triggered, played.ended

    def ask(expression: str) -> list[Track]:
        return api.query_range(expression, begin, end, STEP_SECONDS)

    active, culprits = ask(f"{ACTIVE}{{{job}}}"), ask(f"{CULPRIT}{{{job}}}")
    alerts = ask(f'ALERTS{{{job}, alertstate="firing"}}')
    critical = [track for track in alerts if track.labels.get("severity") == "critical"]
    if played.shape.disturbs:
        nodes = "|".join(played.nodes)
        about = f'node=~"{nodes}", job_id="", severity="critical", alertstate="firing"'
        critical += api.query_range(f"ALERTS{{{about}}}", trigger, end, STEP_SECONDS)
    names = SUSPICIONS + SLOWNESS if played.shape.kind == "straggler" else SUSPICIONS
    lesser = [track for track in alerts if track.labels["alertname"] in names]
    seen.alerts = {t.labels["alertname"]: t.labels.get("severity", "") for t in alerts}
    seen.alerts |= {t.labels["alertname"]: "critical" for t in critical}
    pages = [time for track in critical for time, _ in track.samples]
    suspicions = [
        time for track in active + culprits + lesser for time, value in track.samples if value
    ]
    lost = [track for track in alerts if "rank" not in track.labels and "node" in track.labels]
    seen.raised(suspicions, pages, trigger)
    unnamed = ask(f'{UNNAMED}{{{job}, evidence="{OUTSIDER}"}}')
    for track in [*culprits, *unnamed, *critical, *lesser, *lost]:
        ranks = named_by(track, played)
        for time, value in track.samples if ranks else ():
            if value and time >= trigger:
                seen.named[time] = seen.named.get(time, frozenset()) | ranks
                seen.evidence |= {track.labels.get("evidence", "")} - {""}
    seen.budget = _budget(api, played, seen.suspected)
    return seen


def _budget(api: PrometheusApi, played: Played, suspected: float) -> float | None:
    """The seconds without progress that the rules gave whoever they suspected first."""
    if not suspected:
        return None
    if played.shape.backend == "bare":
        return BARE_SECONDS
    job = f'job_id="{played.shape.name}"'
    of_all = f"{BUDGET}{{{job}}}"
    of_suspects = f"{of_all} and on (job_id, role) {ACTIVE}{{{job}}}"
    given = api.query(of_suspects, suspected) or api.query(of_all, suspected)
    return max((one.value for one in given), default=None)


def named_by(track: Track, played: Played) -> frozenset[int]:
    """The processes that a series names by its labels: a rank, or all of a node."""
    labels = track.labels
    if labels.get("evidence") == OUTSIDER and "process" in labels:
        return outsiders(played.server_pids, pids_in(labels["process"]))
    if "rank" in labels and played.shape.backend == "bare":  # nobody has told its role
        return frozenset({int(labels["rank"])})
    if "rank" in labels:
        return frozenset({process(played, labels.get("role", ""), int(labels["rank"]))})
    if labels.get("node") in played.nodes:
        return frozenset(on_node(played, labels["node"]))
    return frozenset()


def outsiders(known: Sequence[int], pids: set[int]) -> frozenset[int]:
    """The numbers of servers, whose pids are known; a process that is none is a stranger."""
    return frozenset(server_number(known.index(pid)) if pid in known else STRANGER for pid in pids)


def process(played: Played, role: str, rank: int) -> int:
    """The number of the process that is reported as this rank of this role."""
    for number in range(MAX_WORLD):
        if played.shape.role_of(number, MAX_WORLD)[:2] == (role, rank):
            return number
    return STRANGER


def on_node(played: Played, node: str) -> set[int]:
    """The processes of a node."""
    return {rank for rank, where in played.placed.items() if where == node}


def answers(played: Played) -> tuple[frozenset[int], ...]:
    """The sets of processes of which each is the right answer."""
    expect = played.shape.expect
    if expect.node >= 0:
        return (frozenset(on_node(played, played.nodes[expect.node])), *expect.sets)
    return expect.sets


def grade(
    suspected: bool, named: Iterable[frozenset[int]], right: tuple[frozenset[int], ...]
) -> str:
    """How good the answer to a fault is; `named` are the sets named, in order of time."""
    sets = list(named)
    allowed: frozenset[int] = frozenset().union(*right)
    ever: frozenset[int] = frozenset().union(*sets)
    last = sets[-1] if sets else frozenset()
    if not suspected:
        return MISSED
    if ever - allowed:
        return INNOCENT
    if last in right:
        return RIGHT
    if any(one in right for one in sets if one):
        return WITHDRAWN
    return PARTIAL if last else ABSTAINED


@dataclass
class Outcome:
    """The scores of one shape, as they go into the results."""

    name: str
    title: str
    kind: str
    healthy: bool
    blind_spot: str
    unsound: str
    """What the job did instead of what the shape says, empty if it did that; then it counts not."""
    expected: list[list[int]]
    suspicion: str
    page: str
    """What is expected: "must", "may" or "must not"."""
    answer: str
    """For a fault the grade of the names, for a healthy shape the loudest level."""
    suspected_after: float | None
    paged_after: float | None
    budget: float | None
    named_first: list[int]
    named_at_page: list[int]
    named_at_end: list[int]
    named_ever: list[int]
    evidence: list[str]
    evidence_right: bool
    alerts: dict[str, str]
    early: str
    inspect: str
    """Its grade or level; empty where it was not asked."""
    inspect_named: list[int]
    rules_named: list[list[int]]
    """All answers of the rules from when `inspect` began until they had judged what it saw; none
    where nobody can compare, as of a job on two nodes, of which `inspect` sees one at a time."""
    inspect_problem: str
    others: dict[str, dict[str, object]] = field(default_factory=dict)
    """What other detectors said; see `detectors.py`."""

    @property
    def agrees(self) -> bool | None:
        """Whether the rules gave the answer of `inspect`; None where nobody can compare."""
        return self.inspect_named in self.rules_named if self.rules_named else None

    @property
    def beyond_budget(self) -> float | None:
        """Seconds from the end of the budget in force until the suspicion, if there were both."""
        if self.suspected_after is None or self.budget is None:
            return None
        return self.suspected_after - self.budget

    @property
    def counts(self) -> bool:
        """Whether it is part of the rates."""
        return not self.unsound and not self.blind_spot


def truth_of(played: Played) -> Truth:
    """What a shape that was played says of itself, with what became of it."""
    shape = played.shape

    def member(number: int) -> Member:
        if number < STRANGER:
            server = shape.servers[server_number(number)]
            return f"{SERVER}{server.name}", number, played.nodes[server.node]
        role, rank, _ = shape.role_of(number, MAX_WORLD)
        if shape.backend == "bare":  # nobody tells of roles
            role, rank = "unknown", number
        return role, rank, played.placed.get(number, "")

    return Truth(
        title=shape.title,
        collection=shape.set_name,
        kind=shape.kind,
        healthy=shape.healthy,
        processes=tuple(map(member, range(max([shape.world - 1, *played.placed]) + 1))),
        expected=tuple(frozenset(map(member, one)) for one in answers(played)),
        suspicion=shape.expect.suspicion,
        page=shape.expect.page,
        evidence=frozenset(shape.expect.evidence),
        trigger=played.triggered,
        end=played.ended,
        blind_spot=shape.blind_spot,
        unsound=played.sound(),
        servers=tuple(played.server_pids),
    )


def number_of(truth: Truth, role: str, rank: int) -> int:
    """The number of the process that is reported as this rank of this role."""
    if role.startswith(SERVER):
        return rank
    known = [one[:2] for one in truth.processes]
    return known.index((role, rank)) if (role, rank) in known else STRANGER


def outcome(name: str, truth: Truth, seen: Seen) -> Outcome:
    """Score a job whose truth is known."""
    right = tuple(frozenset(number_of(truth, *m[:2]) for m in one) for one in truth.expected)
    order = [seen.named[time] for time in sorted(seen.named)]
    end = seen.at(truth.end - 4)
    if truth.healthy:
        answer = PAGED if seen.paged else SUSPECTED if seen.suspected else SILENT
    else:
        answer = grade(bool(seen.suspected), [*order, end], right)
    return Outcome(
        name=name,
        title=truth.title,
        kind=truth.kind,
        healthy=truth.healthy,
        blind_spot=truth.blind_spot,
        unsound=truth.unsound,
        expected=[sorted(one) for one in right],
        suspicion=truth.suspicion,
        page=truth.page,
        answer=answer,
        suspected_after=_after(seen.suspected, truth),
        paged_after=_after(seen.paged, truth),
        budget=seen.budget,
        named_first=sorted(order[0]) if order else [],
        named_at_page=sorted(seen.at(seen.paged + 2)) if seen.paged else [],
        named_at_end=sorted(end),
        named_ever=sorted(frozenset().union(*order)),
        evidence=sorted(seen.evidence),
        evidence_right=not truth.evidence or bool(truth.evidence & seen.evidence),
        alerts=seen.alerts,
        early=seen.early,
        inspect="",
        inspect_named=[],
        rules_named=[],
        inspect_problem="",
    )


def judge(played: Played, seen: Seen) -> Outcome:
    """Score a shape that was played."""
    scored = outcome(played.shape.name, truth_of(played), seen)
    if played.probe is not None:
        _inspected(scored, played, seen, answers(played))
    return scored


def _inspected(
    scored: Outcome, played: Played, seen: Seen, right: tuple[frozenset[int], ...]
) -> None:
    look = played.probe
    assert look is not None
    named = frozenset(process(played, role, rank) for role, rank in look.culprits)
    named |= outsiders(played.server_pids, look.outsiders)
    scored.inspect_named, scored.inspect_problem = sorted(named), look.problem
    if played.shape.healthy:
        scored.inspect = SUSPECTED if look.stalled else SILENT
    else:
        scored.inspect = grade(look.stalled, [named], right)
    if played.shape.nodes == 1:
        meanwhile = seen.between(look.began, min(look.ended + LAG_SECONDS, played.ended))
        scored.rules_named = sorted(map(sorted, meanwhile))


def _after(when: float, truth: Truth) -> float | None:
    return round(when - truth.trigger, 1) if when else None
