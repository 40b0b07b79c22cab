"""`/`: this node at a glance, for a person who has only a browser.

The server makes the page from the collectors' latest samples: no script, nothing loaded from
elsewhere.  The page states facts about this node; verdicts need the whole job and are Prometheus'
work.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import cached_property
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import stagewatch
from stagewatch.core.runner import Runner
from stagewatch.core.words import duration, printable, size
from stagewatch.web.facts import FAULT_SHOWN_SECONDS, facts_of
from stagewatch.web.message import Request, Response

if TYPE_CHECKING:
    import jinja2

REFRESH_SECONDS = 5
MAX_ROWS = 256
"""Most rows of a table; a line beneath it counts the rest."""

_KEPT_SECONDS = 1.0
"""Age up to which a page is given out again, so that many viewers cost no more than one."""


class StatusPage:
    """Answers with the page; `links` are further paths to name at its foot."""

    def __init__(
        self,
        runner: Runner,
        *,
        node: str,
        record_dir: Path | None = None,
        links: Sequence[str] = (),
    ) -> None:
        self._runner = runner
        self._node = node
        self._record_dir = record_dir
        self._links = ("/metrics", "/-/healthy", "/-/ready", *links)
        self._started = time.monotonic()
        self._making = threading.Lock()
        self._last: tuple[float, bytes] | None = None
        self._style = (resources.files(__package__) / "templates/status.css").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(self._style.encode()).digest()).decode()
        self._headers = {
            "Content-Security-Policy": (
                f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
            "Referrer-Policy": "no-referrer",
        }

    def __call__(self, _: Request) -> Response:
        """The page, made anew at most once a second whoever asks."""
        with self._making:
            now = time.monotonic()
            if self._last is None or now - self._last[0] > _KEPT_SECONDS:
                self._last = (now, self._page().encode("utf-8", "replace"))
            body = self._last[1]
        return Response(HTTPStatus.OK, "text/html; charset=utf-8", body, self._headers)

    def _page(self) -> str:
        return self._template.render(
            facts=facts_of(self._runner),
            node=self._node,
            record_dir=self._record_dir,
            links=self._links,
            style=self._style,
            version=stagewatch.__version__,
            up_seconds=time.monotonic() - self._started,
            now=time.time(),
            refresh_seconds=REFRESH_SECONDS,
            fault_shown_seconds=FAULT_SHOWN_SECONDS,
            max_rows=MAX_ROWS,
        )

    @cached_property
    def _template(self) -> jinja2.Template:
        """The template; an agent whose page nobody looks at does without jinja2 in memory."""
        import jinja2

        environment = jinja2.Environment(
            loader=jinja2.PackageLoader(__package__),
            autoescape=True,
            finalize=_fit_to_print,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for show in (duration, size, percent, moment):
            environment.filters[show.__name__] = _or_nothing(show)
        return environment.get_template("status.html.jinja")


def _fit_to_print(value: object) -> object:
    """What the templates insert, without characters that do not print or that reorder text."""
    if value is None:
        return ""
    if hasattr(value, "__html__"):  # what a macro made; its parts have been here
        return value
    return printable(str(value), substitute="\N{REPLACEMENT CHARACTER}")


def _or_nothing(show: Callable[[float], str | None]) -> Callable[[float | None], str | None]:
    return lambda value: None if value is None else show(value)


def percent(ratio: float) -> str:
    """A ratio as a percentage."""
    return f"{100 * ratio:.0f} %"


def moment(timestamp: float) -> str | None:
    """A Unix time as a date and time in UTC; None where there is no such date."""
    try:
        return datetime.fromtimestamp(timestamp, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # other users can write what this is read from
        return None
