"""Plays a PyTorch shape under NVRx's straggler sections or under TraceML, to see whom they name.

    python -m tests.hangbench.beside nvrx|traceml SHAPE --python PYTHON [--steps N] [--every N]

PYTHON has torch and `nvidia-resiliency-ext` or `traceml-ai`.  Both get the best case: what they
time is the work of a rank without its communication, which a user would have to mark by hand.
NVRx asks CUPTI and CUDA for what its sections, which are of the CPU's clock, do not need: stand-ins
answer.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stagewatch.core.processes import die_with_parent
from tests.hangbench.device import Devices
from tests.hangbench.meeting import Board
from tests.hangbench.process import COMMUNICATES, Rank
from tests.hangbench.shape import Entry, load

_ROOT = Path(__file__).parents[2]


class Watched(Rank):
    """A rank whose work is timed by another tool."""

    def _do(self, entry: Entry) -> None:
        if not self.step or entry.do in COMMUNICATES or entry.do in ("slow", "step_mark"):
            super()._do(entry)
        else:
            self.work(entry)

    def work(self, entry: Entry) -> None:
        """Carry out what is no communication."""
        super()._do(entry)


class UnderNvrx(Watched):
    """Each kind of work is a section; every so many steps there is a report."""

    every = 0

    def start(self) -> None:
        """Initialise the detector, without a GPU."""
        torch: Any = importlib.import_module("torch")
        torch.cuda.synchronize = lambda: None
        nothing = types.SimpleNamespace(
            initialize=int, shutdown=int, start=int, stop=int, reset=int, get_stats=dict
        )
        cupti: Any = types.ModuleType("nvrx_cupti_module")
        cupti.CuptiProfiler = lambda **_: nothing
        sys.modules["nvrx_cupti_module"] = cupti
        self.detector: Any = importlib.import_module("nvidia_resiliency_ext.straggler").Detector
        self.detector.initialize()

    def work(self, entry: Entry) -> None:
        """Carry it out in a section."""
        with self.detector.detection_section(entry.do, profile_cuda=False):
            super().work(entry)

    def _play(self, entries: Any) -> None:
        super()._play(entries)
        if entries is self.shape.step and self.step % self.every == 0:
            report = self.detector.generate_report()
            if self.rank == 0:
                named = report.identify_stragglers()
                scores = report.section_relative_perf_scores
                print(
                    json.dumps({"step": self.step, "named": named, "scores": scores}, default=str)
                )


class UnderTraceml(Watched):
    """Batches come from a wrapped iterator, all other work is the forward of a module."""

    def start(self) -> None:
        """Wrap the work, and nothing else; `traceml run` has initialised the rest."""
        torch: Any = importlib.import_module("torch")
        self.traceml: Any = importlib.import_module("traceml_ai")
        work = super().work

        class Work(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, entry: Entry) -> None:
                work(entry)

        self.traceml.init(mode="manual")
        self.model = self.traceml.wrap_forward(Work())
        self.tail = torch.nn.Linear(8, 1)
        self.optimizer = self.traceml.wrap_optimizer(torch.optim.SGD(self.tail.parameters()))
        self.input = torch.ones(8)
        self.entry: Entry | None = None
        self.batches = self.traceml.wrap_dataloader_fetch(self._batches())

    def work(self, entry: Entry) -> None:
        """Carry it out in the phase that is its own."""
        if entry.do == "batch":
            self.entry = entry
            next(self.batches)
        else:
            self.model(entry)

    def _batches(self) -> Iterator[None]:
        while self.entry is not None:
            Rank._do(self, self.entry)
            yield

    def _play(self, entries: Any) -> None:
        steps = entries is self.shape.step
        with self.traceml.trace_step(self.model) if steps else contextlib.nullcontext():
            super()._play(entries)
            if steps:  # without these phases, TraceML has no verdict on any
                self.traceml.wrap_backward(self.tail(self.input).sum()).backward()
                self.optimizer.step()


def _rank(tool: str, file: Path, directory: Path, steps: int, every: int) -> None:
    """Play one rank, whose number the launcher has set."""
    shape = dataclasses.replace(load(file), steps=steps)
    kind = UnderNvrx if tool == "nvrx" else UnderTraceml
    UnderNvrx.every = every
    me = kind(shape, directory, int(os.environ["RANK"]), shape.world, 0, 0)
    me.start()
    me.run(joins=False)


def main() -> int:
    """Play a shape, and print what the tool says."""
    parser = argparse.ArgumentParser(prog="python -m tests.hangbench.beside", description=__doc__)
    parser.add_argument("tool", choices=("nvrx", "traceml"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--every", type=int, default=60, help="steps between two reports of NVRx")
    parser.add_argument("--directory", type=Path, help="of a rank; only for the launcher")
    given = parser.parse_args()
    if given.directory:
        _rank(given.tool, given.file, given.directory, given.steps, given.every)
        return 0
    with tempfile.TemporaryDirectory(prefix="stagewatch-beside-") as folder:
        directory = Path(folder)
        Board.create(directory, 0)
        Devices.create(directory)
        (directory / "ranks").mkdir()
        return _launch(given, directory)


def _launch(given: argparse.Namespace, directory: Path) -> int:
    """Start all ranks, and wait for them."""
    world = load(given.file).world
    arguments = [given.tool, str(given.file.absolute()), "--directory", str(directory)]
    arguments += ["--steps", str(given.steps), "--every", str(given.every)]
    environ = os.environ | {"PYTHONPATH": f"{_ROOT}:{_ROOT / 'exporters'}", "OMP_NUM_THREADS": "1"}
    environ |= {"STAGEWATCH_DIR": str(directory / "ranks"), "GLOO_SOCKET_IFNAME": "lo"}
    if given.tool == "traceml":
        traceml = Path(given.python).with_name("traceml")
        command = [str(traceml), "run", "--mode", "summary", "--nproc-per-node", str(world)]
        command += ["--logs-dir", str(directory / "logs"), __file__, "--args", *arguments]
        return subprocess.run(command, env=environ, check=False).returncode
    ranks = [
        subprocess.Popen(
            [given.python, __file__, *arguments],
            env=environ | {"RANK": str(rank), "WORLD_SIZE": str(world)},
            preexec_fn=die_with_parent,
        )
        for rank in range(world)
    ]
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
