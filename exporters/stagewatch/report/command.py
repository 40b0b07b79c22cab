"""Reports on an experiment with an injected fault, on failures and recoveries over a period, or on
what the GPUs were paid for, from what a Prometheus (or VictoriaMetrics, or another server with its
API) has kept.  A report is
one HTML file that needs nothing else; JSON and CSV serve further work, and the figures a paper."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from stagewatch.core.config import add_options, duration, number, option, options_of, path
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.options import PrometheusOptions
from stagewatch.report import pages, records
from stagewatch.report.experiment import Wanted, make_experiment
from stagewatch.report.goodput import Asked as GoodputAsked
from stagewatch.report.goodput import make_goodput
from stagewatch.report.periods import Period, between, iso, minute, moment, month, month_words, span
from stagewatch.report.prices import price, read_prices
from stagewatch.report.progress import Progress
from stagewatch.report.recovery import Asked, make_recovery

if TYPE_CHECKING:
    from stagewatch.report.drawing import Drawing

Drawn = Mapping[str, Sequence["Drawing"]]
"""Figures by name, in each width."""
Files = dict[str, str | bytes]
"""Contents by the name of the file."""

FIGURES = ("svg", "pdf", "png")
FORMATS = ("html", "json", "csv", *FIGURES)


def formats(value: object) -> tuple[str, ...]:
    """some of html, json, csv, svg, pdf, png, separated by commas"""
    chosen = tuple(each.strip().lower() for each in str(value).split(",") if each.strip())
    if not chosen or not set(chosen) <= set(FORMATS):
        raise ValueError
    return chosen


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options of all reports on what to write."""

    format: tuple[str, ...] = option(
        FORMATS,
        "what to write to a directory, by commas: html (the page), json and csv (values), "
        "svg, pdf and png (figures)",
        parse=formats,
    )


def percent(value: object) -> float:
    """a number of percent above 0 and below 100, as 99.9"""
    share = number(value.rstrip("% ") if isinstance(value, str) else value)
    if share >= 100:
        raise ValueError
    return share


@dataclass(frozen=True, slots=True)
class PeriodOptions:
    """Options of reports on a period."""

    start: str = option(
        "",
        "beginning, as 2026-11-21T14:30:00Z, or 12h, which is 12 hours ago; 24 hours before the "
        "end if empty",
        flag="--from",
    )
    end: str = option("", "end, likewise: from 12h to 2h are ten hours; now if empty", flag="--to")
    month: str = option("", "a whole month in UTC instead, as 2026-11")


@dataclass(frozen=True, slots=True)
class RecoveryOptions(PeriodOptions):
    """Options of `stagewatch report recovery`."""

    slo: float = option(99.9, "availability to aim at, in percent", parse=percent)
    cluster: str = option("", "only this cluster; all if empty")
    throughput: str = option(
        "samples_per_second",
        "scalar of the ranks (rl_scalar) that is a throughput, summed; steps a minute where a job "
        "has none",
    )


@dataclass(frozen=True, slots=True)
class GoodputOptions(PeriodOptions):
    """Options of `stagewatch report goodput`."""

    cluster: str = option("", "only this cluster; all if empty")
    user: str = option("", "only jobs of this user; GPUs outside of jobs are then left out")
    account: str = option("", "only jobs of this account, likewise")
    partition: str = option("", "only jobs of this partition, likewise")
    price: float | None = option(
        None, "what a GPU-hour costs, as 2.50; no money is shown without", parse=price
    )
    price_file: Path | None = option(
        None,
        "TOML file with the price of a GPU-hour by model of GPU instead: h100 = 2.50, and other = "
        "1.00 for all that have no line of their own",
        parse=path,
    )
    currency: str = option("USD", "unit of the prices")


