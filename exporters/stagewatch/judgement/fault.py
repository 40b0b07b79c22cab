"""Decides which ranks of a role would be at fault if it were stalled: the strongest evidence
counts.

Collectives come first, then absent ranks, then how the ranks wait, then where they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from stagewatch.gpu.device_state import Device
from stagewatch.judgement.below import add_waits_below
from stagewatch.judgement.case import WEAK, Case, Charge, usual_waits
from stagewatch.judgement.facts import RankFacts, RecordState, is_still
from stagewatch.judgement.graph import Graph, Kind, Where, draw
from stagewatch.judgement.limits import (
    LATER_SECONDS,
    MIN_SECONDS,
    STEPLESS_SECONDS,
    WORKING_SECONDS,
)
from stagewatch.judgement.roles import OUTSIDE, Beside
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import POINT_TO_POINT

_BUSY = (WaitClass.COMPUTE, WaitClass.IO, WaitClass.STOPPED)

Charges = dict[int, tuple[str, str, str]]
"""Evidence, group and operation, by the place of the charged rank."""


def accuse(ranks: Sequence[RankFacts], others: Beside) -> Case:
    """The case of one role, stalled or not; `others` is what the job's other roles mean for it."""
    live = [rank for rank in ranks if rank.wait_class is not WaitClass.GONE]
    here = {rank.rank for rank in live}
    absent = [rank for rank in ranks if rank.wait_class is WaitClass.GONE and rank.rank not in here]
    asked = {
        place: others.awaited[rank.rank]
        for place, rank in enumerate(live)
        if rank.rank in others.awaited
    }
    all_here = others.only_role and _world_is_complete(live)
    graph = draw(live, asked, others.complete, others.shared, all_here=all_here)
    add_waits_below(live, graph)
    graph.perhaps_awaited |= {at for at in asked if live[at].rank in others.perhaps_awaited}
    found, holding = _by_collectives(live, graph)
    case = Case(
        live,
        gone=[rank for rank in absent if rank.left_seconds is None],
        left=[rank for rank in absent if rank.left_seconds is not None],
        waiting=frozenset(graph.waits),
        holding=frozenset(holding),
        misses=graph.short and any(rank.overdue for rank in live),
        unseen=graph.unseen,
        others=others.roles,
        own_world=others.own_world,
        partner_hands_over=others.partner_hands_over,
        outside=tuple(graph.outside.values()),
        edges=tuple(graph.edges),
    )
    return _charge(case, graph, found, others)


def _charge(case: Case, graph: Graph, found: Charges, others: Beside) -> Case:
    """The case with the ranks that are at fault by the strongest evidence; `found` are the charges
    by collectives."""
    live, complete = case.live, _world_is_complete(case.live)
    if case.gone and live and not complete:
        return replace(case, charges=tuple(Charge(rank, "process_gone") for rank in case.gone))
    # A rank that others wait for may itself wait for absent ranks; without records, unless the
    # kernel shows that it waits for nobody.
    seen = any(
        not live[place].is_abandoned and (not case.bare or live[place].stands_alone)
        for place in found
    )
    if not seen and not complete and (charges := _by_absence(case, graph)):
        return replace(case, charges=charges)
    found = found or _by_wait(live, graph, others)
    innocent = {rank.stage for place, rank in enumerate(live) if place not in found}
    named = tuple(
        Charge(
            live[place],
            _left_early(live[place], evidence, innocent),
            group,
            op,
            in_turn=evidence == "awaited" and place in graph.waits,
        )
        for place, (evidence, group, op) in sorted(found.items())
    )
    named = tuple(one for one in named if one.evidence not in WEAK) or named
    return replace(case, charges=named, unnamed="" if named else _unnamed(live, graph))


def _by_absence(case: Case, graph: Graph) -> tuple[Charge, ...]:
    """Charges for absence: the ranks on lost nodes, else the ranks that never started, else those
    that left while others wait for members of their group.

    If most ranks have left, those that still wait are charged instead: they entered one collective
    too many."""
    absent, lost = case.absent_long, case.lost_with_node
    if not (case.live and any(rank.overdue for rank in case.live)):
        return ()
    if lost and (case.misses or not case.inside_sized):
        return tuple(Charge(rank, "node_lost") for rank in lost)
    if not case.sees_all:
        return tuple(Charge(rank, "not_started") for rank in case.never_seen)
    if case.bare:
        return tuple(Charge(rank, "missing") for rank in absent) if case.awaits_absent else ()
    if not case.misses:
        return ()
    lasting = sorted(graph.missing.items()) if len(absent) > len(case.live) else []
    if lasting and all(op == "unknown" for _, (_, op) in lasting):
        return ()  # its end is not recorded, so these ranks may have left it
    return tuple(
        Charge(case.live[place], "mismatch", group, op, outlasts=True)
        for place, (group, op) in lasting
    ) or tuple(Charge(rank, "missing") for rank in absent)


