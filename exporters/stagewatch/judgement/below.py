"""Who waits for whom below the program: what NCCL shows of the members of each communicator.

All of them may be inside of a collective, as their programs tell, while one has not launched it,
the GPU of one has not begun it, or one sends no bytes.  The earliest one that is open counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stagewatch.judgement.facts import RankFacts
from stagewatch.ranks.nccl.layout import CREDIT, LAUNCHED, NETWORK, RECEIVE, Communicator

NOT_LAUNCHED, NOT_BEGUN, NO_BYTES = "not_launched", "not_begun", "no_bytes"
"""Evidence: what those that are waited for have not done."""

Member = tuple[int, Communicator]
"""The place of its rank, and what it has open."""
Members = Mapping[int, Member]
"""By number in the communicator."""


@dataclass(frozen=True, slots=True)
class Below:
    """Some members of a communicator that wait in a collective for others of them."""

    waiters: frozenset[int]
    targets: frozenset[int]
    """Places, as those of the waiters."""
    evidence: str
    group: str
    op: str
    sequence: int
    lacks: str = ""
    """What does not come of the targets: `bytes`, or a `buffer` for what is sent to them."""
    over: str = ""
    """The network device, where only one can be meant."""


@dataclass(slots=True)
class Shown:
    """What all communicators show of some ranks, by place."""

    waits: list[Below] = field(default_factory=list)
    at_fault: dict[int, Below] = field(default_factory=dict)
    """Who is waited for and waits for nobody in that communicator."""
    unlike: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Who has launched another operation or size than most, with group and operation of these."""
    differ: bool = False
    """Whether members have, and no side is the majority."""


def below(live: Sequence[RankFacts]) -> Shown:
    """What NCCL shows of these ranks."""
    shown = Shown()
    for members in _communicators(live):
        _look(members, live, shown)
    return shown


def _communicators(live: Sequence[RankFacts]) -> Iterator[Members]:
    """Those in which a collective is open, but for those of which two ranks say the same member."""
    found: defaultdict[tuple[str, int], list[tuple[int, Member]]] = defaultdict(list)
    for place, rank in enumerate(live):
        for one in rank.nccl:
            found[one.id, one.members].append((one.member, (place, one)))
    for _, those in sorted(found.items()):
        members = dict(those)
        if len(members) == len(those) and any(map(_stands_in, members.values())):
            yield members


def _stands_in(member: Member) -> bool:
    return member[1].open and member[1].collective


def _look(members: Members, live: Sequence[RankFacts], shown: Shown) -> None:
    """The first of these that tells anything: not launched, another operation, not begun, no bytes.

    Only who sees all members can tell that one has done less than the others.
    """
    sequence = min(one.sequence for _, one in filter(_stands_in, members.values()))
    here = {
        number: member
        for number, member in members.items()
        if _stands_in(member) and member[1].sequence == sequence
    }
    size = next(iter(members.values()))[1].members
    whole = len(members) == size
    late = {n: m for n, m in members.items() if n not in here and m[1].sequence < sequence}
    waiting = {n: m for n, m in here.items() if m[1].state == LAUNCHED}
    if late:
        _blame(shown, _wait(here, late, NOT_LAUNCHED)) if whole else None
    elif whole and _differing(here, shown):
        return
    elif waiting:
        begun = {n: m for n, m in here.items() if n not in waiting}
        _blame(shown, _wait(begun, waiting, NOT_BEGUN)) if whole and begun else None
    else:
        _transfers(here, shown, live, whole=whole)


def _places(members: Iterable[Member]) -> frozenset[int]:
    return frozenset(place for place, _ in members)


def _blame(shown: Shown, wait: Below) -> None:
    """Note that these wait for those, which wait for nobody."""
    shown.waits.append(wait)
    for place in wait.targets:
        shown.at_fault.setdefault(place, wait)


def _wait(
    waiters: Members, targets: Members, evidence: str, lacks: str = "", over: str = ""
) -> Below:
    one = next(iter(waiters.values()))[1]
    places = _places(waiters.values()), _places(targets.values())
    return Below(*places, evidence, one.name or one.id[:8], one.op, one.sequence, lacks, over)


def _differing(here: Members, shown: Shown) -> bool:
    """Whether they have launched different operations, or sizes that must be equal."""
    does = {place: (one.op, one.size) for place, one in here.values()}
    (usual, count), *others = Counter(does.values()).most_common()
    if not others:
        return False
    one = next(one for _, one in here.values() if (one.op, one.size) == usual)
    if 2 * count > len(does):
        where = one.name or one.id[:8], one.op
        shown.unlike |= {place: where for place, what in does.items() if what != usual}
    else:
        shown.differ = True
    return True


def _transfers(here: Members, shown: Shown, live: Sequence[RankFacts], *, whole: bool) -> None:
    """Whose bytes do not come: the network has them and does not bring them, or its GPU waits for
    no peer, and sends nothing."""
    awaited = {
        number: {one.peer for one in mine.transfers if one.waits != NETWORK and one.peer in here}
        for number, (_, mine) in here.items()
    }
    lost = [
        (receiver, sender)
        for receiver, (_, mine) in here.items()
        for sender in {one.peer for one in mine.transfers if one.waits == RECEIVE} & here.keys()
        if any(t.waits == NETWORK and t.peer == receiver for t in here[sender][1].transfers)
    ]
    senders, receivers = {sender for _, sender in lost}, {receiver for receiver, _ in lost}
    roots = senders
    if len(senders) > 1 and len(receivers) == 1:
        roots = receivers  # it gets nothing from anybody
    if not lost and whole:
        free = {peer for peers in awaited.values() for peer in peers if not awaited[peer]}
        roots = free if 2 * len(free) <= len(here) else set()
    for root in sorted(roots):
        others = {n: here[n] for n, peers in awaited.items() if root in peers and n not in roots}
        of_root = [t for _, one in others.values() for t in one.transfers if t.peer == root]
        devices = {one.network for one in of_root}
        over = devices.pop() if len(devices) == 1 else ""
        waiters = others or {n: m for n, m in here.items() if n != root}
        lacks = "buffer" if of_root and all(t.waits == CREDIT for t in of_root) else "bytes"
        _blame(shown, _wait(waiters, {root: here[root]}, NO_BYTES, lacks, over))
    told = {place for wait in shown.waits for place in wait.waiters} | shown.at_fault.keys()
    for number, member in here.items() if roots else ():
        if member[0] not in told:
            peers = {n: here[n] for n in awaited[number] or roots}
            shown.waits.append(_wait({number: member}, peers, NO_BYTES, "bytes"))


def said(wait: Below, live: Sequence[RankFacts]) -> str:
    """What they wait in, for whom, as people say it where one is at fault: `all_reduce 7 of world,
    where rank 3's proxy waits for its bytes over mlx5_2`."""
    if wait.evidence != NO_BYTES:
        return f"{wait.op} {wait.sequence}"
    ranks = sorted(live[place].rank for place in wait.waiters)
    whose = f"rank {ranks[0]}'s proxy waits" if len(ranks) == 1 else f"{len(ranks)} proxies wait"
    over = f" over {wait.over}" if wait.over else ""
    what = "a buffer of it" if wait.lacks == "buffer" else "its bytes"
    return f"{wait.op} {wait.sequence} ({whose} for {what}{over})"
