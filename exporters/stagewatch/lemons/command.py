"""Says which nodes and GPUs interrupt jobs more often than chance explains.

  stagewatch lemons --prometheus http://prometheus:9090 --since 30d
  stagewatch lemons --accounting --json
  stagewatch lemons --cluster east --write /shared/stagewatch/lemons.json
      also write the file that `stagewatch check --lemons FILE` reads in a prolog

A node's interruptions are the times that the judge named it (as holding up a job, or as slow),
critical XIDs, and the times that Slurm had it down, failing, or drained for a fault; events within
a day count as one.  Its rate is their number by the hours in which jobs had the node.  A node is a
lemon if even the lower end of its rate's interval is above the fleet's rate; GPUs likewise.

exit status:
  0  the ledger is printed, with or without lemons
  1  the server or accounting does not answer, or knows of no node
  2  an option cannot be used
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.config import add_options, boolean, duration, option, options_of
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.core.words import printable
from stagewatch.lemons import notice
from stagewatch.lemons.events import Past, failed_jobs, read_past
from stagewatch.lemons.ledger import Ledger, Row, Unit, make_ledger
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.options import PrometheusOptions
from stagewatch.report.periods import Period, amount, minute

MAX_ROWS = 20
"""Rows that are printed of nodes, and of GPUs; the lemons and the worst of the others."""


@dataclass(frozen=True, slots=True)
class LemonsOptions:
    """Options of `stagewatch lemons`."""

    since: float = option(90 * 86400.0, "how far to look back", parse=duration)
    cluster: str = option("", "only this cluster; all if empty")
    accounting: bool = option(
        False, "count failed jobs by node, from Slurm's accounting (sacct)", parse=boolean
    )
    write: str = option("", "file to write the lemons to, for `stagewatch check`")
    json: bool = option(False, "print JSON, with all nodes and GPUs", parse=boolean)


@dataclass(frozen=True, slots=True)
class Told:
    """The ledgers of one cluster."""

    cluster: str
    past: Past
    nodes: Ledger
    gpus: Ledger


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch lemons`."""
    add_options(parser, {"lemons": LemonsOptions, "prometheus": PrometheusOptions})


def run(arguments: argparse.Namespace) -> int:
    """Print the ledger, and write the lemons; returns exit status 0."""
    options = options_of(arguments, LemonsOptions, "lemons")
    now = time.time()
    period = Period(now - options.since, now)
    with closing(PrometheusApi.of(options_of(arguments, PrometheusOptions, "prometheus"))) as api:
        pasts = read_past(api, period, options.cluster)
    if not any(past.nodes for past in pasts.values()):
        raise StagewatchError("no job has had a node in this time, as far as the server knows")
    if len(pasts) > 1 and (options.write or options.accounting):
        names = ", ".join(sorted(pasts))
        raise ConfigError(f"--write and --accounting need --cluster, one of {names}")
    told = [_told(each, past, period, options) for each, past in sorted(pasts.items())]
    if options.write:
        _write(Path(options.write), told[0], options, now)
    if options.json:
        print(json.dumps([_as_json(each, period) for each in told], indent=2))
    else:
        print("\n\n".join("\n".join(_lines(each, period)) for each in told))
    return 0


def _told(cluster: str, past: Past, period: Period, options: LemonsOptions) -> Told:
    failed = None
    if options.accounting:
        failed = {Unit(cluster, node): count for node, count in failed_jobs(period).items()}
    nodes = make_ledger(past.nodes, past.of_nodes, failed)
    return Told(cluster, past, nodes, make_ledger(past.gpus, past.of_gpus))


def _write(file: Path, told: Told, options: LemonsOptions, now: float) -> None:
    days = options.since / 86400
    reasons = {
        row.unit.node: f"{row.interruptions} interruptions in {days:.0f} d, where the fleet's rate "
        f"makes {row.expected:.1f}"
        for row in told.nodes.lemons
    }
    try:
        notice.write(file, reasons, now)
    except OSError as error:
        raise StagewatchError(f"cannot write {file}: {error.strerror}") from error


