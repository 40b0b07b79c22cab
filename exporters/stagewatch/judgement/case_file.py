"""A case: the facts of one job at some moments as JSON, with the answer and perhaps the truth.

`stagewatch inspect --json`, the judge and HangBench write them; `stagewatch explain` and the tests
judge them again.  A wrong verdict that a user sends is a file that becomes a test.
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
"""Of a file, unpacked."""
MAX_MOMENTS, MAX_RANKS = 4096, 131_072
LEVELS = ("must", "may", "must not")


def _level(value: Any) -> str:
    if value not in LEVELS:
        raise ValueError(f"{value!r:.40} is none of {', '.join(LEVELS)}")
    return str(value)


def _number(value: Any) -> int:
    """That of a rank or, below zero, of a server that is none."""
    return -whole(-value) if type(value) is int and value < 0 else whole(value)


Level = Annotated[str, _level]
Member = tuple[str, int, str]
"""Role, rank and node."""
Expected = tuple[str, Annotated[int, _number], str]
"""The same, or, with a number below zero, a server."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What was the matter with a job that somebody has played, and how it is to be judged."""

    title: str
    collection: str
    """Of shapes, that it is from."""
    kind: str
    healthy: bool
    processes: tuple[Member, ...]
    """All of the job, by number."""
    expected: tuple[frozenset[Expected], ...]
    """Each of these sets is right to be named; the empty one stands for nobody."""
    suspicion: Level
    page: Level
    """Whether to suspect the job and to wake somebody: one of the levels."""
    evidence: frozenset[str]
    """Words of which the evidence must have one; empty: any will do."""
    trigger: float
    end: float
    """When the fault began, and when the job had been watched for long enough: Unix seconds."""
    blind_spot: str = ""
    """Why nobody can see the fault, if so."""
    unsound: str = ""
    """What the job did instead of what it was to do, if so."""
    servers: tuple[int, ...] = ()
    """The pids of its processes that are no ranks, which `expected` numbers from -2 down."""


@dataclass(frozen=True, slots=True)
class CaseFile:
    """One job at some moments, in order of time."""

    cluster: str
    job_id: str
    moments: Sequence[Moment]
    limits: Limits = DEFAULT
    truth: Truth | None = None
    proposals: tuple[Proposal, ...] = ()
    """To take nodes out, where hardware bears witness."""

    def states(self) -> list[State]:
        """What the judge says at the last moment."""
        course = Course(self.limits)
        states: list[State] = []
        for moment in self.moments:
            states = course.look(moment)
        return states


def as_json(case: CaseFile, states: Iterable[State] = ()) -> dict[str, Any]:
    """The case, with the answer of these states."""
    return {
        "version": VERSION,
        "cluster": case.cluster,
        "job_id": case.job_id,
        "limits": _limits(case.limits),
        "moments": [_moment(moment) for moment in case.moments],
        "answer": [answer(state) for state in states],
        **({"truth": _told(case.truth)} if case.truth else {}),
        **({"proposals": list(map(asdict, case.proposals))} if case.proposals else {}),
    }


def answer(state: State) -> dict[str, Any]:
    """What the judge says of a role."""
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
    """The case in a file, packed by gzip or not.  Raises `SourceError` with what is wrong."""
    cases = read_any(str(file))
    if len(cases) != 1:
        raise SourceError(f"{file} holds {len(cases)} cases")
    return cases[0]


def read_all(stream: IO[bytes], source: str) -> list[CaseFile]:
    """The cases that `stagewatch inspect --json` has written, or one of anybody else.

    Raises `SourceError` with what is wrong, and `OSError` where the stream cannot be read.
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
    """A case as the bytes of a packed file: the same for the same case."""
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)


# ---- Out of JSON --------------------------------------------------------------------------------


def _case(content: Any) -> CaseFile:
    """Raises one of `BROKEN`."""
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']!r:.20} is not {VERSION}")
    job_id = text(content["job_id"])
    moments = tuple(_read_moment(job_id, one) for one in content["moments"][:MAX_MOMENTS])
    if sum(len(moment.ranks) for moment in moments) > MAX_RANKS * 8:
        raise ValueError("it has too many ranks")
    limits = {name: real(value) for name, value in content.get("limits", {}).items()}
    known = {name: limits[name] for name in asdict(DEFAULT) if name in limits}
    told = content.get("truth")
    truth = None if told is None else _read_truth(told)
    cluster = text(content["cluster"])
    proposals = tuple(map(hardware.read, content.get("proposals", [])[: hardware.MOST]))
    return CaseFile(cluster, job_id, moments, replace(DEFAULT, **known), truth, proposals)


def _told(truth: Truth) -> dict[str, Any]:
    return asdict(truth) | {
        "expected": [sorted(members) for members in truth.expected],
        "evidence": sorted(truth.evidence),
    }


def _read_truth(content: Any) -> Truth:
    """Raises one of `BROKEN`, with the key that is wrong."""
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


def _limits(limits: Limits) -> dict[str, float]:
    """Those that the site has changed."""
    usual = asdict(DEFAULT)
    return {name: value for name in usual if (value := getattr(limits, name)) != usual[name]}


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "time": round(moment.time, 3),
        "shown": {
            role: {
                stage: [one.gaps, one.p99_seconds, one.longest_seconds, one.recent_seconds]
                for stage, one in stages.items()
            }
            for role, stages in moment.shown.items()
        },
        "ranks": [_rank(rank) for rank in moment.ranks],
    }


def _rank(rank: RankFacts) -> dict[str, Any]:
    """What is known of a rank, but for what is not."""
    told = {}
    for field in fields(RankFacts):
        value = getattr(rank, field.name)
        if field.name == "job_id" or value == getattr(BLANK, field.name):
            continue
        told[field.name] = _plain(field.name, value)
    return told


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
