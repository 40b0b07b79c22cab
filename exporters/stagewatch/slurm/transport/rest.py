"""Asks a cluster through slurmrestd, over HTTP or a Unix socket.

https://slurm.schedmd.com/rest.html.  The agent uses the newest API version that both sides know. A
request has a timeout. The token goes into a header; the agent reads it from its file for every
request, since JWTs are renewed, and never logs it.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from stagewatch.core.errors import NoData, SourceError, Stuck
from stagewatch.slurm import model
from stagewatch.slurm.model import Object, Records
from stagewatch.slurm.transport import diagnostics, json

MAX_BODY = 512 * 1024 * 1024
_MAX_COMPLAINT = 64 * 1024


class HttpFailure(Exception):
    """A status other than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.body = body


class HttpReader:
    """GETs from one server; one request at a time.

    `url` is `http://host:port`, `https://...` or `unix:/path/of/the/socket`.
    """

    def __init__(
        self, url: str, *, user: str = "", token_file: Path | None = None, max_body: int = MAX_BODY
    ) -> None:
        self._user = user
        self._token_file = token_file
        self._max_body = max_body
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy, no .netrc
        self._where = url
        self._base = url.rstrip("/")
        self._call: _Call | None = None
        if url.startswith("unix:"):
            self._base = "http+unix://" + quote(url.removeprefix("unix:"), safe="")
            self._session.mount("http+unix://", _UnixAdapter())

    def get(self, path: str, timeout: float, query: Mapping[str, str] | None = None) -> bytes:
        """The body of a page. Raises `HttpFailure` for a status other than 200, `SourceError` if no
        server answers, or if the answer is too large or not complete after `timeout` seconds, and
        `Stuck` while a request that timed out has not ended.
        """
        if self._call is not None and not self._call.done.is_set():
            raise Stuck(f"{self._where}: the request before this one has not come to its end")
        self._call = _Call(lambda: self._get(path, timeout, dict(query or {})))
        outcome = self._call.wait(timeout)
        if outcome is None:
            raise SourceError(f"{self._where} gave no answer within {timeout:g} s")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _get(self, path: str, timeout: float, query: dict[str, str]) -> bytes:
        try:
            answer = self._session.get(
                self._base + path,
                params=query,
                headers=self._headers(),
                timeout=timeout,
                stream=True,
                allow_redirects=False,
            )
            with answer:
                body = self._read(answer)
        except requests.Timeout as error:
            raise SourceError(f"{self._where} gave no answer within {timeout:g} s") from error
        except requests.RequestException as error:
            raise SourceError(f"{self._where} cannot be asked: {_cause(error)}") from error
        if answer.status_code != 200:
            raise HttpFailure(answer.status_code, body[:_MAX_COMPLAINT])
        return body

    def _read(self, answer: requests.Response) -> bytes:
        body = bytearray()
        for chunk in answer.iter_content(1 << 16):
            body += chunk
            if len(body) > self._max_body:
                raise SourceError(f"{self._where} sent more than {self._max_body >> 20} MiB")
        return bytes(body)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self._user:
            headers["X-SLURM-USER-NAME"] = self._user
        if self._token_file is not None:
            try:
                token = self._token_file.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise SourceError(f"{self._token_file}: the token cannot be read") from error
            headers["X-SLURM-USER-TOKEN"] = token.removeprefix("SLURM_JWT=")
        return headers


class _Call:
    """A call in its own thread, with a timeout.

    A socket's timeouts limit every single wait, but not their sum, nor the resolver.
    """

    def __init__(self, call: Callable[[], bytes]) -> None:
        self.done = threading.Event()
        self._result: bytes | BaseException | None = None
        try:
            threading.Thread(target=self._run, args=(call,), name="http", daemon=True).start()
        except RuntimeError as error:  # the limit of threads
            raise SourceError(f"slurmrestd cannot be asked: {error}") from error

    def wait(self, timeout: float) -> bytes | BaseException | None:
        """The body or the error; `None` if the call still runs after `timeout` seconds."""
        return self._result if self.done.wait(timeout) else None

    def _run(self, call: Callable[[], bytes]) -> None:
        try:
            self._result = call()
        except BaseException as error:  # handed over, whatever it is
            self._result = error
        finally:
            self.done.set()


