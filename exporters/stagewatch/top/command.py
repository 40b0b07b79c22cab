"""Shows what every rank is doing right now, and what is wrong, until q or Ctrl-C.

The verdict is at the top, then a line per rank, ranks at fault first.  The command needs no agent;
root, or the user of the ranks, sees the most.  With --prometheus it shows all ranks of JOB, on all
its nodes.

  <  >     sort by the column to the left or right of this one
  /        show only ranks with these words in their job, role, rank, node, stage or class
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

from stagewatch.core import config
from stagewatch.core.errors import ConfigError
from stagewatch.inspect.command import LookOptions
from stagewatch.prometheus.options import PrometheusOptions, server_at
from stagewatch.top.node import NodeSource
from stagewatch.top.rows import Source

NODE_SECONDS, JOB_SECONDS = 1.0, 5.0
"""The default time between two looks at this node, and between two looks at a Prometheus."""
HANG_UP_SECONDS = 5.0
"""How long a clean end may take once the terminal has hung up."""


@dataclass(frozen=True, slots=True)
class TopOptions(LookOptions):
    """Options of `stagewatch top`."""

    interval: float | None = config.option(
        None,
        f"time between two looks; if none, {NODE_SECONDS:g} s, and {JOB_SECONDS:g} s with "
        "--prometheus",
        parse=config.duration,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch top`."""
    parser.add_argument("job_id", nargs="?", default="", metavar="JOB", help="only this job")
    tables = {"top": TopOptions, "prometheus": PrometheusOptions}
    config.add_options(parser, tables, without=("prometheus.url",))


def run(arguments: argparse.Namespace) -> int:
    """Show ranks until the user ends it; returns the exit status."""
    from stagewatch.top.screen import Screen

    options = config.options_of(arguments, TopOptions, "top")
    server = server_at(options.prometheus, arguments)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") in ("", "dumb"):
        raise ConfigError("top needs a terminal; for files and pipes: stagewatch inspect")
    if not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)  # an empty name counts as none
    logging.disable()  # a log line would disturb the screen
    threading.Thread(target=_end_with_terminal, args=(sys.stdin.fileno(),), daemon=True).start()
    source = _source(options, server, arguments.job_id)
    with closing(source):
        interval = options.interval or (JOB_SECONDS if server else NODE_SECONDS)
        screen = Screen(source, interval)
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


def _source(options: TopOptions, server: PrometheusOptions | None, job: str) -> Source:
    if server is None:
        return NodeSource(options, job)
    if not job:
        raise ConfigError("--prometheus needs a job, whose ranks it shows: stagewatch top JOB")
    from stagewatch.prometheus.api import PrometheusApi
    from stagewatch.top.job import JobSource

    return JobSource(PrometheusApi.of(server), job)
