"""Reports on an experiment with an injected fault, on failures and recoveries over a period, or on
what the GPUs were paid for, from what a Prometheus (or VictoriaMetrics, or another server with its
API) has kept.  A report is
one HTML file that needs nothing else; JSON and CSV serve further work, and the figures a paper."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from stagewatch.core.config import add_options, option, options_of
from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.options import PrometheusOptions
from stagewatch.report import goodput, pages, records, recovery
from stagewatch.report.experiment import Wanted, make_experiment

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


GOODPUT = (
    "Reports what the GPUs were paid for: where the hours of a month, or of another "
    "period, went by state, account, user, partition, model and job; what cost most and where; "
    "failed runs and money; and how it was the month before. It needs a Prometheus with "
    "the rules of alerts/goodput.rules.yaml, and counts from when they were loaded."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch report`."""
    kinds = parser.add_subparsers(title="reports", metavar="REPORT", dest="report", required=True)
    hours = "where the paid GPU-hours went, and the money"
    for name, options, help, description in (
        ("experiment", Wanted, "one injected fault and what it did", None),
        ("recovery", recovery.RecoveryOptions, "failures and recoveries over a period", None),
        ("goodput", goodput.GoodputOptions, hours, GOODPUT),
    ):
        kind = kinds.add_parser(name, help=help, description=description)
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
    try:
        report = _asked(api, arguments)
    finally:
        api.close()
    for name, content in _files(arguments.report, report, wanted).items():
        _write(output if page else output / name, content)
    return 0


def _asked(api: PrometheusApi, arguments: argparse.Namespace) -> Any:
    """The report that the arguments name."""
    table = f"report.{arguments.report}"
    if arguments.report == "experiment":
        return make_experiment(api, options_of(arguments, Wanted, table))
    if arguments.report == "recovery":
        asked = recovery.asked_of(options_of(arguments, recovery.RecoveryOptions, table))
        return recovery.make_recovery(api, asked)
    paid = goodput.asked_of(options_of(arguments, goodput.GoodputOptions, table))
    return goodput.make_goodput(api, paid)


def _files(report: str, content: Any, formats: Sequence[str]) -> Files:
    """The files of a report in some formats."""
    from stagewatch.report import figures

    kinds: dict[str, tuple[Any, Any, Any]] = {
        "experiment": (figures.experiment_figures, pages.experiment_page, records.experiment_csv),
        "recovery": (figures.recovery_figures, pages.recovery_page, records.recovery_csv),
        "goodput": (figures.goodput_figures, pages.goodput_page, records.goodput_csv),
    }
    draw, page, csv = kinds[report]
    files: Files = {}
    drawn = draw(content) if {"html", *FIGURES} & set(formats) else {}
    if "html" in formats:
        inline = {name: [each.inline() for each in widths] for name, widths in drawn.items()}
        files["report.html"] = page(content, inline)
    if "json" in formats:
        files["report.json"] = records.report_json(report, content)
    if "csv" in formats:
        files["report.csv"] = csv(content)
    for each in (each for widths in drawn.values() for each in widths):
        files |= {f"{each.name}.{kind}": each.file(kind) for kind in FIGURES if kind in formats}
    return files


def _write(file: Path, content: str | bytes) -> None:
    """Write a file and the directories it needs, and print its name.  Raises `StagewatchError`."""
    raw = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
    except OSError as error:
        raise StagewatchError(f"cannot write {file}: {error.strerror}") from error
    print(file)
