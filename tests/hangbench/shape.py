"""Shapes of jobs: what their files say, and whether they say it properly."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tests.hangbench.throttles  # noqa: F401  # its actions, too
from stagewatch.ranks.environment_scan import MAX_TEXT
from stagewatch.stages import STAGES
from tests.hangbench.actions import ACTIONS
from tests.hangbench.device import DEVICES, IDLE
from tests.hangbench.queues import VIAS
from tests.hangbench.server import FAULTS as SERVER_FAULTS

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

SHAPES = Path(__file__).with_name("shapes")
SLOW_SET = "slow"
"""The set about slow ranks; all others are about hangs."""
DIRECTORY, SHAPE, BARE = "HANGBENCH_DIRECTORY", "HANGBENCH_SHAPE", "HANGBENCH_BARE"
"""Variables that programs get: the directory of the job, the file of the shape, and whether they
are to do without the client."""
PROGRAMS = Path(__file__).with_name("programs")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SLOW_FAULTS = _words("work quota nice memory storage network loader")
SLOW_HEALTHY = _words("noise collection batches logging pipeline experts warmup")
COURSES = _words("permanent start intermittent rotating")
FAULTS = _words("init collective compute io process pipeline lock livelock straggler end node bare")
HEALTHY = _words("pause eval checkpoint compile data elastic suspend end service variance")
_NESTED = ("entries", "otherwise")
"""Arguments that are entries in turn."""
CONDITIONS = _words("do ranks at every from until stage substage trigger device")
HEAD = _words(
    "set first_played title source taken kind healthy seed backend report wait via poll_seconds "
    "world nodes jitter steps watch cores blind_spot groups role server absent init step beside "
    "final expect slow program arguments needs"
)
FIRST_THREAD = _words("collective wait send recv ddp init_group reform finish")
"""Actions of the first thread of a rank alone."""
LEVELS = ("must", "may", "must not")
WORLD = "world"
MAX_WORLD = 16
MAX_GROUPS, MAX_QUEUES = 16, 32
MAX_WATCH = 270.0
MAX_BARE_WATCH = 420.0
"""Of a job without the client nothing but its stillness tells, which takes minutes to be odd."""
MAX_SLOW_WATCH = 600.0


class ShapeError(Exception):
    """A file that is not a shape; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Entry:
    """One line of the programme: an action, when and where it applies, and in which stage."""

    do: str
    arguments: Mapping[str, Any]
    ranks: frozenset[int] | None = None
    at: int = 0
    every: int = 0
    first: int = 0
    last: int = 0
    stage: str = ""
    substage: str = ""
    trigger: bool = False
    device: str = ""
    """What the GPU does meanwhile, one of `DEVICES`; empty: what is usual of the action."""

    def applies(self, rank: int, step: int) -> bool:
        """Whether this rank carries it out in this step."""
        return (
            (self.ranks is None or rank in self.ranks)
            and (not self.at or step == self.at)
            and (not self.every or (step > 0 and step % self.every == 0))
            and (not self.first or step >= self.first)
            and (not self.last or step <= self.last)
        )


def flat(entries: Iterable[Entry]) -> Iterator[Entry]:
    """These entries, and those within them."""
    for entry in entries:
        yield entry
        for key in _NESTED:
            yield from flat(entry.arguments.get(key, ()))


@dataclass(frozen=True)
class QueueOf:
    """A queue of a job."""

    index: int
    via: str
    depth: int
    users: frozenset[int]
    """Processes that put or get."""


@dataclass(frozen=True)
class Server:
    """A process that is no rank, and answers them."""

    name: str
    seconds: float = 0.1
    """What an answer takes."""
    calls: str = ""
    """Another server, which it asks before each answer."""
    node: int = 0
    program: str = ""
    """A script of `programs` that is this server; empty: HangBench's own."""
    child: bool = False
    """Whether a rank starts it, and tells its pid."""


@dataclass(frozen=True)
class Expectation:
    """The right answer."""

    sets: tuple[frozenset[int], ...]
    """Each of them is right; the empty one stands for nobody. Servers have negative numbers."""
    evidence: tuple[str, ...]
    suspicion: str
    page: str
    node: int = -1
    """Index of the node that is at fault as a whole; -1: none is."""
    rotates: str = "may"
    """Whether it is to be told that another rank is slow each step: one of the levels."""


