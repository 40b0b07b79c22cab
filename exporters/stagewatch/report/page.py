"""Renders a report as one HTML file that needs nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

import stagewatch
from stagewatch.report.axes import number
from stagewatch.report.periods import clock, iso, span
from stagewatch.report.svg import Figure


def render(template: str, **content: Any) -> str:
    """A template with its content; every text is escaped, only figures are taken as they are."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stagewatch.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "span": span,
        "iso": iso,
        "clock": clock,
        "number": _number,
        "figure": _figure,
        "share": _share,
        "hours": _hours,
    }
    css = (Path(__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(
        css=markupsafe.Markup(css),  # noqa: S704 - our own file
        version=stagewatch.__version__,
        made=iso(time.time()),
        **content,
    )


def _figure(figure: Figure) -> markupsafe.Markup:
    return markupsafe.Markup(figure.inline())  # noqa: S704 - built of elements, see svg


def _number(value: float | None, unit: str = "") -> str:
    return "–" if value is None else number(value, unit)


def _share(value: float | None) -> str:
    """A share, with as many digits as tell 99.9 from 99.99 %."""
    if value is None:
        return "not seen"
    return "100 %" if value == 1 else f"{100 * min(value, 0.99999):.3f} %"


def _hours(value: float | None) -> str:
    if value is None:
        return "not seen"
    return f"{value:.2f}" if value >= 0.1 or not value else f"{value:.2g}"
