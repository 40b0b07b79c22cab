"""Reports on an injected fault, on failures and recoveries over a period, or on what the GPUs were
paid for, from the data of a Prometheus, or of another server with its API (VictoriaMetrics).  A
report is one HTML file that needs nothing else; JSON and CSV are for programs, figures for
papers."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagewatch.core.config import add_options, options_of
from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.options import PrometheusOptions
from stagewatch.report import goodput, pages, records, recovery
from stagewatch.report.experiment import Wanted, make_experiment

if TYPE_CHECKING:
    from stagewatch.report.figures import Drawing

GOODPUT = (
    "Reports what the GPUs were paid for: where the hours of a month, or of another "
    "period, went by state, account, user, partition, model and job; failed "
    "runs and money. It needs a Prometheus with "
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
            help="FILE.html for the page alone, or a directory for page, values and figures",
        )
        add_options(
            kind,
            {
                f"report.{name}": options,
                "prometheus": PrometheusOptions,
            },
        )


def run(arguments: argparse.Namespace) -> int:
    """Write the report; returns exit status 0."""
    output: Path = arguments.output
    if arguments.report == "experiment":
        import_module("matplotlib")  # report that it is missing before asking the server
    with closing(PrometheusApi.of(options_of(arguments, PrometheusOptions, "prometheus"))) as api:
        files = _files(api, arguments)
        if output.suffix.lower() in (".html", ".htm"):
            _write(output, next(files)[1])
        else:
            for name, content in files:
                _write(output / name, content)
    return 0


def _files(api: PrometheusApi, arguments: argparse.Namespace) -> Iterator[tuple[str, str | bytes]]:
    """Name and content of each file of the report; the page comes first."""
    report: Any
    csv = ""
    drawn: dict[str, Drawing] = {}
    table = f"report.{arguments.report}"
    if arguments.report == "experiment":
        for noisy in ("matplotlib", "fontTools"):  # they log each font that they read or embed
            logging.getLogger(noisy).setLevel(logging.ERROR)
        from stagewatch.report.figures import experiment_figures

        report = make_experiment(api, options_of(arguments, Wanted, table))
        drawn = experiment_figures(report)
        page = pages.experiment_page(report, {name: one.inline() for name, one in drawn.items()})
        csv = records.experiment_csv(report)
    elif arguments.report == "recovery":
        asked = recovery.asked_of(options_of(arguments, recovery.RecoveryOptions, table))
        report = recovery.make_recovery(api, asked)
        page = pages.recovery_page(report)
    else:
        paid = goodput.asked_of(options_of(arguments, goodput.GoodputOptions, table))
        report = goodput.make_goodput(api, paid)
        page, csv = pages.goodput_page(report), records.goodput_csv(report)
    yield "report.html", page
    yield "report.json", records.report_json(arguments.report, report)
    if csv:
        yield "report.csv", csv
    for name, drawing in drawn.items():
        yield from ((f"{name}.{kind}", drawing.file(kind)) for kind in ("svg", "pdf"))


def _write(file: Path, content: str | bytes) -> None:
    """Write a file and the directories it needs, and print its name.  Raises `StagewatchError`."""
    raw = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
    except OSError as error:
        raise StagewatchError(f"cannot write {file}: {error.strerror}") from error
    print(file)