@dataclass(frozen=True)
class Slow:
    """How slow the slow ones of a shape are, by which results are grouped."""

    stage: float
    """Seconds that a healthy rank works in a step, or in the stage that is slow."""
    factor: float = 1.0
    """How many times as long a slow one takes; 1 in healthy shapes."""
    course: str = "permanent"
    share: float = 1.0
    """Of the excess, how much shows in a step of average length: less than 1 where only some steps
    or stages are slow."""
    peers: tuple[int, ...] = ()
    """Processes whose work is the same as that of the slow ones; empty: all."""


@dataclass(frozen=True)
class Shape:
    """What a file says."""

    name: str
    file: Path
    title: str
    source: str
    taken: str
    kind: str
    world: int
    expect: Expectation
    init: tuple[Entry, ...]
    step: tuple[Entry, ...]
    final: tuple[Entry, ...]
    beside: tuple[Entry, ...] = ()
    """What a second thread plays over and over."""
    program: str = ""
    """A script of `programs` that each rank runs instead."""
    arguments: tuple[str, ...] = ()
    """Of the script."""
    needs: tuple[str, ...] = ()
    """Packages that the script imports, besides those of the tests."""
    absent: frozenset[int] = frozenset()
    """Processes that are never launched."""
    healthy: bool = False
    seed: int = 0
    backend: str = "client"
    report: str = ""
    wait: str = "block"
    via: str = ""
    """What queues go over that do not say it themselves; empty: see `queues`."""
    poll_seconds: float = 0.001
    nodes: int = 1
    jitter: float = 0.1
    steps: int = 0
    watch: float = 0.0
    cores: float = 0.0
    blind_spot: str = ""
    groups: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    roles: tuple[tuple[str, tuple[int, ...]], ...] = ()
    servers: tuple[Server, ...] = ()
    set_name: str = ""
    """Which shapes were written and first played together."""
    slow: Slow | None = None
    """In shapes about slow ranks, which are played by `make bench ARGS=slow`."""

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The whole programme."""
        return tuple(flat(self.init + self.step + self.final + self.beside))

    @cached_property
    def queues(self) -> dict[str, QueueOf]:
        """Its queues by name.  One that does not say what it goes over is a pipe where all its
        users are on one node, and else reached over TCP."""
        found = {}
        entries = [entry for entry in self.entries if entry.do in ("put", "get")]
        for index, name in enumerate(sorted({entry.arguments["queue"] for entry in entries})):
            uses = [entry for entry in entries if entry.arguments["queue"] == name]
            everybody = frozenset(range(MAX_WORLD))
            users = frozenset[int]().union(
                *(everybody if entry.ranks is None else entry.ranks for entry in uses)
            )
            vias = {entry.arguments.get("via", "") for entry in uses} - {""}
            depths = {entry.arguments.get("depth", 2) for entry in uses if entry.do == "put"}
            if len(vias) > 1 or len(depths) > 1:
                raise ValueError(f"all who use queue {name} say the same via and depth")
            nodes = {self.node_of(rank) for rank in users if rank < self.world}
            usual = self.via or ("pipe" if len(nodes) <= 1 else "tcp")
            via = vias.pop() if vias else usual
            found[name] = QueueOf(index, via, depths.pop() if depths else 1, users)
        return found

    def uses(self, *names: str) -> bool:
        """Whether any of these actions is in the programme."""
        return any(entry.do in names for entry in self.entries)

    @property
    def goes_on(self) -> bool:
        """Whether its steps go on after the trigger, if more slowly."""
        return self.healthy or self.slow is not None or self.kind == "straggler"

    @property
    def disturbs(self) -> bool:
        """Whether it meddles with agents, so that it needs some of its own."""
        return self.uses("restart_agent", "kill_node")

    @property
    def mounts(self) -> bool:
        """Whether it needs a file system in user space."""
        return any(entry.arguments.get("on") == "fuse" for entry in self.entries)

    def node_of(self, rank: int) -> int:
        """Index of the node of a process of the first world."""
        return min(rank * self.nodes // self.world, self.nodes - 1)

    def role_of(self, rank: int, world: int) -> tuple[str, int, int]:
        """Role of a process, its rank in it, and the size of the role."""
        for name, ranks in self.roles:
            if rank in ranks:
                there = [one for one in ranks if one < world]
                return name, there.index(rank), len(there)
        return "train", rank, world

    def group_of(self, name: str, rank: int, world: int) -> tuple[str, tuple[int, ...]]:
        """Label and members of this process's group of that name.

        Raises `KeyError` where it is in none.
        """
        if name == WORLD:
            members = range(world)
            for _, ranks in self.roles:
                if rank in ranks:
                    members = ranks
            return WORLD, tuple(one for one in members if one < world)
        for index, ranks in enumerate(self.groups[name]):
            if rank in ranks:
                return f"{name}:{index}", tuple(one for one in ranks if one < world)
        raise KeyError(f"process {rank} is in no group {name}")


def server_number(index: int) -> int:
    """What stands for the server with this index where processes are numbered; -1 is a stranger."""
    return -2 - index


def load(file: Path) -> Shape:
    """The shape in a file.  Raises `ShapeError`."""
    try:
        return _Reader(file).read()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ShapeError(f"{file}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ShapeError(f"{file}: {type(error).__name__}: {error}") from error


def find(which: str, only: tuple[str, ...] = ()) -> list[Shape]:
    """The shapes of one set, or `all` about hangs, by name; only those whose name contains a word.

    Raises `ShapeError` if a file is wrong or there is no such set.
    """
    every = [load(file) for file in sorted(SHAPES.glob("*.toml"))]
    sets = {shape.set_name for shape in every}
    if which not in {"all", *sets}:
        raise ShapeError(f"no set {which!r}; there are {', '.join(sorted(sets))}")
    chosen = sets - {SLOW_SET} if which == "all" else {which}
    return [
        shape
        for shape in every
        if shape.set_name in chosen and (not only or any(word in shape.name for word in only))
    ]


def find_programs(only: tuple[str, ...] = ()) -> list[Shape]:
    """The programs that are no programmes of HangBench's own, by name."""
    files = sorted(PROGRAMS.glob("*.toml"))
    return [load(file) for file in files if not only or any(word in file.stem for word in only)]


