"""What a day's GPUs did, counted without stagewatch: from Slurm's accounting and ranks' logs.

Open `Run.pieces` first: it divides an allocation into GPUs and states.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

from stagewatch_lab.slurm.cluster import SlurmCluster

OVERDUE_SECONDS = 10.0
"""A known stage without progress for so long is a stall (limit `taught` of the judge)."""
PRODUCTIVE = frozenset(("rollout", "train", "eval"))
TOGETHER_SECONDS = 0.5
"""Changes of several ranks within this are one transition."""
EPSILON = 1e-6
"""GPUs, which is what rounding leaves of none."""
FAILED = ("NODE_FAIL", "REQUEUED")
"""How a run ends whose work since its last checkpoint is lost."""

Row = tuple[str, str]
"""A job, empty outside of jobs, and a state."""
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Piece:
    """GPUs in one state from `start` to `end`, Unix seconds."""

    start: float
    end: float
    row: Row
    gpus: float


@dataclass(frozen=True, slots=True)
class Rank:
    """What one rank's log tells: its node, and its states, one after the other."""

    node: str
    states: tuple[tuple[float, float, str], ...]

    def at(self, when: float) -> str | None:
        """Its state; None before its first line and after its last."""
        place = bisect.bisect_right(self.states, when, key=lambda state: state[0]) - 1
        return self.states[place][2] if place >= 0 and when < self.states[-1][1] else None

    @property
    def saved(self) -> float:
        """When its last whole checkpoint was done; 0: never."""
        ends = [end for _, end, state in self.states[:-1] if state == "checkpoint"]
        return max(ends, default=0.0)


@dataclass(frozen=True, slots=True)
class Run:
    """One allocation of a job, as accounting tells it."""

    job: str
    start: float
    end: float
    state: str
    nodes: tuple[str, ...]
    gpus: int
    ranks: tuple[Rank, ...]

    def pieces(self, silent: Mapping[str, Sequence[Span]]) -> Iterator[Piece]:
        """Its GPUs by state.  `silent` has when the agents of nodes did not answer."""
        moments = {self.start, self.end}
        for rank in self.ranks:
            moments |= {moment for state in rank.states for moment in state[:2]}
        for node in self.nodes:
            moments |= {moment for span in silent.get(node, ()) for moment in span}
        inside = sorted(moment for moment in moments if self.start <= moment <= self.end)
        seen = False
        for start, end in pairwise(inside):
            middle = (start + end) / 2
            answering = [
                node
                for node in self.nodes
                if not any(begin <= middle < until for begin, until in silent.get(node, ()))
            ]
            states = [
                state
                for rank in self.ranks
                if rank.node in answering and (state := rank.at(middle)) is not None
            ]
            observed = self.gpus * len(answering) / len(self.nodes)
            seen = seen or bool(states)
            for state in states or ["cleanup" if seen else "waiting"]:
                gpus = observed / max(1, len(states))
                yield Piece(start, end, (self.job, state), gpus)
            yield Piece(start, end, (self.job, "unobserved"), self.gpus - observed)


@dataclass
class Count:
    """GPU-seconds and transitions by job and state."""

    pieces: list[Piece] = field(default_factory=list)

    def seconds(self, observed: Iterable[Span]) -> dict[Row, float]:
        """GPU-seconds of each row within some spans of time."""
        sums: defaultdict[Row, float] = defaultdict(float)
        for begin, until in observed:
            for piece in self.pieces:
                inside = min(until, piece.end) - max(begin, piece.start)
                if inside > 0:
                    sums[piece.row] += inside * piece.gpus
        return dict(sums)

    def transitions(self) -> dict[Row, float]:
        """GPUs that enter or leave each row, each time counted."""
        changes: defaultdict[Row, list[tuple[float, float]]] = defaultdict(list)
        for piece in self.pieces:
            changes[piece.row] += ((piece.start, piece.gpus), (piece.end, -piece.gpus))
        return {row: _variation(sorted(these)) for row, these in changes.items()}


def _variation(changes: Sequence[tuple[float, float]]) -> float:
    """The sum of all rises and falls.

    Those that follow each other closely are one, unless they leave nothing of each other.
    """
    at_once: defaultdict[float, float] = defaultdict(float)
    for when, change in changes:
        at_once[when] += change
    together: list[list[float]] = []
    since = float("-inf")
    for when, change in at_once.items():
        if when - since > TOGETHER_SECONDS:
            together.append([])
            since = when
        together[-1].append(change)
    return sum(
        abs(sum(group)) if abs(sum(group)) > EPSILON else sum(map(abs, group)) for group in together
    )


