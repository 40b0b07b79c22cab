"""A case: the facts of one job at some moments as JSON, with the answer and perhaps the truth.

`stagewatch inspect --json`, the judge and HangBench write cases; `stagewatch explain` and the tests
judge them again.  So the case of a wrong verdict that a user sends becomes a test.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import IO, Annotated, Any

from stagewatch.core.errors import SourceError
from stagewatch.core.state_file import BROKEN, decode, flag, hints_of, parse, real, text, whole
from stagewatch.core.words import printable
from stagewatch.judgement import hardware
from stagewatch.judgement.facts import BLANK, RankFacts
from stagewatch.judgement.hardware import Proposal
from stagewatch.judgement.limits import DEFAULT, Limits, Shown
from stagewatch.judgement.memory import Course, Moment, State
from stagewatch.ranks.stacks import Stack

VERSION = 1
MAX_BYTES = 64 << 20
"""The largest file, unpacked."""
MAX_MOMENTS, MAX_RANKS = 4096, 131_072
LEVELS = ("must", "may", "must not")


def _level(value: Any) -> str:
    if value not in LEVELS:
        raise ValueError(f"{value!r:.40} is none of {', '.join(LEVELS)}")
    return str(value)


def _number(value: Any) -> int:
    """The number of a rank or, if negative, of a server."""
    return -whole(-value) if type(value) is int and value < 0 else whole(value)


Level = Annotated[str, _level]
Member = tuple[str, int, str]
"""Role, rank and node."""
Expected = tuple[str, Annotated[int, _number], str]
"""A `Member`, or a server with a negative number."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What was wrong with a played job, and which answers of the judge are right."""

    title: str
    collection: str
    """The collection of shapes that it belongs to."""
    kind: str
    healthy: bool
    processes: tuple[Member, ...]
    """All processes of the job, by number."""
    expected: tuple[frozenset[Expected], ...]
    """The right sets of culprits; the empty set stands for nobody."""
    suspicion: Level
    """Whether the job must be suspected."""
    page: Level
    """Whether the job must page."""
    evidence: frozenset[str]
    """The right words of evidence; if empty, any is right."""
    trigger: float
    """When the fault began, Unix seconds."""
    end: float
    """When the job had been watched for long enough, Unix seconds."""
    blind_spot: str = ""
    """Why nothing can show the fault, if so."""
    unsound: str = ""
    """How the job behaved otherwise than planned, if so."""
    servers: tuple[int, ...] = ()
    """The pids of its processes that are not ranks; in `expected` their numbers are -2, -3, ..."""


@dataclass(frozen=True, slots=True)
class CaseFile:
    """One job at some moments, in order of time."""

    cluster: str
    job_id: str
    moments: Sequence[Moment]
    limits: Limits = DEFAULT
    truth: Truth | None = None
    proposals: tuple[Proposal, ...] = ()
    """Proposals to take nodes out whose hardware is faulty."""

    def states(self) -> list[State]:
        """The judge's answer at the last moment."""
        course = Course(self.limits)
        states: list[State] = []
        for moment in self.moments:
            states = course.look(moment)
        return states


def as_json(case: CaseFile, states: Iterable[State] = ()) -> dict[str, Any]:
    """The case as JSON, with these states as the answer."""
    return {
        "version": VERSION,
        "cluster": case.cluster,
        "job_id": case.job_id,
        "limits": _limits_json(case.limits),
        "moments": [_moment_json(moment) for moment in case.moments],
        "answer": [answer(state) for state in states],
        **({"truth": _truth_json(case.truth)} if case.truth else {}),
        **({"proposals": list(map(asdict, case.proposals))} if case.proposals else {}),
    }


def answer(state: State) -> dict[str, Any]:
    """The judge's answer for one role, as JSON."""
    verdict = state.verdict
    return {
        "role": verdict.role,
        "stalled": verdict.stalled,
        "evidence": verdict.evidence,
        "excuse": verdict.excuse.kind if verdict.excuse else None,
        "paged": state.paged,
        "suspected_since": state.since,
        "silent_seconds": state.silent_seconds,
        "patience_seconds": state.patience_seconds,
        "culprits": [
            {
                "rank": charge.rank.rank,
                "node": charge.rank.node,
                "pid": charge.rank.pid,
                "evidence": charge.evidence,
                "confidence": charge.confidence,
                "group": charge.group,
                "op": charge.op,
            }
            for charge in verdict.charges
        ],
    }


def read(file: Path) -> CaseFile:
    """The only case in a file, packed by gzip or not.  Raises `SourceError` with what is wrong."""
    cases = read_any(str(file))
    if len(cases) != 1:
        raise SourceError(f"{file} holds {len(cases)} cases")
    return cases[0]


