"""What each kind of evidence is worth: recorded shapes are judged again without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from stagewatch.judgement import judge
from stagewatch.judgement.case import Case, Charge
from stagewatch.judgement.case_file import CaseFile
from stagewatch.judgement.facts import NO_STACK, RankFacts
from tests.hangbench.recorded import replay
from tests.hangbench.score import INNOCENT, PAGED, RIGHT, Outcome

READ_BEFORE = "open"
"""The set that somebody had read when it was first played."""
EVIDENCE = (
    *("process_gone", "node_lost", "missing", "left_loop_early", "awaited", "mismatch", "livelock"),
    *("io_blocked", "odd_one_out", "stage_differs", "stack_differs", "role_differs"),
    *("alone", "device_idle", "device_lost", "not_started"),
)
"""That of `stage_behind` goes with its fact."""
FACTS: Mapping[str, Callable[[RankFacts], RankFacts]] = {
    "stack": lambda rank: replace(rank, stack=NO_STACK),
    "behind": lambda rank: replace(rank, behind=False),
    "at_work": lambda rank: replace(rank, at_work=False),
    "device": lambda rank: replace(rank, device=None),
    "step_age_seconds": lambda rank: replace(rank, step_age_seconds=None),
    "storage_wait_seconds": lambda rank: replace(rank, storage_wait_seconds=0.0),
    "group_sizes": lambda rank: replace(rank, group_sizes={}),
    "elements": lambda rank: replace(
        rank, inside={name: replace(one, elements=None) for name, one in rank.inside.items()}
    ),
}
HEAD = """\
| without | answers gained | answers lost | innocents gained | innocents lost | by collection |
| --- | --- | --- | --- | --- | --- |"""


def ablate(cases: Sequence[CaseFile]) -> str:
    """A table: what changes without each kind of evidence, and without each fact."""
    folders = {case.job_id: case.truth.collection for case in cases if case.truth}
    whole = replay(cases)
    rows = [HEAD]
    for evidence in EVIDENCE:
        with _without(evidence):
            rows.append(_row(evidence, whole, replay(cases), folders))
    for name, blank in FACTS.items():
        rows.append(_row(f"the fact {name}", whole, replay(_blanked(cases, blank)), folders))
    return "\n".join(rows)


def _row(
    name: str, before: Sequence[Outcome], after: Sequence[Outcome], folders: Mapping[str, str]
) -> str:
    changes: dict[str, list[str]] = {"+": [], "-": [], "innocents +": [], "innocents -": []}
    for old, new in zip(before, after, strict=True):
        if old.counts and _right(old) != _right(new):
            changes["+" if _right(new) else "-"].append(old.name)
        if old.counts and _accuses(old) != _accuses(new):
            changes["innocents +" if _accuses(new) else "innocents -"].append(old.name)
    cells = [f"{len(names)}{_few(names)}" for names in changes.values()]
    sets = []
    for folder in sorted({folders[one] for names in changes.values() for one in names}):
        read = " (read)" if folder == READ_BEFORE else ""
        counts = {sign: sum(folders[one] == folder for one in n) for sign, n in changes.items()}
        sets.append(folder + read + "".join(f" {sign}{n}" for sign, n in counts.items() if n))
    return f"| {name} | " + " | ".join([*cells, ", ".join(sets)]) + " |"


def _few(names: Sequence[str]) -> str:
    return f": {', '.join(sorted(names)[:4])}{' …' if len(names) > 4 else ''}" if names else ""


def _right(one: Outcome) -> bool:
    return one.answer != PAGED if one.healthy else one.answer == RIGHT


def _accuses(one: Outcome) -> bool:
    return bool(one.named_ever) if one.healthy else one.answer == INNOCENT


def _blanked(
    cases: Sequence[CaseFile], blank: Callable[[RankFacts], RankFacts]
) -> Iterator[CaseFile]:
    for case in cases:
        moments = [replace(one, ranks=tuple(map(blank, one.ranks))) for one in case.moments]
        yield replace(case, moments=moments)


@contextmanager
def _without(evidence: str) -> Iterator[None]:
    """No rank is charged with this, before it is settled whose charges count."""
    accuse, absent = judge.accuse, judge._absent_roles
    at_fault, alone = judge._Job._roles_at_fault, judge._Job._charge_only_live_rank

    def kept(case: Case) -> Case:
        charges = tuple(one for one in case.charges if one.evidence != evidence)
        if len(charges) == len(case.charges):
            return case
        return replace(case, charges=charges, unnamed="" if charges else "group_only")

    def absent_roles(cases: Mapping[str, Case]) -> dict[str, Case]:
        return {role: kept(case) for role, case in absent(cases).items()}

    def roles_at_fault(job: Any) -> dict[str, tuple[Charge, ...]]:
        found = at_fault(job)
        return {role: some for role, some in found.items() if some[0].evidence != evidence}

    with (
        mock.patch.object(judge, "accuse", lambda *given: kept(accuse(*given))),
        mock.patch.object(judge, "_absent_roles", absent_roles),
        mock.patch.object(judge._Job, "_roles_at_fault", roles_at_fault),
        mock.patch.object(
            judge._Job, "_charge_only_live_rank", lambda job: evidence == "alone" or alone(job)
        ),
    ):
        yield
