"""The pages of an agent; no page can disturb another."""

from __future__ import annotations

import contextlib
import gzip
import logging
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote

from stagewatch.core.context import Lookup, Route
from stagewatch.core.errors import NoData
from stagewatch.core.runner import Runner
from stagewatch.core.shortage import SHORTAGES, is_shortage
from stagewatch.web.connection import Limits
from stagewatch.web.facts import Judged
from stagewatch.web.message import Answer, Refused, Request, Response, plain
from stagewatch.web.metrics import MetricsPage
from stagewatch.web.security import WebSecurity
from stagewatch.web.server import HTTPServer
from stagewatch.web.status import StatusPage

log = logging.getLogger(__name__)

SHARED_SECONDS = 1.0
"""How old a response may be that is sent to a further client while others still receive it."""
SHARED_FROM = 256 << 10
"""Responses of at least so many bytes are shared."""
SHARED_BYTES_PER_SECOND = 2 << 20
"""Longer responses may be older, a second for so many bytes: slow clients then hold few of them."""
_STATIC = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
"""Headers of further pages, which run no script."""
_GZIP_FROM = 1024
"""Compression saves nothing on bodies below this many bytes."""


class AgentServer:
    """Serves `/metrics`, `/-/healthy`, `/-/ready`, the status page at `/`, and further routes.

    Construction binds the address; `start` begins to answer.  `web_config` is a file in the
    format of `stagewatch.web.config_file`.  Raises `ConfigError` for an address that it cannot
    bind and for a file that it cannot use.
    """

    def __init__(
        self,
        address: tuple[str, int],
        runner: Runner,
        *,
        node: str,
        record_dir: Path | None = None,
        routes: Mapping[str, Route] | None = None,
        lookups: Mapping[str, Lookup] | None = None,
        judged: Judged | None = None,
        web_config: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._security = WebSecurity(web_config) if web_config is not None else None
        limits = limits or Limits()
        page = StatusPage(
            runner, node=node, record_dir=record_dir, links=tuple(routes or ()), judged=judged
        )
        answers: dict[str, Answer] = {
            "/": page.whole,
            "/live": page.live,
            "/live.js": page.script,
            "/metrics": MetricsPage(runner),
            "/-/healthy": _healthy,
            "/-/ready": lambda _: ready(runner),
        }
        for path, route in (routes or {}).items():
            answers[path] = _further(route)
        self._pages = {path: _Page(path, answer, limits) for path, answer in answers.items()}
        self._lookups = {
            path: _Page(path, _found_by(lookup, path), limits)
            for path, lookup in (lookups or {}).items()
        }
        tls = self._security if self._security is not None and self._security.tls else None
        self._server = HTTPServer(address, self._answer, limits=limits, tls=tls)
        self.scheme = "https" if tls else "http"
        self.port = self._server.port
        """The port that the server listens on, also where port 0 was asked for."""

    def start(self) -> None:
        """Begin to answer, in the background."""
        self._server.start()

    def close(self) -> None:
        """Stop listening and cut every connection off; returns within a second."""
        self._server.close()

    def _answer(self, request: Request) -> Response:
        if self._security is None:
            return self._page(request)
        return self._security.answer(request, self._page)

    def _page(self, request: Request) -> Response:
        page = self._pages.get(request.path) or self._lookups.get(
            f"{request.path.rpartition('/')[0]}/"
        )
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, "there is no such page")
        if request.method not in ("GET", "HEAD"):
            allowed = {"Allow": "GET, HEAD"}
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", allowed)
        return page.answer(request)


class _Sent:
    """A response that is still being sent, and until when further clients may get it."""

    __slots__ = ("__weakref__", "fresh_until", "response")

    def __init__(self, response: Response) -> None:
        self.response = response
        lasts = max(SHARED_SECONDS, len(response.body) / SHARED_BYTES_PER_SECOND)
        self.fresh_until = time.monotonic() + lasts


class _Page:
    """One path; it makes a limited number of answers at once.

    So a page that hangs holds a few connections, never all of them.  A client that asks while a
    fresh response is still being sent to others gets the same bytes: sixty slow readers of a long
    page take the memory of a few, and a slow page is made once.
    """

    def __init__(self, path: str, make: Answer, limits: Limits) -> None:
        self._path = path
        self._make = make
        self._places = threading.BoundedSemaphore(limits.at_once)
        self._wait = limits.wait_seconds
        self._last_error = ""
        self._sent: weakref.WeakValueDictionary[tuple[str, bool], _Sent]
        self._sent = weakref.WeakValueDictionary()
        self._alone = threading.Lock()
        self._long = False

    def answer(self, request: Request) -> Response:
        """The page, in gzip where that saves bytes and the client takes it."""
        key = request.path, "gzip" in request.headers.get("accept-encoding", "").lower()
        sent = self._sent_now(key)
        if sent is not None:
            return replace(sent.response, held=sent)
        if not self._places.acquire(timeout=self._wait):
            later = {"Retry-After": "1"}
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "this page is busy", later)
        try:
            with self._alone if self._long else contextlib.nullcontext():
                sent = self._sent_now(key)  # others have made it meanwhile
                if sent is None:
                    sent = self._made(request, key)
            return replace(sent.response, held=sent)
        except Refused as refusal:
            return plain(refusal.status, str(refusal))
        except NoData as error:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except Exception as error:  # a defect in one page must not end the others
            message = f"{type(error).__name__}: {error}"
            if is_shortage(error):
                SHORTAGES.met(f"page {self._path} failed: {message}")
            elif message != self._last_error:  # a scrape repeats; its traceback need not
                log.exception("page %s failed", self._path)
                self._last_error = message
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; see the agent's log")
        finally:
            self._places.release()

    def _made(self, request: Request, key: tuple[str, bool]) -> _Sent:
        sent = _Sent(_compressed(self._make(request), in_gzip=key[1]))
        self._long = len(sent.response.body) >= SHARED_FROM
        if self._long:
            self._sent[key] = sent
        return sent

    def _sent_now(self, key: tuple[str, bool]) -> _Sent | None:
        sent = self._sent.get(key)
        return sent if sent is not None and time.monotonic() <= sent.fresh_until else None


def _compressed(response: Response, *, in_gzip: bool) -> Response:
    """The response in gzip where that saves bytes, if the client takes it."""
    if len(response.body) < _GZIP_FROM:
        return response
    vary = ", ".join(filter(None, (response.headers.get("Vary"), "Accept-Encoding")))
    headers = {**response.headers, "Vary": vary}
    if not in_gzip:
        return replace(response, headers=headers)
    headers["Content-Encoding"] = "gzip"
    make = response.in_gzip or partial(gzip.compress, response.body, 1, mtime=0)
    return replace(response, body=make(), headers=headers, in_gzip=None)


def _healthy(_: Request) -> Response:
    return plain(HTTPStatus.OK, "healthy")


def ready(runner: Runner) -> Response:
    """200 while at least one collector answers, else 503."""
    if runner.ready():
        return plain(HTTPStatus.OK, "ready")
    return plain(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: no collector answers; see /")


def _further(route: Route) -> Answer:
    def answer(_: Request) -> Response:
        content_type, body = route()
        return Response(HTTPStatus.OK, content_type, body, _STATIC)

    return answer


def _found_by(lookup: Lookup, path: str) -> Answer:
    def answer(request: Request) -> Response:
        found = lookup(unquote(request.path.removeprefix(path)))
        if found is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        content_type, body = found
        return Response(HTTPStatus.OK, content_type, body, _STATIC)

    return answer
