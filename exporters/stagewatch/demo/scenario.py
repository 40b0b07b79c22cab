"""What every scenario needs: the options, lines of progress, and how to call this stagewatch."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.config import number, option, path
from stagewatch.demo.stack import Stack
from stagewatch.demo.waiting import wait_for

SYNC_STALL = "sync-stall"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of `stagewatch demo`; those from `train` on are for the repository's scenarios."""

    scenario: str = option(SYNC_STALL, "what goes wrong, or list for all of them")
    keep: bool = option(False, "leave everything running until Ctrl-C")
    baseline_steps: int = option(10, "healthy steps before the fault, 0.5 s each in sync-stall")
    cache: Path = option(Path(".cache"), "where a fetched Prometheus is kept")
    train: int = option(8, "train workers of the RL system, 2 to 32")
    rollout: int = option(4, "its rollout workers, 2 to 16")
    pace: float = option(
        60.0,
        "how many times faster than the modelled RL system, whose step takes 360 s",
        parse=number,
    )
    json: Path | None = option(None, "write down what happened, for a report", parse=path)
    fault_id: str = option("", "the marker's name; the scenario's if empty")


class Progress:
    """Prints lines with the seconds since the start, which count up while a terminal waits."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line."""
        self._show(f"  {text}\n")

    def begun(self, stack: Stack) -> None:
        """Say where everything is."""
        self.say(f"Prometheus   {stack.url}")
        for node, address in stack.agents.items():
            self.say(f"{node}       http://{address}/")

    def wait_until(
        self, condition: Callable[[], bool], limit: float, what: str, pause: float = 0.25
    ) -> None:
        """Wait, showing that time passes.  Raises `StagewatchError` after `limit` seconds."""

        def asked() -> bool:
            if sys.stdout.isatty():
                self._show("  ...")
            return condition()

        wait_for(asked, what, limit, pause)

    def _show(self, text: str) -> None:
        start = "\r\033[K" if sys.stdout.isatty() else ""
        print(f"{start}[{time.monotonic() - self._started:5.1f} s]{text}", end="", flush=True)


def keep(*commands: str) -> None:
    """Say which commands are worth a try, and leave everything running until a signal."""
    print("\nEverything keeps running; Ctrl-C ends it.  Try, in another terminal:")
    print("\n".join(f"  {command}" for command in commands), flush=True)
    signal.pause()


def own_command() -> str:
    """The words with which another terminal calls the `stagewatch` that runs here."""
    return f"{shlex.quote(sys.executable)} -m stagewatch"