def _world_is_complete(live: Sequence[RankFacts]) -> bool:
    """Whether as many ranks live as the world counts now, perhaps after it has shrunk."""
    sizes = [rank.group_sizes["world"] for rank in live if "world" in rank.group_sizes]
    return any(rank.world_size == len(live) for rank in live) or 0 < max(sizes, default=0) <= len(
        live
    )


def _unnamed(live: Sequence[RankFacts], graph: Graph) -> str:
    """Why nobody is charged, as `Case.unnamed`."""
    if graph.differs or _most_lack(graph.awaited.keys() - graph.waits, live, graph):
        return "mismatch"
    if graph.short:
        return "missing"
    if graph.outside:
        ranks = all(wait.rank is not None for wait in graph.outside.values())
        return "other_role" if ranks else "outsider"
    perhaps = graph.perhaps_awaited & graph.below.keys() - graph.waits
    if graph.waits and not (graph.together or perhaps):
        return "cycle"
    calls = bool(live) and all(rank.call for rank in live)
    return "call" if calls and not (graph.waits or graph.together) else "group_only"


def _by_collectives(live: Sequence[RankFacts], graph: Graph) -> tuple[Charges, set[int]]:
    """The charges by the graph, and the places of all ranks that hold others up."""
    found: Charges = {place: ("mismatch", *where) for place, where in graph.mismatched.items()}
    livelock = _livelock(live, graph) - graph.mismatched.keys()
    found |= dict.fromkeys(livelock, ("livelock", "", ""))
    holding = _holding(live, graph, graph.mismatched.keys() | livelock)
    found |= _held_up_by(live, graph, holding, tries_again=bool(livelock))
    if not found and _in_circle(graph):
        found = _out_of_circle(live, graph) or _charged(_circle(live, graph), "circle")
    return found, livelock | holding.keys()


def _in_circle(graph: Graph) -> bool:
    """Whether ranks wait, and only for ranks that wait too."""
    ends = graph.differs or graph.short or graph.together or graph.outside
    return bool(graph.waits) and not ends


def _holding(live: Sequence[RankFacts], graph: Graph, charged: set[int]) -> dict[int, Where]:
    """The ranks that others wait for, that wait for nobody, and that are overdue or make no
    step."""
    late = [rank.late_seconds for rank in live if rank.late_seconds is not None]
    patient = min(late, default=0.0) < WORKING_SECONDS
    others = graph.waits | graph.together | charged
    return {
        place: where
        for place, where in graph.awaited.items()
        if place not in others
        and (
            live[place].overdue
            or (live[place].marks and not patient)
            or (place in graph.nowhere and _unmarked_and_still(live[place]))
            or _unmarked_and_asked(live[place])
        )
    }


def _held_up_by(
    live: Sequence[RankFacts], graph: Graph, holding: dict[int, Where], *, tries_again: bool
) -> Charges:
    """The charges against the ranks in `holding`.

    Ranks that are stopped or wait for storage are all charged, and no others, since no peer causes
    that and others may wait for these unseen."""
    for wait_class, evidence in ((WaitClass.STOPPED, "odd_one_out"), (WaitClass.IO, "io_blocked")):
        chosen = {at: where for at, where in holding.items() if live[at].wait_class is wait_class}
        if chosen:
            alike = _charged(_unawaited(live, graph, wait_class), evidence)
            return {at: (evidence, *where) for at, where in chosen.items()} | alike
    chosen = _without_usual_waits(live, graph, holding, tries_again=tries_again)
    if direct := {at: where for at, where in chosen.items() if at not in graph.perhaps_awaited}:
        if not any(group for group, _ in direct.values()):  # several hold the pipe or the lock
            stuck_in_itself = {a: where for a, where in direct.items() if live[a].stands_alone}
            direct = stuck_in_itself or direct
        if _most_lack(direct, live, graph):
            return {}
        return {at: (graph.below.get(at, "awaited"), *where) for at, where in direct.items()}
    rest = graph.perhaps_awaited - graph.waits - chosen.keys()
    stuck = not rest and all(live[at].stands_alone for at in chosen)
    named = chosen if len(chosen) == 1 or stuck else {}
    return {at: (graph.below.get(at, "awaited_through"), *where) for at, where in named.items()}


def _most_lack(awaited: Collection[int], live: Sequence[RankFacts], graph: Graph) -> bool:
    """Whether more ranks are awaited than wait, without a visible reason: the few may be too early,
    or the many may wait for them unseen."""
    seen = any(
        live[at].stands_alone or at in graph.below or not graph.awaited[at][0] for at in awaited
    )
    sizes = (live[at].group_sizes.get(graph.awaited[at][0], 0) for at in awaited)
    return 2 * len(awaited) > max([len(live), *sizes]) and not seen


