"""Makes reports of what a Prometheus (or VictoriaMetrics, or another of its kind) has kept: of an
experiment with an injected fault, or of failures and recoveries over a period.  Each is one HTML
file that needs nothing else, with JSON and CSV for further work."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from stagewatch.core.config import duration
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report import experiment_files, recovery_files, server
from stagewatch.report.experiment import Wanted, make_experiment
from stagewatch.report.periods import Period, between, iso, moment, month
from stagewatch.report.progress import Progress
from stagewatch.report.recovery import Asked, make_recovery


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch report`."""
    kinds = parser.add_subparsers(title="reports", metavar="REPORT", dest="report", required=True)
    _add_experiment(kinds.add_parser("experiment", help="one injected fault and what it did"))
    _add_recovery(kinds.add_parser("recovery", help="failures and recoveries over a period"))


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 when the report is written."""
    api = server.api_of(arguments)
    progress = Progress()
    try:
        make = _experiment if arguments.report == "experiment" else _recovery
        files = make(api, arguments, progress)
    finally:
        progress.close()
        api.close()
    for file in write(files):
        print(file)
    return 0


def _add_experiment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fault", required=True, metavar="ID", help="id of the fault's marker")
    parser.add_argument(
        "--baseline",
        default="10m-before",
        metavar="PERIOD",
        help="what is normal: 10m-before (the injection) or START..END [default: 10m-before]",
    )
    parser.add_argument("--job", default="", metavar="ID", help="job [default: the only one]")
    parser.add_argument(
        "--origin",
        default="",
        metavar="PLACE",
        help="where the fault was put, as train:5, node-a or /mnt; several by commas [default: the "
        "marker's target]",
    )
    parser.add_argument(
        "--after",
        type=server.duration_given,
        default=300.0,
        metavar="TIME",
        help="how long after the fault's end to look [default: 5m]",
    )
    parser.add_argument(
        "--days",
        type=float,
        default=31.0,
        metavar="N",
        help="how far back to find it [default: 31]",
    )
    _add_common(parser)


def _add_recovery(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="start",
        metavar="TIME",
        help="beginning, as 2026-11-21T14:30:00Z, or 12h, which is 12 hours ago [default: 24 hours "
        "before the end]",
    )
    parser.add_argument(
        "--to",
        dest="end",
        metavar="TIME",
        help="end, likewise: from 12h to 2h are ten hours [default: now]",
    )
    parser.add_argument("--month", metavar="YYYY-MM", help="a whole month in UTC, instead")
    parser.add_argument(
        "--slo",
        type=_percent,
        default=0.999,
        metavar="PERCENT",
        help="availability that is aimed at [default: 99.9]",
    )
    parser.add_argument(
        "--cluster", default="", metavar="NAME", help="only this one [default: all]"
    )
    parser.add_argument(
        "--throughput",
        default="",
        metavar="PROMQL",
        help="what throughput is, by job_id; JOBS stands for the selector [default: rl_scalar "
        "samples_per_second, else steps a minute]",
    )
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    server.add_arguments(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="PATH",
        help="FILE.html, or a directory for the page, JSON, CSV and each figure as SVG",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write JSON here too")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write CSV here too")


def _percent(text: str) -> float:
    try:
        share = float(text.rstrip("% ")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be above 0 and below 100, as 99.9")
    return share


def _experiment(
    api: PrometheusApi, arguments: argparse.Namespace, progress: Progress
) -> dict[Path, str]:
    wanted = Wanted(
        fault_id=arguments.fault,
        baseline=arguments.baseline,
        job_id=arguments.job,
        origin=arguments.origin,
        after=arguments.after,
        days=arguments.days,
    )
    experiment = make_experiment(api, wanted, progress)
    drawn = experiment_files.figures(experiment)
    pages = {"html": experiment_files.html(experiment, drawn)}
    pages |= {
        "json": experiment_files.json_of(experiment),
        "csv": experiment_files.csv_of(experiment),
    }
    return _files(arguments, pages, {each.name: each.standalone() for each in drawn.values()})


def _recovery(
    api: PrometheusApi, arguments: argparse.Namespace, progress: Progress
) -> dict[Path, str]:
    period, budget = _period(arguments)
    asked = Asked(period, budget, arguments.slo, arguments.cluster, arguments.throughput)
    recovery = make_recovery(api, asked, progress)
    title = arguments.month or f"{iso(period.start)[:16]} to {iso(period.end)[:16]}"
    pages = {"html": recovery_files.html(recovery, title)}
    pages |= {"json": recovery_files.json_of(recovery), "csv": recovery_files.csv_of(recovery)}
    return _files(arguments, pages, recovery_files.figures(recovery))


def _period(arguments: argparse.Namespace) -> tuple[Period, Period]:
    """What to look at, and what the error budget is of: a month's is the whole month's."""
    now = time.time()
    if arguments.month:
        if arguments.start or arguments.end:
            raise ConfigError("--month and --from or --to exclude each other")
        whole = month(arguments.month)
        if whole.start >= now:
            raise ConfigError(f"--month {arguments.month} has not begun")
        return Period(whole.start, min(whole.end, now)), whole
    end = min(now, _when(arguments.end, "--to", now)) if arguments.end else now
    start = _when(arguments.start, "--from", now) if arguments.start else end - duration("24h")
    period = between(start, end, "--from and --to")
    return period, period


def _when(text: str, flag: str, now: float) -> float:
    """A time, or a duration ago."""
    try:
        return (
            now - duration(text) if text[-1:].isalpha() and text[-1] != "Z" else moment(text, flag)
        )
    except ValueError as error:
        raise ConfigError(f"{flag} {text!r}: must be a time or a duration such as 24h") from error


def _files(
    arguments: argparse.Namespace, pages: dict[str, str], drawings: dict[str, str]
) -> dict[Path, str]:
    """What to write where: all of it into a directory, or the page alone into a file."""
    output: Path = arguments.output
    if output.suffix.lower() in (".html", ".htm"):
        files = {output: pages["html"]}
    else:
        files = {output / f"report.{kind}": text for kind, text in pages.items()}
        files |= {output / f"{name}.svg": text for name, text in drawings.items()}
    for kind in ("json", "csv"):
        if chosen := getattr(arguments, kind):
            files[chosen] = pages[kind]
    return files


def write(files: dict[Path, str]) -> list[Path]:
    """Write them; directories are made.  Raises `StagewatchError`."""
    for file, text in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise StagewatchError(f"cannot write {file}: {error.strerror}") from error
    return list(files)