def _lines(told: Told, period: Period) -> Iterator[str]:
    """A cluster's ledgers for people."""
    ledger = told.nodes
    of = f" of {told.cluster}" if told.cluster else ""
    when = f"{minute(period.start)} to {minute(period.end)} UTC"
    rate = f"one in {_span(ledger.rate)} of a node, " if ledger.interruptions else ""
    yield printable(
        f"{len(ledger.rows)} nodes{of}, {when}: {ledger.interruptions} interruptions in "
        f"{amount(ledger.hours)} node-hours of jobs ({rate}{_interval(ledger.per_hour)})"
    )
    if any(row.kinds or row.failed for row in ledger.rows):
        yield from _table("node", ledger, told)
    if any(row.interruptions for row in told.gpus.rows):
        yield ""
        yield from _table("GPU", told.gpus, told)
    named = [_name(row.unit, told) for each in (ledger, told.gpus) for row in each.lemons]
    yield ""
    yield f"lemons: {', '.join(named)}" if named else "no lemon: chance explains all of it"


def _table(what: str, ledger: Ledger, told: Told) -> Iterator[str]:
    worst = [row for row in ledger.rows if row.kinds or row.failed]
    shown = worst[: max(MAX_ROWS, len(ledger.lemons))]
    failed = any(row.failed is not None for row in shown)
    name = max([len(_name(row.unit, told)) for row in shown] + [4])
    yield (
        f"{what:<{name}} named (jobs)  slow  XIDs   out{' failed jobs' if failed else ''}"
        f"  interruptions (fleet's rate)  {'one in':>8}  {'between':<20}  GPU-hours lost"
    )
    for row in shown:
        named = f"{row.kinds['named']} ({len(row.jobs)})"
        counts = "".join(f"{row.kinds[kind]:>6}" for kind in ("slow", "xid", "out"))
        jobs = f"{row.failed:>12}" if failed else ""
        rate = row.interruptions / row.hours if row.hours else 0.0
        told_of = f"{row.interruptions:>15} {f'({row.expected:.1f})':>14}  {_span(rate):>8}"
        cost = f"{_interval(row.per_hour):<20}  {amount(row.lost):>14}"
        lemon = "  LEMON" if row.lemon else ""
        yield f"{_name(row.unit, told):<{name}} {named:>12}{counts}{jobs}{told_of}  {cost}{lemon}"
    if len(worst) > len(shown):
        yield f"and {len(worst) - len(shown)} more"


def _name(unit: Unit, told: Told) -> str:
    if not unit.gpu:
        return printable(unit.node, 64)
    number = told.past.numbers.get(unit, "")
    return printable(f"{unit.node} GPU {number or '?'} ({unit.gpu[:12]})", 96)


def _interval(per_hour: tuple[float, float]) -> str:
    return f"{_span(per_hour[1])} to {_span(per_hour[0])}"


def _span(per_hour: float) -> str:
    """The mean time that a rate makes."""
    if not per_hour:
        return "never"
    hours = 1 / per_hour
    return f"{hours:.1f} h" if hours < 48 else f"{amount(hours / 24)} d"


def _as_json(told: Told, period: Period) -> dict[str, object]:
    def ledger(of: Ledger) -> dict[str, object]:
        rows = [_row_json(row, told) for row in of.rows]
        sums = {"hours": of.hours, "interruptions": of.interruptions, "per_hour": of.per_hour}
        return sums | {"rows": rows}

    about = {"cluster": told.cluster, "start": period.start, "end": period.end}
    return about | {"nodes": ledger(told.nodes), "gpus": ledger(told.gpus)}


def _row_json(row: Row, told: Told) -> dict[str, object]:
    return {
        "node": row.unit.node,
        **({"uuid": row.unit.gpu, "gpu": told.past.numbers.get(row.unit)} if row.unit.gpu else {}),
        "lemon": row.lemon,
        "hours": row.hours,
        "interruptions": row.interruptions,
        "expected": row.expected,
        "per_hour": row.per_hour,
        **{kind: row.kinds[kind] for kind in ("named", "slow", "xid", "out")},
        "jobs": sorted(row.jobs),
        "failed_jobs": row.failed,
        "gpu_hours_lost": row.lost,
    }