def _out_of_circle(live: Sequence[RankFacts], graph: Graph) -> Charges:
    """The charges in a circle of waits.

    They are against ranks that skipped a collective; else against the few that wait outside of
    their peers' collective, that have left the loop, that wait in a wider group than most of their
    own group, or that are in another stage than all others."""
    if graph.skipped:
        return {place: ("mismatch", *where) for place, where in graph.skipped.items()}
    away = {at: where for at, where in graph.awaited.items() if where[0] and not live[at].inside}
    if away and 2 * len(away) < len(live):
        return {at: ("awaited", *where) for at, where in away.items()}
    loop = {rank.stage for place, rank in enumerate(live) if place not in graph.awaited}
    at_end = {
        place: where
        for place, where in graph.awaited.items()
        if live[place].stage in OUTSIDE and live[place].stage not in loop
    }
    if at_end and 2 * len(at_end) < len(live):
        return {place: ("left_loop_early", *where) for place, where in at_end.items()}
    if graph.in_another:
        return {place: ("awaited", *where) for place, where in graph.in_another.items()}
    few = _minority([rank.stage for rank in live])
    return {p: ("stage_differs", *where) for p, where in graph.awaited.items() if p in few}


def _circle(live: Sequence[RankFacts], graph: Graph) -> set[int]:
    """The few ranks that wait for each other in the same operation while all others wait for them.

    Ranks that nobody waits for are dropped, then ranks that only dropped ranks wait for, and so on.
    """
    edges = [edge for edge in graph.edges if edge.targets]
    waiters = [len(edge.waiters & graph.waits) for edge in edges]
    of = defaultdict(list)
    awaited: Counter[int] = Counter()
    for number, edge in enumerate(edges):
        for place in edge.waiters:
            of[place].append(number)
        awaited.update(edge.targets if waiters[number] else ())
    inside = set(graph.waits)
    free = [place for place in inside if not awaited[place]]
    while free:
        place = free.pop()
        inside.discard(place)
        for number in of[place]:
            waiters[number] -= 1
            for target in edges[number].targets if not waiters[number] else ():
                awaited[target] -= 1
                if not awaited[target]:
                    free.append(target)
    calls = {(group, call.op) for place in inside for group, call in live[place].inside.items()}
    return inside if len(calls) == 1 and 2 * len(inside) <= len(live) else set()


def _without_usual_waits(
    live: Sequence[RankFacts], graph: Graph, chosen: dict[int, Where], *, tries_again: bool
) -> dict[int, Where]:
    """`chosen` without ranks that spin or poll like most ranks inside collectives, unless all do:
    they wait for a peer unseen.

    `tries_again`: a rank repeats something all the time.  Then ranks that sleep like the others may
    wait for that rank, and are dropped even if none remains.
    """
    usual = usual_waits((live[place] for place in graph.waits), tries_again=tries_again)
    others = {
        place: where
        for place, where in chosen.items()
        if live[place].wait_class not in usual or live[place].stands_alone
    }
    return others if others or tries_again else chosen


def _unawaited(live: Sequence[RankFacts], graph: Graph, wait_class: WaitClass) -> set[int]:
    """Overdue ranks of a wait class that are in no collective and that nobody visibly waits for."""
    return {
        place
        for place, rank in enumerate(live)
        if rank.wait_class is wait_class
        and rank.overdue
        and not rank.inside
        and place not in graph.awaited
    }


def _unmarked_and_still(rank: RankFacts) -> bool:
    """Whether the rank has made no mark yet and stands still."""
    return rank.progress_age_seconds is None and is_still(rank) and not rank.at_work


def _unmarked_and_asked(rank: RankFacts) -> bool:
    """Whether the rank has made no mark, does no work, and the kernel was asked whom it waits
    for."""
    return rank.progress_age_seconds is None and bool(rank.kernel_waits) and not rank.at_work


def _livelock(live: Sequence[RankFacts], graph: Graph) -> set[int]:
    """The ranks that make marks but no step for longer than the budget of their stage, while all
    others wait."""
    ages = [rank.progress_age_seconds or 0.0 for rank in live]
    last = min((age for age in ages if age > MIN_SECONDS), default=0.0)
    stepless = {
        place
        for place, rank in enumerate(live)
        if rank.keeps_marking
        and ages[place] < last - LATER_SECONDS
        and (rank.step_age_seconds or 0.0) > (rank.budget_seconds or STEPLESS_SECONDS)
        and not rank.at_work
        and place not in graph.waits
    }
    busy = any(rank.wait_class in _BUSY for place, rank in enumerate(live) if place not in stepless)
    overdue = any(rank.overdue for rank in live)
    return stepless if overdue and not busy and 2 * len(stepless) <= len(live) else set()


