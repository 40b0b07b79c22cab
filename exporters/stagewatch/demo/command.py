"""Plays a scenario: a real job of many processes goes wrong, and the stack says where it began.

Without --scenario it starts two node agents, a job of eight processes and Prometheus, lets the job
hang the way a 64-GPU job once did (one rank leaves the loop early, the others spin in the next
all-reduce), and shows when which alert fired, and which rank it named.  The other scenarios come
with a clone of the repository.  They put a fault into a small RL training system (S1), or into a
real Slurm cluster on this machine (S3 and S4, which need Slurm's daemons and root).  The demo ends
by itself and leaves nothing behind."""

from __future__ import annotations

import argparse
import signal
from importlib import import_module
from types import FrameType, ModuleType

from stagewatch.core.config import add_options, options_of
from stagewatch.core.errors import ConfigError
from stagewatch.demo import sync_stall
from stagewatch.demo.scenario import SYNC_STALL, DemoOptions

SOURCES = "S0 to S4: the report it is modelled on, #: the fault in it; see docs/scenarios.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch demo`."""
    add_options(parser, {"demo": DemoOptions})
    parser.epilog = f"scenarios ({SOURCES}):\n{_table()}"


def run(arguments: argparse.Namespace) -> int:
    """Play the scenario; exit status 0 if the stack named where it began, 1 if not."""
    options = options_of(arguments, DemoOptions, "demo")
    if options.scenario == "list":
        print(_table())
        return 0
    lab = _lab()
    names = (SYNC_STALL, *(lab.summaries() if lab else ()))
    if options.scenario not in names:
        hint = "" if lab else "; the others come with a clone of the repository (make demo)"
        raise ConfigError(
            f"--scenario {options.scenario}: must be list or one of {', '.join(names)}{hint}"
        )
    signal.signal(signal.SIGTERM, _interrupt)
    if lab is None or options.scenario == SYNC_STALL:
        return sync_stall.play(options)
    status: int = lab.run(options)
    return status


def _lab() -> ModuleType | None:
    """The scenarios of the repository, which a wheel does not carry: `summaries()`, what goes wrong
    by the scenario's name, and `run(options)`, which returns the exit status."""
    try:
        return import_module("stagewatch_lab.command")
    except ModuleNotFoundError as error:
        if error.name == "stagewatch_lab":
            return None
        raise


def _table() -> str:
    lab = _lab()
    summaries = {
        SYNC_STALL: "S0: one rank leaves the loop early, the others spin",
        **(lab.summaries() if lab else {}),
    }
    return "\n".join(f"  {name:<18} {summary}" for name, summary in summaries.items())


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
