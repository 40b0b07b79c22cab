"""Judges a job from facts about its ranks: has it hung or stopped, and which rank is at fault?

It decides for each role which ranks would be at fault, then whether the role is stalled, then whose
evidence counts; if no evidence is good enough, it names nobody.  The facts are those of one node or
of a whole job; `Past` has what earlier looks have shown of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from stagewatch.judgement.case import Case, Charge
from stagewatch.judgement.circles import late_in_circle, server_of_all, waits_without_servers
from stagewatch.judgement.facts import ANYBODY, RankFacts
from stagewatch.judgement.fault import accuse
from stagewatch.judgement.limits import (
    ABSENT_SECONDS,
    ASKING_SECONDS,
    DEFAULT,
    DYING_SECONDS,
    EARLY_SECONDS,
    LEFT_BEFORE_SECONDS,
    LONG_STAGES,
    MIN_SECONDS,
    SETTLE_SECONDS,
    WORKING_SECONDS,
    Limits,
)
from stagewatch.judgement.roles import Beside, beside
from stagewatch.ranks.wait_class import WaitClass

Ranks = Sequence[RankFacts]


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why a role that looks stalled is not."""

    kind: str
    """`debugger`, `expected`, `computing`, `long_stage`, `other_role`, `suspended` or `idle`."""
    rank: RankFacts | None = None
    """The rank that is the reason, if it is a single one."""


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier looks have shown of a job."""

    stalled: frozenset[str] = frozenset()
    """The roles that were stalled at the last look."""
    suspended: frozenset[str] = frozenset()
    """The roles whose ranks were all stopped a moment ago."""
    asking: bool = False
    """Whether agents ask the kernel about a suspected job, so that more evidence will come."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one role of a job, as far as the facts show."""

    job_id: str
    role: str
    stalled: bool
    """Whether no rank makes progress any more."""
    evidence: str
    """The evidence of the first charge.  Without a charge, a word of `Case.unnamed`; `process_gone`
    if no rank lives; `raised` if the role has stopped since an exception; empty if nothing is wrong
    or the facts do not suffice."""
    charges: tuple[Charge, ...]
    case: Case
    ranks: tuple[RankFacts, ...]
    """All ranks of the role, also those that are gone or have left."""
    excuse: Excuse | None = None
    of_several: bool = False
    """Whether the job has other roles."""
    early: bool = False
    """Whether it is too early to page, since the job may still go on by itself; see `paging`."""

    @property
    def culprits(self) -> tuple[RankFacts, ...]:
        """The ranks at fault."""
        return tuple(charge.rank for charge in self.charges)

    @property
    def in_doubt(self) -> bool:
        """Whether only the kernel can tell if the ranks hang: several ranks without records have
        long stood still, all have been idle for longer than before, or all that have made marks are
        overdue and others have made none."""
        live = self.case.live
        marked = [rank for rank in live if rank.progress_age_seconds is not None]
        if not all(rank.overdue for rank in marked):
            return False
        idles = self.excuse is not None and self.excuse.kind == "idle"
        alone = self.case.bare and not self.of_several and len(live) > 1
        some = 0 < len(marked) < len(live) and self.excuse is None
        return alone or some or (idles and bool(live) and _late(live) > EARLY_SECONDS)

    @property
    def wrong(self) -> bool:
        """Whether somebody should act."""
        return bool(self.evidence)


NO_PAST: Mapping[str, Past] = MappingProxyType({})
"""By job."""


def judge(
    ranks: Ranks, past: Mapping[str, Past] = NO_PAST, limits: Limits = DEFAULT
) -> list[Verdict]:
    """A verdict for each role of each job."""
    jobs: dict[str, dict[str, list[RankFacts]]] = {}
    for rank in sorted(ranks, key=lambda rank: (rank.job_id, rank.role)):
        jobs.setdefault(rank.job_id, {}).setdefault(rank.role, []).append(rank)
    return [
        verdict
        for job_id, roles in jobs.items()
        for verdict in _Job(roles, past.get(job_id, Past()), limits).verdicts()
    ]


