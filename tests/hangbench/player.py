"""Plays shapes side by side, as many as the cores allow, and notes what happens to each."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.fakes.faultfs import missing
from tests.hangbench import throttles
from tests.hangbench.device import Devices, Gpu
from tests.hangbench.field import OWN, SHARED, Field
from tests.hangbench.lines import script
from tests.hangbench.meeting import Board
from tests.hangbench.probes import Probe, probe
from tests.hangbench.queues import BROKERED, place
from tests.hangbench.shape import BARE, DIRECTORY, PROGRAMS, SHAPE, Server, Shape
from tests.lab.lab import AT_WORK, NICE
from tests.running import clean_environ

GENERATIONS = 6
PROBE_AFTER_SECONDS = 30.0
NO_TRIGGER_SECONDS = 300.0
TORCH_PYTHON = "STAGEWATCH_TORCH_PYTHON"
_ROOT = Path(__file__).parents[2]


def torch_python() -> str:
    """An interpreter that has PyTorch, empty if there is none."""
    frameworks = _ROOT / ".venv-frameworks" / "bin" / "python"
    if given := os.environ.get(TORCH_PYTHON):
        return given
    if find_spec("torch"):
        return sys.executable
    return str(frameworks) if frameworks.exists() else ""


def needed(shape: Shape) -> tuple[str, ...]:
    """Packages that a shape needs of the interpreter that has PyTorch."""
    torch = ("torch",) if shape.backend == "torch" else ()
    return (*torch, *({"ray"} & _vias(shape)), *shape.needs)


def _vias(shape: Shape) -> set[str]:
    return {queue.via for queue in shape.queues.values()}


@cache
def has(python: str, package: str) -> bool:
    """Whether an interpreter finds a package; an empty one finds none."""
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({package!r}))"
    return bool(python) and not subprocess.run([python, "-c", code], check=False).returncode


def lacks(shape: Shape) -> str:
    """What this machine lacks to play a shape, empty if nothing."""
    for package in needed(shape):
        if not has(torch_python(), package):
            name = {"torch": "PyTorch"}.get(package, package)
            hint = f"make test-frameworks sets it up, or {TORCH_PYTHON} names a python"
            return f"needs {name} ({hint})"
    if "zmq" in _vias(shape) and not find_spec("zmq"):
        return "needs pyzmq"
    return (missing() if shape.mounts else "") or throttles.missing(shape.uses)


@dataclass(frozen=True, slots=True)
class Look:
    """What the player itself saw at some moment: of each process when it last went on, since when
    it has been in a collective (Unix seconds; 0: never, in none), and its step."""

    time: float
    ranks: tuple[tuple[float, float, int], ...]
    waited: tuple[float, ...] = ()
    """Seconds that each has spent in communication so far."""


@dataclass
class Played:
    """What happened to a shape."""

    shape: Shape
    nodes: list[str]
    """Names of the nodes of the shape, by their index."""
    placed: dict[int, str]
    """Node of each process."""
    server_pids: list[int] = field(default_factory=list, kw_only=True)
    """Of each server, by its index."""
    began: float
    triggered: float = 0.0
    ended: float = 0.0
    looks: list[Look] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    """Exit statuses of processes that ended by themselves."""
    finished: set[int] = field(default_factory=set)
    """Processes that came to the end of the programme."""
    probe: Probe | None = None
    log: str = ""
    """The end of what the processes wrote."""

    def sound(self) -> str:
        """Empty if it did what the shape promises, else what it did instead."""
        if not self.triggered:
            return "the trigger was never reached"
        late = [look for look in self.looks if look.time > self.ended - 20]
        steps = {max(step for _, _, step in look.ranks) for look in late}
        moves = len(steps) > 1
        after = [look for look in self.looks if look.time >= self.triggered]
        grew = bool(after) and max(s for _, _, s in after[-1].ranks) > max(
            s for _, _, s in after[0].ranks
        )
        if self.shape.goes_on and not (grew or moves or self.finished):
            return "it did not go on, although it is said to"
        if moves and not self.shape.goes_on:
            return "it went on, although it is said to hang"
        return ""


class Play:
    """A shape that is being played."""

    def __init__(self, shape: Shape, field: Field, nodes: tuple[str, ...]) -> None:
        self.shape, self._field = shape, field
        self.directory = field.directory / f"job-{shape.name}"
        self.directory.mkdir()
        for generation in range(GENERATIONS):
            Board.create(self.directory, generation)
        Devices.create(self.directory)
        self._devices = Devices(self.directory)
        self._gpus: dict[tuple[int, str], Gpu] = {}
        """By process and node."""
        self._mount = field.mount(self.directory) if shape.mounts else None
        self._network: subprocess.Popen[bytes] | None = None
        if shape.uses("loss", "link"):
            self._network = throttles.network(field.children, self.directory / "network")
        placed = {rank: nodes[shape.node_of(rank)] for rank in range(shape.world)}
        self.played = Played(shape, list(nodes), placed, time.time())
        self._processes: list[tuple[int, subprocess.Popen[bytes]]] = []
        self._others: list[subprocess.Popen[bytes]] = []
        """Those that are no ranks."""
        self._current: dict[int, subprocess.Popen[bytes]] = {}
        self._killed: set[int] = set()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._told = 0
        self._generation = 0
        self._world = shape.world
        self._board = Board(self.directory, 0)
        self.probing: Future[Probe] | None = None
        for queue in shape.queues.values():
            if queue.via in BROKERED:
                where = str(self.directory), str(queue.index)
                self._launch_other("-m", "tests.hangbench.queues.broker", *where, queue.via)
        if "ray" in _vias(shape):
            self._launch_other("-m", "tests.hangbench.queues.via_ray", str(self.directory))
        self.played.server_pids = list(map(self._launch_server, shape.servers))
        for rank in range(shape.world):
            if rank not in shape.absent:
                self._launch(rank, 0, 0, False)

    def tick(self) -> None:
        """Carry out what ranks have asked for, and look at them."""
        for line in self._new_lines():
            event = json.loads(line)
            getattr(self, f"_on_{event['what']}")(event)
        now = time.time()
        for when, act in [due for due in self._due if due[0] <= now]:
            self._due.remove((when, act))
            act()
        for rank, process in self._current.items():
            status = process.poll()
            if status is not None and rank not in self._killed:
                self.played.statuses[rank] = status
        looks = self.played.looks
        if not looks or now - looks[-1].time >= 1:
            all_ranks = range(self._world)
            seen = tuple(map(self._board.seen, all_ranks))
            looks.append(Look(now, seen, tuple(map(self._board.waited, all_ranks))))
        if self.probing and self.probing.done():
            self.played.probe = self.probing.result()

    def over(self) -> bool:
        """Whether all that was to be seen has been seen."""
        now, played = time.time(), self.played
        if not played.triggered:
            ended = all(process.poll() is not None for _, process in self._processes)
            return ended or now - played.began > NO_TRIGGER_SECONDS
        probed = self.probing is None or self.played.probe is not None
        return probed and now - played.triggered > self.shape.watch

    def wants_probe(self) -> bool:
        """Whether it is time for others to look at it."""
        if self.shape.slow is not None:
            return False
        triggered = self.played.triggered
        due = triggered and time.time() - triggered > PROBE_AFTER_SECONDS
        return bool(due and self.probing is None)

    def live_pids(self) -> dict[int, int]:
        """Of the processes that have not ended."""
        return {rank: p.pid for rank, p in self._current.items() if p.poll() is None}

    def directories(self) -> list[tuple[Path, Path]]:
        """Those of the records and of the incidents of its nodes."""
        return [
            (self._field.record_dir(node), self._field.incident_dir(node))
            for node in dict.fromkeys(self.played.nodes)
        ]

    def stop(self) -> Played:
        """End it and put right what it has broken."""
        self.played.ended = time.time()
        self._due.clear()
        for gpu in self._gpus.values():
            gpu.leave()
        if self._mount:
            self._mount.ok()
        everybody = [process for _, process in self._processes] + self._others
        for process in everybody:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in everybody:
            process.wait()
        place.clean(self.directory)
        if self._mount:
            self._mount.close()
        if self.shape.disturbs:
            for node in self.played.nodes:
                self._field.start_agent(node)
        if self._network:
            self._network.kill()
        throttles.clean(self.shape.name)
        logs = sorted(self.directory.glob("log.*"))
        self.played.log = "".join(file.read_text(errors="replace")[-400:] for file in logs)[-3000:]
        shutil.rmtree(self.directory, ignore_errors=True)
        return self.played

    def _launch(self, rank: int, generation: int, step: int, joins: bool) -> None:
        shape = self.shape
        more = {"STAGEWATCH_DIR": str(self._field.record_dir(self.played.placed[rank]))}
        if shape.program:
            command = [str(PROGRAMS / shape.program), *shape.arguments]
            more |= {DIRECTORY: str(self.directory), SHAPE: str(shape.file), "RANK": str(rank)}
            more |= {"WORLD_SIZE": str(self._world), BARE: str(shape.backend == "bare")}
        else:
            command = [str(script(shape, self.directory)), str(shape.file), str(self.directory)]
            command += [str(rank), str(self._world), str(generation), str(step)]
            command += ["joins" if joins else ""]
        if shape.backend == "bare":
            more |= {"SLURM_JOB_ID": shape.name, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            more["WORLD_SIZE"] = str(self._world)
        gpu = None if shape.program else self._gpu(rank)
        prefix = NICE if shape.wait == "spin" else AT_WORK
        process = self._start([*prefix, *self._python(), *command], f"log.{rank}", more)
        self._processes.append((rank, process))
        self._current[rank] = process
        if gpu:
            gpu.use(process, self._devices, rank)

    def _gpu(self, rank: int) -> Gpu | None:
        """The one of a process; programs do not say what theirs would do."""
        node = self.played.placed[rank]
        if (rank, node) not in self._gpus and (taken := self._field.gpus[node].take()):
            self._gpus[rank, node] = taken
        return self._gpus.get((rank, node))

    def _launch_server(self, server: Server) -> int:
        """The pid; 0 where a rank will start it."""
        where = server.name, str(self.directory)
        if server.child:
            return 0
        if server.program:
            return self._launch_other(str(PROGRAMS / server.program), "server", *where)
        told = *where, str(server.seconds), server.calls
        return self._launch_other("-m", "tests.hangbench.server", *told)

    def _launch_other(self, *arguments: str) -> int:
        """Start a process that is no rank."""
        command = [*AT_WORK, *self._python(), *arguments]
        self._others.append(self._start(command, "log.others", {}))
        return self._others[-1].pid

    def _python(self) -> tuple[str, ...]:
        within = throttles.within(self._network) if self._network else ()
        return (*within, torch_python() if needed(self.shape) else sys.executable)

    def _start(
        self, command: list[str], log: str, environ: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        environ["PYTHONPATH"] = f"{_ROOT}:{_ROOT / 'exporters'}"
        environ["OMP_NUM_THREADS"] = environ["OPENBLAS_NUM_THREADS"] = "1"
        return self._field.children.start(
            command, log=self.directory / log, environ=clean_environ(environ)
        )

    def _new_lines(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            text = (self.directory / "events").read_text()[self._told :]
            whole = text[: text.rfind("\n") + 1]
            self._told += len(whole)
            return whole.splitlines()
        return []

    def _on_trigger(self, event: dict[str, Any]) -> None:
        first = self.played.triggered
        self.played.triggered = min(first, event["time"]) if first else event["time"]

    def _on_process(self, event: dict[str, Any]) -> None:
        """A rank has started one that the shape calls a server."""
        names = [server.name for server in self.shape.servers]
        if event["name"] in names:
            self.played.server_pids[names.index(event["name"])] = event["pid"]

    def _on_finished(self, event: dict[str, Any]) -> None:
        self.played.finished.add(event["rank"])

    def _on_start(self, event: dict[str, Any]) -> None:
        self._generation, self._world = event["generation"], event["world"]
        self._board = Board(self.directory, self._generation)
        for rank in event["ranks"]:
            if event["on_node"] is not None:
                self.played.placed[rank] = self.played.nodes[event["on_node"]]
            self.played.placed.setdefault(rank, self.played.nodes[-1])
            self._launch(rank, self._generation, event["step"], event["joins"])

    def _on_suspend(self, event: dict[str, Any]) -> None:
        whom = event["whom"] if event["whom"] is not None else list(self._current)
        self._signal(whom, signal.SIGSTOP)
        later = time.time() + event["seconds"]
        self._due.append((later, lambda: self._signal(whom, signal.SIGCONT)))

    def _on_restart(self, event: dict[str, Any]) -> None:
        """It meets nobody: the others remain in the generation that it has left."""
        rank = event["rank"]

        def start() -> None:
            self.played.statuses.pop(rank, None)
            self._launch(rank, self._generation + 1, 0, False)

        self._due.append((time.time() + event["down"], start))

    def _on_restart_agent(self, event: dict[str, Any]) -> None:
        node = self.played.nodes[event["node"]]
        self._field.end_agent(node)
        self._due.append((time.time() + event["down"], lambda: self._field.start_agent(node)))

    def _on_kill_node(self, event: dict[str, Any]) -> None:
        node = self.played.nodes[event["node"]]
        self._field.end_agent(node)
        ranks = [rank for rank, name in self.played.placed.items() if name == node]
        self._killed.update(ranks)
        self._signal(ranks, signal.SIGKILL)
        for server, pid in zip(self.shape.servers, self.played.server_pids, strict=True):
            if server.node == event["node"]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

    def _signal(self, ranks: list[int], number: signal.Signals) -> None:
        for rank in ranks:
            if rank in self._current and self._current[rank].poll() is None:
                os.killpg(self._current[rank].pid, number)


def play(
    shapes: list[Shape],
    field: Field,
    jobs: int,
    cores: float,
    say: Callable[[str], None],
    done: Callable[[Played], None],
    enough: Callable[[Played], bool] = lambda _: False,
) -> None:
    """Play shapes, as many at a time as `jobs` and `cores` allow; `done` gets each in turn.

    A shape is over at the end of its watch, or once `enough` has been seen of it.
    """
    waiting = sorted(shapes, key=lambda shape: (not shape.disturbs, -shape.cores, shape.name))
    running: list[Play] = []
    pool = ThreadPoolExecutor(4)
    try:
        while waiting or running:
            began = _begin(waiting, running, field, jobs, cores)
            if began:
                say(f"{began.shape.name}: begins ({len(waiting)} wait, {len(running)} run)")
            for one in list(running):
                before = one.played.triggered
                one.tick()
                if one.played.triggered and not before:
                    after = one.played.triggered - one.played.began
                    say(f"{one.shape.name}: trigger after {after:.0f} s")
                if one.wants_probe():
                    one.probing = pool.submit(
                        probe, one.shape.name, one.directories(), one.live_pids()
                    )
                if one.over() or (one.played.triggered and enough(one.played)):
                    running.remove(one)
                    done(one.stop())
            time.sleep(0.2)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for one in running:
            one.stop()


def _begin(
    waiting: list[Shape], running: list[Play], field: Field, jobs: int, cores: float
) -> Play | None:
    """Start the first shape for which there is room, if any."""
    busy = sum(one.shape.cores for one in running)
    meddled = any(one.shape.disturbs for one in running)
    begins = any(time.time() - one.played.began < 2 for one in running)
    for shape in waiting:
        room = not running or busy + shape.cores <= cores
        if room and not begins and len(running) < jobs and not (shape.disturbs and meddled):
            waiting.remove(shape)
            pair = OWN if shape.disturbs else SHARED
            own = pair[:1] if shape.backend == "bare" or len(running) % 2 else pair[1:]
            running.append(Play(shape, field, pair if shape.nodes == 2 else own))
            return running[-1]
    return None