def read_all(stream: IO[bytes], source: str) -> list[CaseFile]:
    """The cases in a stream: a list as `stagewatch inspect --json` writes it, or a single case.

    Raises `SourceError` with what is wrong, and `OSError` if the stream cannot be read.
    """
    content = stream.read(MAX_BYTES + 1)
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{source} is damaged: {error}") from error
    if len(content) > MAX_BYTES:
        raise SourceError(f"{source} is larger than {MAX_BYTES >> 20} MiB")
    try:
        found = parse(content)
        several = isinstance(found, dict) and isinstance(found.get("cases"), list)
        return [_case(one) for one in (found["cases"] if several else [found])]
    except BROKEN as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else f"{error}"
        raise SourceError(f"{source} is no case: {printable(what, 200)}") from error


def read_any(file: str) -> list[CaseFile]:
    """The cases in a file, or on standard input for `-`.  Raises `SourceError`."""
    if file == "-":
        return read_all(sys.stdin.buffer, "standard input")
    try:
        with Path(file).open("rb") as stream:
            return read_all(stream, file)
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror}") from error


def packed(content: Mapping[str, Any]) -> bytes:
    """A case as the bytes of a packed file; equal cases give equal bytes."""
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)


# ---- From JSON ----------------------------------------------------------------------------------


def _case(content: Any) -> CaseFile:
    """A case from its JSON.  Raises one of `BROKEN`."""
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']!r:.20} is not {VERSION}")
    job_id = text(content["job_id"])
    moments = tuple(_read_moment(job_id, one) for one in content["moments"][:MAX_MOMENTS])
    if sum(len(moment.ranks) for moment in moments) > MAX_RANKS * 8:
        raise ValueError("it has too many ranks")
    limits = {name: real(value) for name, value in content.get("limits", {}).items()}
    known = {name: limits[name] for name in asdict(DEFAULT) if name in limits}
    truth_json = content.get("truth")
    truth = None if truth_json is None else _read_truth(truth_json)
    cluster = text(content["cluster"])
    proposals = tuple(map(hardware.read, content.get("proposals", [])[: hardware.MOST]))
    return CaseFile(cluster, job_id, moments, replace(DEFAULT, **known), truth, proposals)


def _truth_json(truth: Truth) -> dict[str, Any]:
    return asdict(truth) | {
        "expected": [sorted(members) for members in truth.expected],
        "evidence": sorted(truth.evidence),
    }


def _read_truth(content: Any) -> Truth:
    """The truth from its JSON.  Raises one of `BROKEN`, with the key that is wrong."""
    read = {}
    content = {"servers": []} | dict(content)
    for name, kind in hints_of(Truth).items():
        try:
            read[name] = decode(kind, content[name])
        except BROKEN as error:
            raise ValueError(f"its truth has no {name} that can be used: {error}") from error
    return Truth(**read)


def _read_moment(job_id: str, content: Any) -> Moment:
    shown = decode(dict[str, dict[str, Shown]], content["shown"])
    ranks = tuple(_read_rank(job_id, one) for one in content["ranks"][:MAX_RANKS])
    return Moment(real(content["time"]), ranks, shown)


def _limits_json(limits: Limits) -> dict[str, float]:
    """The limits that differ from the default."""
    usual = asdict(DEFAULT)
    return {name: value for name in usual if (value := getattr(limits, name)) != usual[name]}


def _moment_json(moment: Moment) -> dict[str, Any]:
    return {
        "time": round(moment.time, 3),
        "shown": {
            role: {
                stage: [one.gaps, one.p99_seconds, one.longest_seconds, one.recent_seconds]
                for stage, one in stages.items()
            }
            for role, stages in moment.shown.items()
        },
        "ranks": [_rank_json(rank) for rank in moment.ranks],
    }


def _rank_json(rank: RankFacts) -> dict[str, Any]:
    """The known facts of a rank."""
    known = {}
    for field in fields(RankFacts):
        value = getattr(rank, field.name)
        if field.name == "job_id" or value == getattr(BLANK, field.name):
            continue
        known[field.name] = _plain(field.name, value)
    return known


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, frozenset):
        return sorted(value)
    if name in ("kernel_waits", "nccl"):
        return [list(astuple(one)) for one in value]
    if isinstance(value, Stack):
        return [value.group, value.still, value.frame, value.call, value.whom]
    if name == "inside":
        return {
            group: [call.op, round(call.seconds, 3), call.peer, call.elements]
            for group, call in value.items()
        }
    return dict(value) if isinstance(value, Mapping) else value


def _read_rank(job_id: str, content: Any) -> RankFacts:
    kinds = hints_of(RankFacts)
    known: dict[str, Any] = {
        name: _read_stack(value) if name == "stack" else decode(kinds[name], value)
        for name, value in content.items()
        if name in kinds
    }
    return replace(BLANK, **(known | {"job_id": job_id}))


def _read_stack(value: Any) -> Stack:
    group, still, frame, *rest = value
    call, whom = map(text, rest or ("", ""))  # older files have none
    return Stack(text(group), flag(still), text(frame), call=call, whom=whom)