@dataclass(slots=True)
class _Job:
    """One job, by role."""

    roles: dict[str, list[RankFacts]]
    past: Past
    limits: Limits
    cases: dict[str, Case] = field(init=False)
    excuses: dict[str, Excuse | None] = field(init=False)
    stuck: dict[str, bool] = field(init=False)
    as_a_whole: set[str] = field(default_factory=set, init=False)
    """Roles that are charged although they are not stalled."""

    def __post_init__(self) -> None:
        shared = beside(self.roles)
        self.cases = {role: accuse(ranks, shared[role]) for role, ranks in self.roles.items()}
        self.excuses = {role: self._excuse(role) for role in self.roles}
        self.stuck = {role: self._stalled(role) for role in self.roles}
        if any(self.stuck.values()):
            self.cases |= _absent_roles(self.cases)
        self._settle(shared)

    def verdicts(self) -> list[Verdict]:
        """One verdict for each role that has ranks or charges."""
        return [
            self._verdict(role)
            for role, case in self.cases.items()
            if case.live or case.gone or case.charges
        ]

    # ---- Is a role stalled? ---------------------------------------------------------------------

    def _stalled(self, role: str) -> bool:
        """Whether every live rank is overdue, or makes marks although it holds others up or waits,
        and the role has no excuse."""
        case = self.cases[role]
        still = case.holding | case.marks_in_vain
        return (
            bool(case.live)
            and all(rank.overdue or at in still for at, rank in enumerate(case.live))
            and not any(rank.expected_seconds for rank in case.live)
            and self.excuses[role] is None
        )

    def _excuse(self, role: str) -> Excuse | None:
        """Why the role is not stalled although it looks so; `None` if there is no reason."""
        case = self.cases[role]
        mine = self._debugged_or_paused(role) or self._at_work(case) or _in_long_stage(case.live)
        if mine or not case.live:
            return mine
        if role in self.past.suspended or all(
            rank.wait_class is WaitClass.STOPPED for rank in case.live
        ):
            return Excuse("suspended")
        lost = any(other.gone or other.lost_with_node for other in self.cases.values())
        if (_idles(case) and not (lost or self._awaits_stuck(case))) or case.may_idle:
            return Excuse("idle")
        return self._may_await_other_role(role)

    def _awaits_stuck(self, case: Case) -> bool:
        """Whether the kernel shows that ranks wait, directly or through others, for a rank that
        cannot go on by itself, or for a process that is no rank of the job."""
        live = {
            (role, rank.rank): rank for role, other in self.cases.items() for rank in other.live
        }
        seen, todo = set[tuple[str, int | None]](), list(case.live)
        while todo:
            waits = todo.pop().kernel_waits
            if any(wait.process not in ("", ANYBODY) for wait in waits):
                return True
            awaited = {(wait.role, wait.rank) for wait in waits} - seen
            seen |= awaited
            here = [live[one] for one in awaited if one in live]
            if any(rank.stands_alone for rank in here):
                return True
            todo += here
        return False

    def _debugged_or_paused(self, role: str) -> Excuse | None:
        """The excuse of a debugger that came before the suspicion, or of an announced pause."""
        for rank in self.cases[role].live:
            if rank.wait_class is WaitClass.TRACED and role not in self.past.stalled:
                return Excuse("debugger", rank)
            if rank.expected_seconds:
                return Excuse("expected", rank)
        return None

    def _at_work(self, case: Case) -> Excuse | None:
        usual = self.limits.young_seconds if case.young else WORKING_SECONDS
        for rank in case.workers:
            seconds = self.limits.eval_seconds if rank.computes else usual
            if rank.late_seconds is not None and rank.late_seconds < seconds:
                return Excuse("computing", rank)
        return None

    def _may_await_other_role(self, role: str) -> Excuse | None:
        """The excuse that another role is in a long stage or has announced a pause.

        It still counts for a moment after the budget of the long stage, unless this role is in
        one itself."""
        live = [
            rank
            for other, ranks in self.roles.items()
            if other != role
            for rank in ranks
            if rank.wait_class is not WaitClass.GONE
        ]
        long = _in_long_stage(live)
        announced = next((rank for rank in live if rank.expected_seconds), None)
        if long or announced:
            return Excuse("other_role", announced or (long.rank if long else None))
        lingers = next((rank for rank in live if self._lingers(rank)), None)
        if lingers and not any(map(self._lingers, self.cases[role].live)):
            return Excuse("other_role", lingers)
        return None

    def _lingers(self, rank: RankFacts) -> bool:
        """Whether the rank has exceeded the budget of a long stage only a moment ago."""
        late = rank.late_seconds
        return rank.stage in LONG_STAGES and late is not None and late < self.limits.still_seconds

    # ---- Whose evidence counts? -----------------------------------------------------------------

    def _settle(self, shared: Mapping[str, Beside]) -> None:
        """Drop charges of a role if another role shows stronger evidence, and charge a role as a
        whole if only that explains all waits."""
        self._charge_awaited_roles(shared)
        counts = {
            role
            for role, case in self.cases.items()
            if case.charges
            and (self.stuck[role] or role in self.as_a_whole or case.gone_is_fault or not case.live)
        }
        gives_way = self._give_way(counts)
        others_ask = any(one.awaited for one in shared.values())
        for role, case in self.cases.items():
            nobody = not case.charges and case.unnamed != "outsider"
            if others_ask and self.stuck[role] and nobody:
                gives_way.add(role)
        at_fault = {} if counts - gives_way or self._just_left() else self._roles_at_fault()
        for role, case in self.cases.items():
            if role in at_fault:
                self.cases[role] = replace(case, charges=at_fault[role], unnamed="")
                self.as_a_whole.add(role)
            elif role in gives_way or (self.stuck[role] and at_fault):
                self.cases[role] = replace(case, charges=(), unnamed="other_role")
            elif asked := self._postponed_charges(role):
                rest = tuple(charge for charge in case.charges if charge not in asked)
                unnamed = "" if rest else "asking"
                self.cases[role] = replace(case, charges=rest, unnamed=unnamed)
        if self._dying():
            self.cases = {r: replace(case, charges=()) for r, case in self.cases.items()}
        self._charge_left_behind()
        self._charge_only_live_rank()
        self._charge_who_waits_for_nobody()
        if not self._blame_server(shared):
            self._close_circle(shared)
            self._blame_outsiders(shared)

    def _charge_awaited_roles(self, shared: Mapping[str, Beside]) -> None:
        """Let charges count in roles that are not stalled: against ranks that other roles visibly
        wait for, directly or through others, and against ranks that never started."""
        for role, case in self.cases.items():
            asked = case.waited_for(shared[role].by_kernel) if role in shared else set()
            absent = case.lacks_starters
            if (asked or absent) and not self.stuck[role] and any(self.stuck.values()):
                mine = tuple(
                    one
                    for one in case.charges  # of a dead rank the kernel shows no descriptors
                    if absent or one.rank.rank in asked or one.rank in case.gone
                )
                self.cases[role] = replace(case, charges=mine)
                self.as_a_whole |= {role} if mine else set()

    def _dying(self) -> bool:
        """Whether a rank has died just now, so that others may be about to die."""
        return any(
            rank.dead_seconds is not None and rank.dead_seconds < DYING_SECONDS
            for ranks in self.roles.values()
            for rank in ranks
        )

    def _charge_left_behind(self) -> None:
        """If nobody is charged, charge ranks that their peers have left behind in a stage: other
        roles may wait for their work."""
        if not any(self.stuck.values()) or any(case.charges for case in self.cases.values()):
            return
        for role, case in self.cases.items():
            stages = {rank.stage for rank in case.live}
            if self._kernel_unheard(role) or len(stages) == 1:  # nobody has left the stage
                continue
            behind = tuple(
                Charge(rank, "stage_behind")
                for at, rank in enumerate(case.live)
                if rank.behind and at not in case.waiting
            )
            if behind:
                self.cases[role] = replace(case, charges=behind)
                self.as_a_whole.add(role)

    def _charge_only_live_rank(self) -> None:
        """Charge the only live rank of the job, since nobody else can hold it up.

        If it waits for ranks that left, it is charged only if it may have left the collective too,
        because the end of that is not recorded."""
        live = [(role, rank) for role, case in self.cases.items() for rank in case.live]
        if len(live) != 1 or not self.stuck[live[0][0]] or self._just_left():
            return
        role, rank = live[0]
        case = self.cases[role]
        lasts = case.unnamed == "missing" and case.sees_all and len(case.absent_long) > 1
        lasts = lasts and all(call.op == "unknown" for call in rank.inside.values())
        held_up_by_none = not case.charges and (case.unnamed == "group_only" or lasts)
        unknown = case.gone or case.lacks_unknown or self._kernel_unheard(role)
        if held_up_by_none and not unknown:
            self.cases[role] = replace(case, charges=(Charge(rank, "alone"),))

    def _charge_who_waits_for_nobody(self) -> None:
        """If nobody is charged, charge the few ranks that cannot go on by themselves, as the kernel
        shows, if all other ranks of the job wait."""
        ranks = [
            (role, rank, at in case.waiting)
            for role, case in self.cases.items()
            for at, rank in enumerate(case.live)
        ]
        ends = [(role, rank) for role, rank, waits in ranks if rank.stands_alone and not waits]
        all_wait = all(waits or rank.stands_alone for _, rank, waits in ranks)
        charged = any(case.charges or case.gone for case in self.cases.values())
        if charged or self._just_left() or not all_wait or not 0 < 2 * len(ends) < len(ranks):
            return
        for role in {role for role, _ in ends} if any(self.stuck.values()) else ():
            charges = tuple(Charge(rank, "stands_alone") for one, rank in ends if one == role)
            self.cases[role] = replace(self.cases[role], charges=charges, unnamed="")
            self.as_a_whole.add(role)

    def _blame_server(self, shared: Mapping[str, Beside]) -> bool:
        """Let the stalled roles wait for a process (`outsider`) if all waits may lead to it alone;
        returns whether there is one."""
        if any(case.charges for case in self.cases.values()):
            return False
        silence = self._silence()
        silent = {
            role: case
            for role, case in self.cases.items()
            if case.live
            and (all(rank.overdue for rank in case.live) or case.steps_in_place(silence))
        }
        server = server_of_all(silent, shared)
        asks = {
            role: tuple(wait for wait in case.outside if wait.through == server)
            for role, case in silent.items()
        }
        stuck = {role for role in asks if server and self.stuck[role]}
        if not any(asks[role] for role in stuck):  # they wait for roles that keep asking it
            asks |= dict.fromkeys(stuck, tuple(wait for waits in asks.values() for wait in waits))
        for role in stuck:
            case, mine = self.cases[role], asks[role]
            unnamed = "outsider" if mine else "other_role"
            self.cases[role] = replace(case, unnamed=unnamed, outside=mine or case.outside)
        return bool(server)

    def _close_circle(self, shared: Mapping[str, Beside]) -> None:
        """If nobody is charged and roles wait for each other in a circle, charge the ranks that
        have not entered the collective of their peers.

        Their peers wait for just these ranks, while other waits are through queues that anybody may
        fill."""
        cases = self.cases.values()
        if self._just_left() or any(one.charges or (one.left and not one.live) for one in cases):
            return  # the others may wait for ranks that left
        for role, charges in late_in_circle(self.cases, shared).items():
            if self.stuck[role]:
                self.cases[role] = replace(self.cases[role], charges=charges, unnamed="")

    def _blame_outsiders(self, shared: Mapping[str, Beside]) -> None:
        """Decide which roles wait for a process that is not a rank (`outsider`), and which for
        another role.

        A process is blamed only if nobody is charged, nobody is absent (the process may wait for
        the absent rank), and the process does not go on, so that it is more than a queue.
        """
        charged = any(case.charges for case in self.cases.values())
        chosen: set[str] = set()
        firm = {role for role, case in self.cases.items() if case.firm_outside}
        if self._just_left() or any(case.lacks_somebody for case in self.cases.values()):
            spared = set(self.cases)
        elif charged:
            spared = self.cases.keys() - firm
        else:
            firm |= self._pass_on_outsiders(firm)
            chosen = {role for role in firm if self.stuck[role]}
            several = chosen or len(self.cases) > 1
            asks = any(case.unnamed == "outsider" for case in self.cases.values())
            elsewhere = several or (asks and waits_without_servers(self.cases, shared))
            spared = self.cases.keys() - chosen if elsewhere else set()
        for role, case in self.cases.items():
            if role in chosen:
                self.cases[role] = replace(case, unnamed="outsider", outside=case.firm_outside)
            elif role in spared and case.unnamed == "outsider":
                unnamed = "other_role" if len(self.cases) > 1 else "group_only"
                self.cases[role] = replace(case, unnamed=unnamed)

    def _pass_on_outsiders(self, firm: Set[str]) -> set[str]:
        """Let roles wait for a process if they wait for a role that makes no step because it waits
        for that process.  Returns these roles.

        `firm`: the roles that wait for a process that does not go on."""
        silence = self._silence()
        found: set[str] = set()
        for role, case in self.cases.items() if firm else ():
            asked = {wait.role for wait in case.outside} & firm if self.stuck[role] else set()
            beyond = tuple(
                wait
                for other in sorted(asked)
                if not self.stuck[other] and self.cases[other].steps_in_place(silence)
                for wait in self.cases[other].firm_outside
            )
            if beyond:
                self.cases[role] = replace(case, outside=beyond)
                found.add(role)
        return found

    def _give_way(self, counts: set[str]) -> set[str]:
        """The roles whose evidence is weaker than that of another role.

        `counts`: the roles whose charges count.
        """
        sure = any(self.cases[role].sure for role in counts)
        weak = {
            role
            for role, case in self.cases.items()
            if self.stuck[role]
            and case.charges
            and not case.sure
            and (sure or self._too_early(role))
        }
        give = weak | self._roles_that_wait() | self._beside_calls() | self._beside_the_dead(counts)
        rest = counts - give
        unsure = {
            role
            for role in rest
            if self.cases[role].awaits_role or self._awaited_through_only(role)
        }
        return give | (unsure if len(rest) > 1 else set())

    def _beside_the_dead(self, counts: set[str]) -> set[str]:
        """The roles charged only with being awaited, beside a role that needs a dead rank: the
        death explains more."""
        if not any(self.cases[role].gone_is_fault for role in counts):
            return set()
        return {
            role
            for role in counts
            if all(
                charge.evidence == "awaited" and not charge.stopped
                for charge in self.cases[role].charges
            )
        }

    def _awaited_through_only(self, role: str) -> bool:
        """Whether all charges of the role are against ranks awaited through a process."""
        return all(charge.evidence == "awaited_through" for charge in self.cases[role].charges)

    def _postponed_charges(self, role: str) -> list[Charge]:
        """Charges against ranks that may themselves wait, as the kernel may still show."""
        if not self._kernel_may_answer(role):
            return []
        charges = self.cases[role].charges
        early = ("awaited", "waits_unlike")
        return [one for one in charges if one.evidence in early and not one.rank.kernel_waits]

    def _kernel_may_answer(self, role: str) -> bool:
        """Whether the role is stalled and the kernel's answer about it may still come."""
        return self.past.asking and self.stuck[role] and self._late(role) < ASKING_SECONDS

    def _kernel_unheard(self, role: str) -> bool:
        """Whether the role is stalled and the kernel has shown nothing of it yet."""
        live = self.cases[role].live
        heard = any(rank.kernel_waits for rank in live)
        early = self._late(role) < EARLY_SECONDS
        return self.past.asking and self.stuck[role] and not heard and early

    def _too_early(self, role: str) -> bool:
        """Whether it is too early to judge the role, since another may still show better
        evidence, or the kernel has not answered about all."""
        early = len(self.roles) > 1 and self._late(role) < EARLY_SECONDS
        return (early and not self._all_heard()) or self._just_left()

    def _all_heard(self) -> bool:
        """Whether the kernel has answered about all live ranks of the stalled roles."""
        stalled = (case for role, case in self.cases.items() if self.stuck[role])
        return all(rank.kernel_waits for case in stalled for rank in case.live)

    def _late(self, role: str) -> float:
        """Seconds since the last overdue rank of the role became overdue; for a role without marks,
        the same of the stalled roles."""
        mine = _late(self.cases[role].live)
        others = (_late(self.cases[one].live) for one in self.roles if self.stuck[one])
        return mine or max(others, default=0.0)

    def _roles_that_wait(self) -> set[str]:
        """The stalled roles whose charged ranks may all wait for another role, if there is a role
        that may hold them up."""
        silence = self._silence()
        holds_others = any(
            case.stands_in_loop or case.charged_in_loop or (case.firm_outside and not case.charges)
            if self.stuck[role]
            else case.steps_in_place(silence) or case.never_marked
            for role, case in self.cases.items()
        )
        unlike = any(case.waits_unlike and self.stuck[role] for role, case in self.cases.items())
        return {
            role
            for role, case in self.cases.items()
            if self.stuck[role]
            and ((holds_others and case.awaits_role) or (unlike and case.waits_alike))
        }

    def _beside_calls(self) -> set[str]:
        """The roles in which no rank stands out, beside a role whose ranks are all in calls of
        tools."""
        calls = any(
            case.unnamed == "call" and self.stuck[role] for role, case in self.cases.items()
        )
        return {r for r, case in self.cases.items() if calls and case.unnamed == "group_only"}

    def _silence(self) -> float:
        """Seconds since the last progress of any stalled role."""
        ages = (_silence(self.cases[role].live) for role in self.roles if self.stuck[role])
        return min(ages, default=0.0)

    def _just_left(self) -> bool:
        """Whether a rank left the job so lately that others may not wait for it yet."""
        return any(
            rank.left_seconds is not None and rank.left_seconds <= ABSENT_SECONDS
            for ranks in self.roles.values()
            for rank in ranks
        )

    def _roles_at_fault(self) -> dict[str, tuple[Charge, ...]]:
        """The charges against a role as a whole, while all other roles wait or are between two
        stages.

        It is the only role that stands as a whole in a stage or makes marks without steps; without
        one, the ranks that left.  Empty if another role may be at fault."""
        live = {role: case for role, case in self.cases.items() if case.live}
        silence, stuck = self._silence(), self.stuck
        chosen = {
            role: "role_differs" for role in live if stuck[role] and live[role].stands_as_a_whole
        }
        chosen |= {r: "livelock" for r in live if not stuck[r] and live[r].retries(silence)}
        others = [role for role in live if role not in chosen]
        if len(chosen) > 1 or self._doubtful(live) or not all(map(self._only_waits, others)):
            return {}
        absent = {role: case for role, case in self.cases.items() if case.left or not case.live}
        for role, evidence in chosen.items():
            charges = tuple(Charge(rank, evidence) for rank in live[role].live)
            return {role: charges} if others and not absent else {}
        return _charge_departed(absent, silence + LEFT_BEFORE_SECONDS)

    def _doubtful(self, live: Mapping[str, Case]) -> bool:
        """Whether no role is stalled, one was stalled only lately, or ranks are dead or unseen."""
        early = any(self.stuck[role] and self._late(role) < EARLY_SECONDS for role in live)
        lost = any(case.unseen or case.gone for case in live.values())
        return early or lost or not any(self.stuck.values())

    def _only_waits(self, role: str) -> bool:
        case = self.cases[role]
        if self.stuck[role]:
            return case.only_waits
        excuse = self.excuses[role]
        idles = bool(case.live) and all(rank.overdue for rank in case.live)
        rests = idles and excuse is not None and excuse.kind == "idle"
        return rests and replace(case, charges=()).only_waits

    # ---- The verdict ----------------------------------------------------------------------------

    def _verdict(self, role: str) -> Verdict:
        case, stuck, ranks = self.cases[role], self.stuck[role], self.roles[role]
        evidence = case.charges[0].evidence if case.charges else ""
        if not case.live:
            evidence = evidence if evidence in ("missing", "node_lost") else "process_gone"
        elif stuck and not evidence:
            evidence = case.unnamed
        elif not (stuck or evidence == "process_gone" or role in self.as_a_whole):
            evidence = self._raised(role)
        charged = evidence and evidence != "raised"
        return Verdict(
            job_id=ranks[0].job_id,
            role=role,
            stalled=stuck,
            evidence=evidence,
            charges=case.charges if charged else (),
            case=case,
            ranks=tuple(ranks),
            excuse=self.excuses[role],
            of_several=len(self.roles) > 1,
        )

    def _raised(self, role: str) -> str:
        """`raised` if the role has stopped since an exception, else empty."""
        live, excuse = self.cases[role].live, self.excuses[role]
        stopped = failed(live) and silent(live) and (excuse is None or excuse.kind == "idle")
        return "raised" if stopped else ""