def _by_wait(live: Sequence[RankFacts], graph: Graph, others: Beside) -> Charges:
    """Charges by how or where a rank waits, against ranks that visibly wait for nobody."""
    free = [place for place in range(len(live)) if place not in graph.waits]
    stopped = [place for place in free if live[place].wait_class is WaitClass.STOPPED]
    if stopped:
        return _charged(stopped, "odd_one_out")
    stored = [place for place in free if live[place].wait_class is WaitClass.IO]
    if stored and 2 * others.storage_waiters <= others.live_ranks:
        return _charged(stored, "io_blocked")
    if by_device := _by_device(live, graph):
        return by_device
    unseen = {
        place
        for place in free
        if not graph.waits and all(call.op == "unknown" for call in live[place].inside.values())
    }
    if apart := _in_another_stage(live, others) & unseen:
        return _charged(sorted(apart), "stage_differs")
    if alone := _alone_in_stack(live) & unseen:
        return _charged(alone, "stack_differs")
    return _by_wait_class(live, unseen)


def _by_device(live: Sequence[RankFacts], graph: Graph) -> Charges:
    """Charges against ranks with a lost GPU; else, if all members are inside a collective, against
    the few whose GPUs run no kernel while all other GPUs spin."""
    lost = [at for at, rank in enumerate(live) if rank.device is Device.LOST and rank.overdue]
    if lost:
        return _charged(lost, "device_lost")
    found: Charges = {}
    for edge in graph.edges:
        if edge.kind is Kind.TOGETHER and edge.group != POINT_TO_POINT:
            does = {at: live[at].device for at in sorted(edge.waiters)}
            idle = [at for at, device in does.items() if device is Device.IDLE]
            spin = [at for at, device in does.items() if device is Device.SPINS]
            if len(spin) > len(idle) and len(spin) + len(idle) == len(does):
                found |= dict.fromkeys(idle, ("device_idle", edge.group, edge.op))
    return found


def _in_another_stage(live: Sequence[RankFacts], others: Beside) -> set[int]:
    """The few ranks in another stage than all others; also the only rank of the job inside a stage,
    if other ranks of its role are between two stages."""
    stages = [rank.stage for rank in live]
    few = _minority(stages)
    if "idle" in stages:
        few |= {place for place, rank in enumerate(live) if rank.rank == others.alone_in_stage}
    return few


def _alone_in_stack(live: Sequence[RankFacts]) -> set[int]:
    """The one rank, of at least three, whose stack stays at another place than that of all
    others."""
    counts = Counter(rank.stack.group for rank in live if rank.stack.group).most_common(1)
    if len(live) < 3 or not counts or counts[0][1] != len(live) - 1:
        return set()
    return {
        place
        for place, rank in enumerate(live)
        if rank.stack.group not in ("", counts[0][0]) and rank.stack.still and rank.overdue
    }


def _by_wait_class(live: Sequence[RankFacts], unseen: set[int]) -> Charges:
    """Charges in a role without records: against the few ranks that cannot go on by themselves, as
    the kernel shows; else against those in another wait class than most."""
    if not live or any(rank.record is not RecordState.NONE for rank in live):
        return {}
    stuck = {place for place in unseen if live[place].stands_alone}
    if 0 < 2 * len(stuck) < len(live):
        return _charged(sorted(stuck), "stands_alone")
    [(most, count)] = Counter(rank.wait_class for rank in live).most_common(1)
    usual = (most, WaitClass.UNKNOWN, WaitClass.TRACED)
    few = [place for place in sorted(unseen) if live[place].wait_class not in usual]
    return _charged(few, "waits_unlike") if 2 * count > len(live) else {}


def _charged(places: Iterable[int], evidence: str) -> Charges:
    return dict.fromkeys(places, (evidence, "", ""))


def _minority(words: Sequence[str | None]) -> set[int]:
    """The places of the rarer of two words, if more than half of all places have the other; `None`
    does not count."""
    counts = Counter(word for word in words if word is not None).most_common()
    if len(counts) != 2 or 2 * counts[0][1] <= len(words):
        return set()
    return {place for place, word in enumerate(words) if word == counts[1][0]}


def _left_early(rank: RankFacts, evidence: str, innocent: set[str | None]) -> str:
    """`left_loop_early` for a rank that sleeps outside of the loop while no uncharged peer is in
    its stage; else the evidence unchanged."""
    if (
        evidence in ("awaited", "stage_differs")
        and rank.wait_class is WaitClass.PARKED
        and rank.progress_age_seconds is not None
        and rank.stage in OUTSIDE
        and rank.stage not in innocent
    ):
        return "left_loop_early"
    return evidence