DESCRIPTIONS = {
    "goodput": "Reports what the GPUs were paid for: where the hours of a month, or of another "
    "period, went by state, account, user, partition, model and job; what cost most and where; "
    "failed runs, energy and money; and how it was the month before. It needs a Prometheus with "
    "the rules of alerts/goodput.rules.yaml, and counts from when they were loaded.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch report`."""
    kinds = parser.add_subparsers(title="reports", metavar="REPORT", dest="report", required=True)
    for name, options, help in (
        ("experiment", Wanted, "one injected fault and what it did"),
        ("recovery", RecoveryOptions, "failures and recoveries over a period"),
        ("goodput", GoodputOptions, "where the paid GPU-hours of a month went, and the money"),
    ):
        kind = kinds.add_parser(name, help=help, description=DESCRIPTIONS.get(name))
        kind.add_argument(
            "--output",
            type=Path,
            required=True,
            metavar="PATH",
            help="FILE.html, or a directory for the page, the values and each figure",
        )
        add_options(
            kind,
            {
                f"report.{name}": options,
                "report.output": OutputOptions,
                "prometheus": PrometheusOptions,
            },
        )


def run(arguments: argparse.Namespace) -> int:
    """Write the report; returns exit status 0."""
    output: Path = arguments.output
    page = output.suffix.lower() in (".html", ".htm")
    wanted = ("html",) if page else options_of(arguments, OutputOptions, "report.output").format
    for noisy in ("matplotlib", "fontTools"):  # they log each font that they read or embed
        logging.getLogger(noisy).setLevel(logging.ERROR)
    import_module("matplotlib")  # a lack of it is told before the server is asked
    api = PrometheusApi.of(options_of(arguments, PrometheusOptions, "prometheus"))
    progress = Progress()
    api.on_query = progress.step
    try:
        make = {"experiment": _experiment, "recovery": _recovery, "goodput": _goodput}
        files = _files(make[arguments.report](api, arguments), wanted)
    finally:
        progress.close()
        api.close()
    if page:
        _write(output, files["report.html"])
    else:
        for name, content in files.items():
            _write(output / name, content)
    return 0


@dataclass(frozen=True, slots=True)
class Made:
    """A report, and how each of its files is made."""

    drawn: Callable[[], Drawn]
    page: Callable[[Mapping[str, Sequence[str]]], str]
    json: Callable[[], str]
    csv: Callable[[], str]


def _experiment(api: PrometheusApi, arguments: argparse.Namespace) -> Made:
    from stagewatch.report.figures import experiment_figures

    wanted = options_of(arguments, Wanted, "report.experiment")
    experiment = make_experiment(api, wanted)
    return Made(
        partial(experiment_figures, experiment),
        partial(pages.experiment_page, experiment),
        partial(records.experiment_json, experiment),
        partial(records.experiment_csv, experiment),
    )


def _recovery(api: PrometheusApi, arguments: argparse.Namespace) -> Made:
    from stagewatch.report.figures import recovery_figures

    options = options_of(arguments, RecoveryOptions, "report.recovery")
    period, budget = _period(options)
    slo = round(options.slo / 100, 12)
    asked = Asked(period, budget, slo, options.cluster, options.throughput)
    recovery = make_recovery(api, asked)
    title = options.month or f"{iso(period.start)[:16]} to {iso(period.end)[:16]}"
    return Made(
        partial(recovery_figures, recovery),
        lambda drawn: pages.recovery_page(recovery, title, drawn),
        partial(records.recovery_json, recovery),
        partial(records.recovery_csv, recovery),
    )


def _goodput(api: PrometheusApi, arguments: argparse.Namespace) -> Made:
    from stagewatch.report.figures import goodput_figures

    options = options_of(arguments, GoodputOptions, "report.goodput")
    prices = read_prices(options.price, options.price_file, options.currency)
    period, whole = _period(options)
    if options.month:
        before = month(iso(whole.start - 1)[:7])
        title, before_title = month_words(whole), month_words(before)
        if period.end < whole.end:
            title += f" (until {minute(period.end)} UTC)"
        when = f"In {title}"
    else:
        before = Period(period.start - period.seconds, period.start)
        title = f"{minute(period.start)} to {minute(period.end)} UTC"
        when, before_title = f"From {title}", f"the {span(period.seconds)} before"
    goodput = make_goodput(
        api,
        GoodputAsked(
            period=period,
            before=before,
            title=title,
            when=when,
            before_title=before_title,
            cluster=options.cluster,
            user=options.user,
            account=options.account,
            partition=options.partition,
            prices=prices,
        ),
    )
    return Made(
        partial(goodput_figures, goodput),
        partial(pages.goodput_page, goodput),
        partial(records.goodput_json, goodput),
        partial(records.goodput_csv, goodput),
    )


def _files(made: Made, formats: Sequence[str]) -> Files:
    """The report, its values, and its figures."""
    drawn = made.drawn() if {"html", *FIGURES} & set(formats) else {}
    files: Files = {}
    if "html" in formats:
        inline = {name: [each.inline() for each in widths] for name, widths in drawn.items()}
        files["report.html"] = made.page(inline)
    if "json" in formats:
        files["report.json"] = made.json()
    if "csv" in formats:
        files["report.csv"] = made.csv()
    return files | {
        f"{each.name}.{format}": each.file(format)
        for widths in drawn.values()
        for each in widths
        for format in FIGURES
        if format in formats
    }


def _period(options: PeriodOptions) -> tuple[Period, Period]:
    """The period to look at, and the one whose error budget counts: a month's is the whole one."""
    now = time.time()
    if options.month:
        if options.start or options.end:
            raise ConfigError("--month and --from or --to exclude each other")
        whole = month(options.month)
        if whole.start >= now:
            raise ConfigError(f"--month {options.month} has not begun")
        return Period(whole.start, min(whole.end, now)), whole
    end = min(now, _when(options.end, "--to", now)) if options.end else now
    start = _when(options.start, "--from", now) if options.start else end - duration("24h")
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


def _write(file: Path, content: str | bytes) -> None:
    """Write a file and the directories it needs, and print its name.  Raises `StagewatchError`."""
    raw = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
    except OSError as error:
        raise StagewatchError(f"cannot write {file}: {error.strerror}") from error
    print(file)