def bare(shape: Shape) -> Shape:
    """The same job without the client, on one node, as long as its stillness takes to be odd."""
    watch = shape.watch if shape.healthy else MAX_BARE_WATCH
    needs = (*(["torch"] if shape.backend == "torch" else []), *shape.needs)
    return replace(shape, backend="bare", nodes=1, watch=watch, needs=needs)


class _Reader:
    """Turns the tables of one file into a shape."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._table: dict[str, Any] = tomllib.loads(file.read_text())

    def read(self) -> Shape:
        table = self._table
        if unknown := set(table) - HEAD:
            raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
        self._choice("backend", ("client", "torch", "bare"))
        self._choice("report", ("with", "call"))
        self._choice("wait", ("block", "spin", "poll"))
        self._choice("via", tuple(sorted(VIAS)))
        seed, healthy = table.get("seed", 0), table.get("healthy", False)
        shape = Shape(
            name=self._file.stem,
            file=self._file.absolute(),
            title=table["title"],
            source=table["source"],
            taken=table["taken"],
            kind=table["kind"],
            world=table["world"],
            healthy=healthy,
            seed=seed,
            backend=table.get("backend", "client"),
            report=table.get("report", "call" if seed % 2 else "with"),
            wait=table.get("wait", "block"),
            via=table.get("via", ""),
            poll_seconds=table.get("poll_seconds", 0.001),
            nodes=table.get("nodes", 1),
            jitter=table.get("jitter", 0.1),
            steps=table.get("steps", 0),
            watch=table.get("watch", self._watch(healthy)),
            cores=self._cores(),
            blind_spot=table.get("blind_spot", ""),
            groups={
                name: tuple(map(tuple, lists)) for name, lists in table.get("groups", {}).items()
            },
            roles=tuple((role["name"], tuple(role["ranks"])) for role in table.get("role", ())),
            init=self._entries("init"),
            step=self._entries("step"),
            final=self._entries("final"),
            beside=self._entries("beside"),
            program=table.get("program", ""),
            arguments=tuple(table.get("arguments", ())),
            needs=tuple(table.get("needs", ())),
            absent=frozenset(table.get("absent", ())),
            expect=self._expectation(healthy),
            servers=self._servers(),
            set_name=table.get("set", ""),
            slow=self._slow(),
        )
        self._check(shape)
        return shape

    def _watch(self, healthy: bool) -> float:
        if "slow" in self._table:
            return MAX_SLOW_WATCH
        if self._table.get("backend") == "bare" and not healthy:
            return MAX_BARE_WATCH
        return 90.0 if healthy else 120.0

    def _slow(self) -> Slow | None:
        if "slow" not in self._table:
            return None
        table = dict(self._table["slow"])
        slow = Slow(**table | {"peers": tuple(table.get("peers", ()))})
        if slow.course not in COURSES:
            raise ValueError(f"slow: course is one of {', '.join(sorted(COURSES))}")
        return slow

    def _servers(self) -> tuple[Server, ...]:
        return tuple(Server(**table) for table in self._table.get("server", ()))

    def _numbers(self, processes: list[int | str]) -> frozenset[int]:
        """Numbers of processes, of which some may be servers by their names."""
        names = [server.name for server in self._servers()]
        return frozenset(
            server_number(names.index(one)) if isinstance(one, str) else one for one in processes
        )

    def _cores(self) -> float:
        dear = {"spin": 0.3, "torch": 0.2}
        each = max(dear.get(self._table.get(key, ""), 0.05) for key in ("wait", "backend"))
        return float(self._table.get("cores", each * self._table["world"]))

    def _choice(self, key: str, choices: tuple[str, ...]) -> None:
        if key in self._table and self._table[key] not in choices:
            raise ValueError(f"{key} is one of {', '.join(choices)}")

    def _entries(self, section: str) -> tuple[Entry, ...]:
        return tuple(
            self._entry(f"{section} {number}", table)
            for number, table in enumerate(self._table.get(section, ()), 1)
        )

    def _entry(self, where: str, table: dict[str, Any]) -> Entry:
        do = table["do"]
        if do not in ACTIONS:
            raise ValueError(f"{where}: no action {do!r}")
        arguments = {key: value for key, value in table.items() if key not in CONDITIONS}
        inherited = {"ranks": table["ranks"]} if "ranks" in table else {}
        for key in _NESTED:
            if isinstance(arguments.get(key), list):
                arguments[key] = tuple(
                    self._entry(f"{where}, {key} {number}", inherited | nested)
                    for number, nested in enumerate(arguments[key], 1)
                )
        try:
            inspect.signature(ACTIONS[do]).bind(None, **arguments)
        except TypeError as error:
            raise ValueError(f"{where}: {do}: {error}") from error
        if table.get("stage") and table["stage"] not in STAGES:
            raise ValueError(f"{where}: no stage {table['stage']!r}")
        if table.get("device", IDLE) not in DEVICES:
            raise ValueError(f"{where}: device is one of {', '.join(DEVICES)}")
        return Entry(
            do=do,
            arguments=arguments,
            ranks=frozenset(table["ranks"]) if "ranks" in table else None,
            at=table.get("at", 0),
            every=table.get("every", 0),
            first=table.get("from", 0),
            last=table.get("until", 0),
            stage=table.get("stage", ""),
            substage=table.get("substage", ""),
            trigger=table.get("trigger", False),
            device=table.get("device", ""),
        )

    def _expectation(self, healthy: bool) -> Expectation:
        table = dict(self._table.get("expect", {}))
        culprits = table.pop("culprits", "nobody" if healthy else None)
        node = table.pop("node", -1)
        sets = [self._numbers(some) for some in table.pop("accept", ())]
        if culprits == "nobody":
            sets.insert(0, frozenset())
        elif culprits == "node":
            if node < 0:
                raise ValueError('culprits = "node" needs node = INDEX')
        elif isinstance(culprits, list):
            sets.insert(0, self._numbers(culprits))
        else:
            raise ValueError('expect: culprits is a list of processes, "nobody" or "node"')
        expectation = Expectation(
            sets=tuple(sets),
            evidence=tuple(table.pop("evidence", ())),
            suspicion=table.pop("suspicion", "may" if healthy else "must"),
            page=table.pop("page", "must not" if healthy or "slow" in self._table else "must"),
            node=node,
            rotates=table.pop("rotates", "may"),
        )
        if table:
            raise ValueError(f"expect: unknown keys {', '.join(sorted(table))}")
        if not {expectation.suspicion, expectation.page, expectation.rotates} <= set(LEVELS):
            raise ValueError(f"expect: levels are {', '.join(LEVELS)}")
        return expectation

    def _check(self, shape: Shape) -> None:
        names = [server.name for server in shape.servers]
        scripts = {shape.program, *(server.program for server in shape.servers)} - {""}
        asked = [
            entry.arguments["server"] for entry in shape.entries if entry.do in ("call", "fail")
        ]
        asked += [server.calls for server in shape.servers if server.calls]
        kinds = HEALTHY if shape.healthy else FAULTS
        if shape.slow is not None:
            kinds = SLOW_HEALTHY if shape.healthy else SLOW_FAULTS
        longest = MAX_BARE_WATCH if shape.backend == "bare" else MAX_WATCH
        if shape.slow is not None:
            longest = MAX_SLOW_WATCH
        factors = [e.arguments["factor"] for e in shape.entries if e.do == "slow"]
        problems = {
            f"kind is one of {', '.join(sorted(kinds))}": shape.kind not in kinds,
            "source is a URL": not shape.source.startswith("https://"),
            f"its name, which is the job's id, has at most {MAX_TEXT} characters": (
                len(shape.name) > MAX_TEXT
            ),
            "title and taken say something": not (shape.title and shape.taken),
            f"world is 1 to {MAX_WORLD}": not 1 <= shape.world <= MAX_WORLD,
            "nodes is 1 or 2": shape.nodes not in (1, 2),
            "an action has trigger = true": not (
                shape.program or any(entry.trigger for entry in shape.entries)
            ),
            "there are steps, or a program": bool(shape.step) == bool(shape.program),
            "a program is a script of tests/hangbench/programs": not all(
                (PROGRAMS / script).is_file() for script in scripts
            ),
            f"watch is at most {longest:.0f}": shape.watch > longest,
            "slow: factor is that of the programme, and 1 where nobody is slow": (
                shape.slow is not None
                and (
                    any(factor != shape.slow.factor for factor in factors)
                    or (shape.slow.factor == 1.0) != shape.healthy
                )
            ),
            "the second thread has no stages": any(entry.stage for entry in flat(shape.beside)),
            f"the second thread does none of {', '.join(sorted(FIRST_THREAD))}": any(
                entry.do in FIRST_THREAD for entry in flat(shape.beside)
            ),
            "a second thread has no part in reform or in a rendezvous": bool(shape.beside)
            and (
                shape.uses("reform")
                or any(
                    shape.queues[entry.arguments["queue"]].via == "rendezvous"
                    for entry in flat(shape.beside)
                    if entry.do in ("put", "get")
                )
            ),
            "servers are named in [[server]], each once": (
                not set(asked) <= set(names) or len(set(names)) < len(names)
            ),
            f"a server fails in one of {', '.join(SERVER_FAULTS)}": any(
                entry.arguments["how"] not in SERVER_FAULTS
                for entry in shape.entries
                if entry.do == "fail"
            ),
            "bare jobs are on one node": shape.backend == "bare" and shape.nodes != 1,
            "ddp is for torch": shape.uses("ddp") and shape.backend != "torch",
            f"at most {MAX_GROUPS} groups and {MAX_QUEUES} queues": (
                len(shape.groups) > MAX_GROUPS or len(shape.queues) > MAX_QUEUES
            ),
            f"via is one of {', '.join(sorted(VIAS))}": any(
                queue.via not in VIAS for queue in shape.queues.values()
            ),
            "groups are named in [groups]": any(
                entry.arguments.get("group", WORLD) not in {WORLD, *shape.groups}
                for entry in shape.entries
            ),
            "processes are below 16": any(
                rank >= MAX_WORLD for entry in shape.entries for rank in entry.ranks or ()
            ),
        }
        if wrong := [rule for rule, broken in problems.items() if broken]:
            raise ValueError("; ".join(wrong))