def _cause(error: BaseException) -> str:
    """The innermost cause, without object addresses, so that it reads the same every time."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


class _UnixConnection(HTTPConnection):
    def connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self.timeout if isinstance(self.timeout, (int, float)) else None)
            connection.connect(unquote(self.host))
        except BaseException:
            connection.close()
            raise
        self.sock = connection


class _UnixPool(HTTPConnectionPool):
    ConnectionCls = _UnixConnection


class _UnixAdapter(HTTPAdapter):
    """Takes `http+unix://%2Fpath%2Fof%2Fsocket/page`."""

    def get_connection_with_tls_context(
        self, request: requests.PreparedRequest, *_: Any, **__: Any
    ) -> Any:
        return _UnixPool(urlsplit(request.url or "").netloc)

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        return request.path_url


OLDEST, NEWEST = 36, 45
"""Known versions v0.0.N."""
_LISTS_DUPLICATES = 39
_VERSION = re.compile(r"/slurm/v0\.0\.(\d{1,4})/")
_ENDED = "BOOT_FAIL,CANCELLED,COMPLETED,DEADLINE,FAILED,NODE_FAIL,OUT_OF_MEMORY,PREEMPTED,TIMEOUT"


class SlurmRest:
    """Asks slurmrestd; see `SlurmClient`."""

    def __init__(
        self, reader: Callable[[], HttpReader], *, wall: Callable[[], float] = time.time
    ) -> None:
        self._make_reader = reader
        self._readers: dict[str, HttpReader] = {}
        self._wall = wall
        self._version: int | None = None

    def jobs(self, timeout: float) -> Records[model.Job]:
        """The queue."""
        return json.jobs(self._ask("jobs", "slurm", "jobs", timeout))

    def nodes(self, timeout: float) -> Records[model.Node]:
        """The nodes."""
        return json.nodes(self._ask("nodes", "slurm", "nodes", timeout))

    def diagnostics(self, timeout: float) -> model.Diagnostics:
        """The controller's statistics."""
        return diagnostics.parse_json(self._ask("diagnostics", "slurm", "diag", timeout))

    def ping(self, timeout: float) -> tuple[model.Controller, ...]:
        """Which controllers answer."""
        return json.ping(self._ask("ping", "slurm", "ping", timeout))

    def ended_jobs(self, timeout: float, ago: float) -> Records[model.EndedJob]:
        """Runs that ended. `NoData` before v0.0.39, which does not list runs of requeued jobs."""
        if self._known_version(self._reader("accounting_jobs"), timeout) < _LISTS_DUPLICATES:
            raise NoData("slurmrestd of before 23.02 lists no runs of requeued jobs")
        query = {
            "start_time": f"uts{int(self._wall() - ago)}",
            "state": _ENDED,
            "skip_steps": "true",
            "show_duplicates": "true",
        }
        answer = self._ask("accounting_jobs", "slurmdb", "jobs", timeout, query)
        return json.ended_jobs(answer)

    def node_events(self, timeout: float, ago: float) -> Records[model.NodeEvent]:
        """`NoData`: slurmrestd has no events of nodes."""
        raise NoData("slurmrestd has no events of nodes")

    def gpu_claims(self, timeout: float) -> Records[model.Claim]:
        """None, since the queue itself shows the GPUs of its jobs."""
        return Records(())

    def close(self) -> None:
        """Close every connection."""
        for reader in tuple(self._readers.values()):
            reader.close()

    def _ask(
        self,
        source: str,
        part: str,
        path: str,
        timeout: float,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        reader = self._reader(source)
        version = self._known_version(reader, timeout)
        try:
            body = reader.get(f"/{part}/v0.0.{version}/{path}", timeout, query)
        except HttpFailure as failure:
            if failure.status == 404 and part == "slurmdb":
                raise NoData("slurmrestd has no accounting") from failure
            if failure.status == 404:
                self._version = None  # it was upgraded, perhaps
            complaint = _error_in(failure.body)
            raise SourceError(
                f"slurmrestd: {failure}{f': {complaint}' if complaint else ''}"
            ) from failure
        return json.document(body, f"slurmrestd {path}")

    def _reader(self, source: str) -> HttpReader:
        """The source's own reader, since a reader handles one request at a time."""
        return self._readers.setdefault(source, self._make_reader())

    def _known_version(self, reader: HttpReader, timeout: float) -> int:
        """The newest API version that the server offers and this agent knows."""
        if self._version is not None:
            return self._version
        try:
            body = reader.get("/openapi/v3", timeout)
        except HttpFailure as failure:
            raise SourceError(f"slurmrestd: {failure}") from failure
        paths = json.document(body, "slurmrestd /openapi/v3").get("paths")
        matches = (_VERSION.match(path) for path in (paths if isinstance(paths, dict) else ()))
        offered = {int(match[1]) for match in matches if match}
        usable = [number for number in offered if OLDEST <= number <= NEWEST]
        if not usable:
            seen = ", ".join(f"v0.0.{number}" for number in sorted(offered)) or "none"
            raise SourceError(f"slurmrestd offers no known version of its API ({seen})")
        self._version = max(usable)
        return self._version


def _error_in(body: bytes) -> str:
    try:
        json.document(body, "")
    except SourceError as error:
        complaint = str(error).removeprefix(": ")
        return "" if "JSON" in complaint else complaint
    return ""