def read_rank(log: Path) -> Rank:
    """A rank's log as states; of a still one, the first seconds are those of its stage."""
    lines = [line.split() for line in log.read_text().splitlines()]
    marks = [(float(line[0]), line[1]) for line in lines if len(line) == 2]
    begins = [next(marks_of)[0] for _, marks_of in groupby(marks, key=lambda mark: mark[1])]
    names = [state for state, _ in groupby(marks, key=lambda mark: mark[1])]
    ends = [*begins[1:], marks[-1][0]] if marks else []
    states = []
    for begin, end, name in zip(begins, ends, names, strict=True):
        if name == "still":
            overdue = min(end, begin + OVERDUE_SECONDS)
            states += [(begin, overdue, "train"), (overdue, end, "stalled")]
        else:
            states.append((begin, end, name))
    return Rank(log.stem.split("-")[2], tuple(states))


def read_runs(slurm: SlurmCluster, jobs: Path) -> list[Run]:
    """All runs that accounting has, those without an end left out."""
    table = slurm.run(
        *("sacct", "-a", "-X", "-D", "-n", "-P", "--starttime=now-1hours"),
        "--format=JobIDRaw,Start,End,State,NodeList,AllocTRES",
        env={"SLURM_TIME_FORMAT": "%s"},
    )
    rows = [row.split("|") for row in table.splitlines()]
    begun = sorted((row for row in rows if row[1].isdecimal()), key=lambda row: int(row[1]))
    runs: list[Run] = []
    for job, start, end, state, nodes, resources in begun:
        earlier = sum(run.job == job for run in runs)
        logs = sorted((jobs / job).glob(f"{earlier}-*.log"))
        gpus = dict(each.split("=") for each in resources.split(",") if each).get("gres/gpu", "0")
        names = tuple(slurm.run("scontrol", "show", "hostnames", nodes).split())
        ranks = tuple(rank for log in logs if (rank := read_rank(log)).states)
        runs.append(
            Run(job, int(start), int(end), state.split()[0], names, int(gpus), ranks)
            if end.isdecimal()
            else Run(job, int(start), float("inf"), "RUNNING", names, int(gpus), ranks)
        )
    return runs


def read_absences(slurm: SlurmCluster) -> dict[str, list[tuple[float, float, str]]]:
    """When nodes were down, by accounting's events; an open one has no end.

    A drain is an event only once the last job has left the node.
    """
    table = slurm.run(
        *("sacctmgr", "-n", "-P", "list", "event", "Start=now-1hours"),
        "Format=NodeName,TimeStart,TimeEnd,State",
        env={"SLURM_TIME_FORMAT": "%s"},
    )
    found: defaultdict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for row in table.splitlines():
        node, start, end, state = row.split("|")
        if node and state.startswith("DOWN"):
            until = float(end) if end.isdecimal() and int(end) else float("inf")
            found[node].append((float(start), until, "down"))
    return found


def outside(
    runs: Sequence[Run],
    nodes: Mapping[str, int],
    absences: Mapping[str, Sequence[tuple[float, float, str]]],
    day: Span,
) -> Iterator[Piece]:
    """GPUs that no run has, by why.  `nodes` tells how many GPUs each has."""
    for node, gpus in nodes.items():
        mine = [run for run in runs if node in run.nodes]
        away = absences.get(node, ())
        moments = {*day, *(moment for each in away for moment in each[:2])}
        moments |= {moment for run in mine for moment in (run.start, run.end)}
        for start, end in pairwise(
            sorted(moment for moment in moments if day[0] <= moment <= day[1])
        ):
            middle = (start + end) / 2
            states = {kind for begin, until, kind in away if begin <= middle < until}
            held = sum(run.gpus / len(run.nodes) for run in mine if run.start <= middle < run.end)
            state = next(
                (each for each in ("down", "drained", "reserved") if each in states), "free"
            )
            yield Piece(start, end, ("", state), gpus - held)


def lost(run: Run, pieces: Iterable[Piece]) -> list[Piece]:
    """The productive pieces of a run since its last checkpoint, if it ended by failure."""
    if run.state not in FAILED:
        return []
    saved = max((rank.saved for rank in run.ranks), default=0.0)
    return [
        Piece(max(piece.start, saved), piece.end, (run.job, "lost"), piece.gpus)
        for piece in pieces
        if piece.row[1] in PRODUCTIVE and piece.end > saved
    ]