def _absent_roles(cases: Mapping[str, Case]) -> dict[str, Case]:
    """The cases of roles without a live rank, for which other roles may wait.

    Ranks that left are charged.  If no rank of the job is charged with absence, ranks that died are
    charged instead, provided that others miss members or may wait for a role unseen."""
    absent = {role: case for role, case in cases.items() if not case.live}
    missed = any(case.misses for case in cases.values())
    found = {role: _whoever_left(case, missed=_misses_here(cases)) for role, case in absent.items()}
    if all(case.awaits_role or not case.charges for case in cases.values()):
        missed |= any(case.may_wait_unseen for case in cases.values())
    if missed and not any(case.lacks_somebody for case in (*cases.values(), *found.values())):
        for role, case in absent.items():
            died = tuple(Charge(rank, "process_gone") for rank in case.gone)
            found[role] = replace(case, charges=died)
    return found


def _misses_here(cases: Mapping[str, Case]) -> bool:
    """Whether a role whose ranks were all seen waits for members that do not live there."""
    return any(case.misses and case.sees_all for case in cases.values())


def _whoever_left(case: Case, *, missed: bool) -> Case:
    """The case of a role without a live rank, with charges against ranks that left."""
    if lost := case.lost_with_node:
        return replace(case, charges=tuple(Charge(rank, "node_lost") for rank in lost))
    if not missed:
        return case
    long = case.absent_long if case.sees_all else ()
    return replace(case, charges=tuple(Charge(rank, "missing") for rank in long))


