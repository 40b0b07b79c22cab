"""`/`: this node or cluster at a glance, for a person who has only a browser.

The server makes the page from the collectors' latest samples and, on a node, from the judgement on
its ranks.  A browser with script renews the facts in place (`/live`, by `/live.js`); one without it
reloads the page.  Nothing is loaded from elsewhere.
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
from typing import TYPE_CHECKING, Any

import stagewatch
from stagewatch.core.page import style
from stagewatch.core.runner import Runner
from stagewatch.core.words import denied, duration, printable, size
from stagewatch.web.facts import OPEN_ROWS, Judged, facts_of, next_steps
from stagewatch.web.message import Request, Response

if TYPE_CHECKING:
    import jinja2

REFRESH_SECONDS = 5
MAX_ROWS = 256
"""Most rows of a table; a line beneath it counts the rest."""

SHARE = 0.002
"""The largest share of a core that renewing the facts takes, however many clients look at them."""
_KEPT_SECONDS = (1.0, 10.0)
"""The limits of the age at which facts are made anew."""


class StatusPage:
    """Answers with the page; `links` are further paths to name at its foot."""

    def __init__(
        self,
        runner: Runner,
        *,
        node: str,
        record_dir: Path | None = None,
        links: Sequence[str] = (),
        judged: Judged | None = None,
    ) -> None:
        self._runner = runner
        self._node = node
        self._record_dir = record_dir
        self._judged = judged
        self._links = ("/metrics", "/-/healthy", "/-/ready", *links)
        self._started = time.time()
        self._making = threading.Lock()
        self._facts = ""
        self._due = 0.0
        templates = resources.files(__package__) / "templates"
        self._style = style(__package__, "status.css")
        self._script = (templates / "live.js").read_bytes()
        digest = base64.b64encode(hashlib.sha256(self._style.encode()).digest()).decode()
        self._headers = {
            "Content-Security-Policy": (
                f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
                "script-src 'self'; connect-src 'self'; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
            "Referrer-Policy": "no-referrer",
        }

    def whole(self, _: Request) -> Response:
        """The page."""
        facts = self._renewed()
        page = self._environment.get_template("page.html.jinja").render(
            facts=facts,
            node=self._node,
            links=self._links,
            style=self._style,
            version=stagewatch.__version__,
            started=self._started,
            refresh_seconds=REFRESH_SECONDS,
        )
        return self._response("text/html", page.encode("utf-8", "replace"))

    def live(self, _: Request) -> Response:
        """The changing part of the page: its `<main>`."""
        return self._response("text/html", self._renewed().encode("utf-8", "replace"))

    def script(self, _: Request) -> Response:
        """The script that renews it in a browser."""
        return self._response("text/javascript", self._script)

    def _response(self, content_type: str, body: bytes) -> Response:
        return Response(HTTPStatus.OK, f"{content_type}; charset=utf-8", body, self._headers)

    def _renewed(self) -> str:
        """The facts in HTML, renewed so seldom that it takes no more than `SHARE` of a core."""
        with self._making:
            if time.monotonic() >= self._due:
                template = self._environment.get_template("status.html.jinja")
                began = time.thread_time()
                self._facts = self._render(template)
                least, most = _KEPT_SECONDS
                kept = (time.thread_time() - began) / SHARE
                self._due = time.monotonic() + min(max(least, kept), most)
            return self._facts

    def _render(self, template: jinja2.Template) -> str:
        return template.render(
            facts=facts_of(self._runner, self._judged),
            node=self._node,
            record_dir=self._record_dir,
            now=time.time(),
            max_rows=MAX_ROWS,
            open_rows=OPEN_ROWS,
            next_steps=next_steps,
        )

    @cached_property
    def _environment(self) -> jinja2.Environment:
        """The templates; made at the first look, so that without one, jinja2 is not in memory."""
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
        environment.filters |= {"data_url": data_url, "denied": denied}
        return environment


def _fit_to_print(value: object) -> object:
    """A value for the templates, without characters that do not print or that reorder text."""
    if value is None:
        return ""
    if hasattr(value, "__html__"):  # what a macro made; its parts have been here
        return value
    return printable(str(value), substitute="\N{REPLACEMENT CHARACTER}")


def _or_nothing(show: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    return lambda value: None if value is None else show(value)


def data_url(document: str) -> str:
    """The address of an image that holds its own SVG document."""
    return f"data:image/svg+xml;base64,{base64.b64encode(document.encode()).decode()}"


def percent(ratio: float) -> str:
    """A ratio as a percentage."""
    return f"{100 * ratio:.0f} %"


def moment(timestamp: float) -> str:
    """A Unix time as a date and time in UTC."""
    return datetime.fromtimestamp(timestamp, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
