"""Reports on an experiment with an injected fault, or on failures and recoveries over a period,
from what a Prometheus (or VictoriaMetrics, or another server with its API) has kept.  A report is
one HTML file that needs nothing else; JSON and CSV serve further work, and the figures a paper."""

from __future__ import annotations

import argparse
import base64
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from stagewatch.core.config import duration
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report import pages, records
from stagewatch.report.experiment import Wanted, make_experiment
from stagewatch.report.periods import Period, between, iso, moment, month
from stagewatch.report.progress import Progress
from stagewatch.report.recovery import Asked, make_recovery

TIMEOUT_SECONDS = 60.0

Files = Mapping[str, str | bytes]
"""Contents by the name of the file."""

Figures = Sequence[Callable[[], Mapping[str, bytes]]]
"""For each figure, a function that makes its files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch report`."""
    kinds = parser.add_subparsers(title="reports", metavar="REPORT", dest="report", required=True)
    experiment = kinds.add_parser("experiment", help="one injected fault and what it did")
    _add_experiment(experiment)
    recovery = kinds.add_parser("recovery", help="failures and recoveries over a period")
    _add_recovery(recovery)
    for each in (experiment, recovery):
        _add_server(each)
        _add_output(each)


def run(arguments: argparse.Namespace) -> int:
    """Write the report; returns exit status 0."""
    _find_matplotlib()
    api = _api(arguments)
    progress = Progress()
    try:
        make = _experiment if arguments.report == "experiment" else _recovery
        report, figures = make(api, arguments, progress)
    finally:
        progress.close()
        api.close()
    for file in _write(_places(arguments, report, figures)):
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
        type=_duration,
        default=300.0,
        metavar="TIME",
        help="how long after the fault's end to look [default: 5m]",
    )
    parser.add_argument(
        "--days",
        type=float,
        default=31.0,
        metavar="N",
        help="how many days back to look for the marker [default: 31]",
    )


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
        help="availability to aim at [default: 99.9]",
    )
    parser.add_argument(
        "--cluster", default="", metavar="NAME", help="only this cluster [default: all]"
    )
    parser.add_argument(
        "--throughput",
        default="",
        metavar="PROMQL",
        help="throughput by job_id; the word JOBS becomes the matchers of the jobs, as in "
        "sum by (job_id) (tokens{JOBS}) [default: rl_scalar samples_per_second, else steps a "
        "minute]",
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    """The server to ask, and the credentials for it: in files, so that no command line shows
    them."""
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        default=os.environ.get("STAGEWATCH_PROMETHEUS_URL", "http://127.0.0.1:9090"),
        help="server to ask [default: http://127.0.0.1:9090; STAGEWATCH_PROMETHEUS_URL]",
    )
    parser.add_argument(
        "--bearer-token-file", type=Path, metavar="FILE", help="file with a token for the server"
    )
    parser.add_argument(
        "--basic-auth-file",
        type=Path,
        metavar="FILE",
        help="file with USER:PASSWORD for the server",
    )
    parser.add_argument(
        "--timeout",
        type=_duration,
        default=TIMEOUT_SECONDS,
        metavar="TIME",
        help="how long one query may take [default: 60s]",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="PATH",
        help="FILE.html, or a directory for the page, JSON, CSV and each figure as SVG, PDF and "
        "PNG",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write JSON here too")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write CSV here too")


def _find_matplotlib() -> None:
    """Raise `StagewatchError` where figures cannot be drawn, before the server is asked."""
    for noisy in ("matplotlib", "fontTools"):  # they log each font that they read or embed
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise StagewatchError(
            f"report needs {error.name}: pip install 'stagewatch[report]'"
        ) from error


def _experiment(
    api: PrometheusApi, arguments: argparse.Namespace, progress: Progress
) -> tuple[Files, Figures]:
    """The report by kind of file, and its figures."""
    from stagewatch.report.figures import experiment_figures

    wanted = Wanted(
        fault_id=arguments.fault,
        baseline=arguments.baseline,
        job_id=arguments.job,
        origin=arguments.origin,
        after=arguments.after,
        days=arguments.days,
    )
    experiment = make_experiment(api, wanted, progress)
    drawn = experiment_figures(experiment)
    svg = {name: each.inline() for name, each in drawn.items()}
    report = {
        "html": pages.experiment_page(experiment, svg),
        "json": records.experiment_json(experiment),
        "csv": records.experiment_csv(experiment),
    }
    return report, [each.files for each in drawn.values()]


def _recovery(
    api: PrometheusApi, arguments: argparse.Namespace, progress: Progress
) -> tuple[Files, Figures]:
    """The report by kind of file, and its figures."""
    from stagewatch.report.figures import recovery_figures

    period, budget = _period(arguments)
    asked = Asked(period, budget, arguments.slo, arguments.cluster, arguments.throughput)
    recovery = make_recovery(api, asked, progress)
    drawn = recovery_figures(recovery)
    svg = {name: each.inline() for name, each in drawn.items()}
    title = arguments.month or f"{iso(period.start)[:16]} to {iso(period.end)[:16]}"
    report = {
        "html": pages.recovery_page(recovery, title, svg),
        "json": records.recovery_json(recovery),
        "csv": records.recovery_csv(recovery),
    }
    return report, [each.files for each in drawn.values()]


def _api(arguments: argparse.Namespace) -> PrometheusApi:
    """The server, with credentials.  Raises `ConfigError`."""
    header = ""
    if arguments.bearer_token_file:
        header = f"Bearer {_secret(arguments.bearer_token_file, '--bearer-token-file')}"
    elif arguments.basic_auth_file:
        pair = _secret(arguments.basic_auth_file, "--basic-auth-file")
        header = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return PrometheusApi(arguments.prometheus, timeout=arguments.timeout, authorization=header)


def _secret(file: Path, flag: str) -> str:
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {file}: {getattr(error, 'strerror', None) or error}") from error
    if not secret or not secret.isprintable():
        raise ConfigError(f"{flag} {file}: must hold one line")
    return secret


def _duration(text: str) -> float:
    """Seconds of a flag such as 90s or 5m."""
    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s or 5m") from error


def _percent(text: str) -> float:
    try:
        share = float(text.rstrip("% ")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be above 0 and below 100, as 99.9")
    return share


def _period(arguments: argparse.Namespace) -> tuple[Period, Period]:
    """The period to look at, and the one whose error budget counts: a month's is the whole one."""
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


def _places(
    arguments: argparse.Namespace, report: Files, figures: Figures
) -> dict[Path, str | bytes]:
    """The contents of each file: all of them in a directory, or the page alone."""
    output: Path = arguments.output
    if output.suffix.lower() in (".html", ".htm"):
        files = {output: report["html"]}
    else:
        files = {output / f"report.{kind}": text for kind, text in report.items()}
        for make in figures:
            files |= {output / name: content for name, content in make().items()}
    for kind in ("json", "csv"):
        if chosen := getattr(arguments, kind):
            files[chosen] = report[kind]
    return files


def _write(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Write files and the directories they need.  Raises `StagewatchError`."""
    for file, content in files.items():
        raw = content.encode(errors="backslashreplace") if isinstance(content, str) else content
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(raw)
        except OSError as error:
            raise StagewatchError(f"cannot write {file}: {error.strerror}") from error
    return list(files)
