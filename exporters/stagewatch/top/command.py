"""Shows what every rank is doing right now, and what is wrong, until q or Ctrl-C.

The verdict is at the top, then a line per rank, ranks at fault first.  The command needs no agent;
root, or the user of the ranks, sees the most.

  e        the stacks of the rank under the cursor, and of the other ranks of its job, by py-spy
  q        end, as Ctrl-C does

► marks the ranks at fault, ! those without progress for longer than their stage may take.  The bar
of PROGRESS is full when that time is over; next to it is the time since the last progress.
STEPS are counted over the last minute.  WORK/WAIT are the shares of that minute outside and inside
of collectives: the rank that waits least holds the others up. A narrow terminal shows fewer
columns. The colours are the terminal's own; NO_COLOR turns them off.

exit status:
  0  the user ended it
  1  it failed; the last lines say why
  2  an option cannot be used, or there is no terminal
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass

from stagewatch.core.config import add_options, duration, option, options_of
from stagewatch.core.errors import ConfigError
from stagewatch.inspect.command import LookOptions
from stagewatch.top.node import NodeSource

HANG_UP_SECONDS = 5.0
"""How long a clean end may take once the terminal has hung up."""


@dataclass(frozen=True, slots=True)
class TopOptions(LookOptions):
    """Options of `stagewatch top`."""

    interval: float = option(1.0, "time between two looks", parse=duration)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch top`."""
    parser.add_argument("job_id", nargs="?", default="", metavar="JOB", help="only this job")
    add_options(parser, {"top": TopOptions})


def run(arguments: argparse.Namespace) -> int:
    """Show ranks until the user ends it; returns the exit status."""
    from stagewatch.top.screen import Screen

    options = options_of(arguments, TopOptions, "top")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") in ("", "dumb"):
        raise ConfigError("top needs a terminal; for files and pipes: stagewatch inspect --watch 5")
    if not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)  # an empty name counts as none
    logging.disable()  # a log line would disturb the screen
    threading.Thread(target=_end_with_terminal, args=(sys.stdin.fileno(),), daemon=True).start()
    with closing(NodeSource(options, arguments.job_id)) as source:
        screen = Screen(source, options.interval)
        screen.run()
    return screen.return_code or 0


def _end_with_terminal(terminal: int) -> None:
    """End this process after its terminal has hung up; the signal alone may not end it.

    A process that writes to a terminal without a reader blocks, and handles no signal.
    """
    hung_up = select.poll()
    hung_up.register(terminal, 0)  # POLLHUP comes unasked
    hung_up.poll()
    time.sleep(HANG_UP_SECONDS)
    os._exit(0)