def _charge_departed(absent: Mapping[str, Case], seconds: float) -> dict[str, tuple[Charge, ...]]:
    """The charges against ranks that left at most `seconds` ago.

    Each role has left as a whole, or its live ranks wait for those that left."""
    if any(
        case.charges or case.gone or not case.sees_all or (case.live and not case.awaits_absent)
        for case in absent.values()
    ):
        return {}
    return {
        role: tuple(Charge(rank, "missing") for rank in left)
        for role, case in absent.items()
        if (left := [rank for rank in case.absent_long if (rank.left_seconds or 0.0) <= seconds])
    }


def _in_long_stage(live: Ranks) -> Excuse | None:
    """The excuse of a rank that is within its budget in a stage that is long by nature."""
    for rank in live:
        within = rank.progress_age_seconds is not None and not rank.overdue
        if rank.stage in LONG_STAGES and within:
            return Excuse("long_stage", rank)
    return None


def _idles(case: Case) -> bool:
    """Whether all ranks are asleep outside of every stage and collective, as between two jobs.

    Ranks that count steps without ever opening a stage are always outside, so they do not count.
    Nor do ranks that lack others of their world."""
    counts_steps = any(rank.step_age_seconds is not None for rank in case.live)
    lacks = case.gone_is_fault or case.lacks_starters
    if lacks or (counts_steps and not case.staged):
        return False
    classes = {rank.wait_class for rank in case.live}
    asleep = WaitClass.PARKED in classes and classes <= {WaitClass.PARKED, WaitClass.UNKNOWN}
    return asleep and all(rank.stage == "idle" and not rank.inside for rank in case.live)


def _late(live: Ranks) -> float:
    """Seconds since the last of the overdue ranks became overdue; 0 if none is."""
    return min((rank.late_seconds for rank in live if rank.late_seconds is not None), default=0.0)


def _silence(live: Ranks) -> float:
    """Seconds since the last progress of any overdue rank; 0 if none is overdue."""
    return min((rank.progress_age_seconds or 0.0 for rank in live if rank.overdue), default=0.0)


def failed(ranks: Ranks) -> bool:
    """Whether no rank has completed anything since the last exception that one raised."""
    raised = [rank.first_failure_age_seconds for rank in ranks]
    last = min((seconds for seconds in raised if seconds is not None), default=None)
    moved = [rank.progress_age_seconds for rank in ranks]
    since = min((seconds for seconds in moved if seconds is not None), default=None)
    return last is not None and since is not None and since >= last - SETTLE_SECONDS


def silent(live: Ranks) -> bool:
    """Whether every rank is overdue or has been idle for longer than between two steps."""
    return bool(live) and all(
        rank.overdue or (rank.stage == "idle" and (rank.progress_age_seconds or 0.0) >= MIN_SECONDS)
        for rank in live
    )
