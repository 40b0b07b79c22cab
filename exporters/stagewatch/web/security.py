"""Decides which clients get pages: TLS, client certificates and passwords, by the web-config file.

A change of the file, the certificate, its key or the authority takes effect within a second.  If
the new state cannot be used (a certificate half written), the old one stays in force and the log
says why.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

from stagewatch.core.errors import ConfigError
from stagewatch.web.config_file import TLSConfig, WebConfig, read_web_config
from stagewatch.web.message import Request, Response, plain

log = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 1.0
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="stagewatch", charset="UTF-8"'}

_WAIT_SECONDS = 3.0
"""How long a password waits for its check."""
_REFUSALS_KEPT = 64
_MOST_PASSWORD_BYTES = 72
"""What bcrypt looks at; longer passwords are refused rather than cut."""

Marks = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class _State:
    config: WebConfig
    context: ssl.SSLContext | None
    marks: Marks


class WebSecurity:
    """The settings of the web-config file.  Raises `ConfigError` if it cannot be used."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._auth = _BasicAuth()
        self._looking = threading.Lock()
        self._looked = time.monotonic()
        self._refused = ""
        self._state = self._read()

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted; only a restart changes it."""
        return self._state.context is not None

    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        self._look()
        context = self._state.context
        if context is None:
            raise ConfigError(f"{self._file} has no tls_server_config")
        return context

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client with this verified certificate may get pages."""
        tls = self._state.config.tls
        # A resumed session is not verified again, and the certificate may have run out since.
        if certificate and ssl.cert_time_to_seconds(certificate["notAfter"]) < time.time():
            return False
        if tls is None or not tls.client_allowed_sans:
            return True
        names = (certificate or {}).get("subjectAltName", ())
        return any(name in tls.client_allowed_sans for _, name in names)

    def answer(self, request: Request, make: Callable[[Request], Response]) -> Response:
        """The response to a request of an allowed user, else 401."""
        self._look()
        config = self._state.config
        if config.users:
            try:
                allowed = self._auth.allows(request.headers.get("authorization", ""), config.users)
            except _TooBusy:
                text = "too many passwords are being tried"
                return plain(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "5"})
            if not allowed:
                return plain(HTTPStatus.UNAUTHORIZED, "a user and password are needed", _CHALLENGE)
        return make(request)

    def _look(self) -> None:
        """Load changed files; one thread checks, the others use the current state."""
        if time.monotonic() - self._looked < _LOOK_EVERY_SECONDS:
            return
        if not self._looking.acquire(blocking=False):
            return
        try:
            tls = self._state.config.tls
            if _marks(self._file, *(tls.files if tls else ())) != self._state.marks:
                self._take_over()
        finally:
            self._looked = time.monotonic()
            self._looking.release()

    def _take_over(self) -> None:
        try:
            state = self._read()
            if (state.context is None) != (self._state.context is None):
                raise ConfigError(
                    f"--web-config {self._file}: TLS is switched on or off by a restart only"
                )
        except ConfigError as error:
            if str(error) != self._refused:  # every second tries again
                log.warning("keeping the last good configuration: %s", error)
                self._refused = str(error)
        else:
            self._state = state
            self._refused = ""
            log.info("took over the changed web configuration %s", self._file)

    def _read(self) -> _State:
        # Stat before reading: the next check then sees a change in between.
        marks = _marks(self._file)
        config = read_web_config(self._file)
        if config.tls is None:
            return _State(config, None, marks)
        marks += _marks(*config.tls.files)
        return _State(config, _make_context(self._file, config.tls), marks)


def _make_context(file: Path, tls: TLSConfig) -> ssl.SSLContext:
    """A context for handshakes.  Raises `ConfigError` with the file that cannot be used."""

    def encrypted() -> NoReturn:
        raise ConfigError(f"--web-config {file}: {tls.key_file}: the key must not be encrypted")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = tls.min_version
    for needed in tls.files:
        try:
            needed.open("rb").close()
        except OSError as error:  # the ssl module's own message names no file
            raise ConfigError(f"--web-config {file}: {needed}: {error.strerror}") from error
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=encrypted)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"--web-config {file}: {tls.cert_file} and {tls.key_file}: "
            f"not a certificate and its key: {reason}"
        ) from error
    if tls.client_ca_file is not None:
        try:
            context.load_verify_locations(cafile=tls.client_ca_file)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--web-config {file}: {tls.client_ca_file}: not a certificate authority's file"
            ) from error
    context.verify_mode = tls.client_auth_type
    return context


def _marks(*files: Path) -> Marks:
    """Inode, size and time of change of every file; None for one that is missing."""
    marks: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            stat = path.stat()
            marks.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError:
            marks.append(None)
    return tuple(marks)


class _TooBusy(Exception):
    """Clients try passwords faster than the server can check them."""


class _BasicAuth:
    """Checks passwords against bcrypt hashes (RFC 7617); one at a time, since bcrypt costs CPU.

    It remembers a checked password under a keyed digest of user, password and hash: a scrape every
    second costs one bcrypt at the start, and a changed hash is checked again.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._one_at_a_time = threading.Lock()
        self._accepted: dict[str, bytes] = {}
        self._refused: OrderedDict[bytes, None] = OrderedDict()

    def allows(self, header: str, users: Mapping[str, bytes]) -> bool:
        """Whether an `Authorization` header names one of the users with their password.

        Takes as long for an unknown user as for a wrong password.  Raises `_TooBusy`.
        """
        credentials = _credentials(header)
        if credentials is None:
            return False
        name, password = credentials
        exists = name in users
        hashed = users[name] if exists else next(iter(users.values()))
        digest = self._digest(name, password, hashed)
        if exists and hmac.compare_digest(self._accepted.get(name, b""), digest):
            return True
        if digest in self._refused:
            return False
        if not self._one_at_a_time.acquire(timeout=_WAIT_SECONDS):
            raise _TooBusy
        try:
            right = _matches(password, hashed) and exists
            if right:
                self._accepted[name] = digest
            else:
                self._refused[digest] = None
                if len(self._refused) > _REFUSALS_KEPT:
                    self._refused.popitem(last=False)
        finally:
            self._one_at_a_time.release()
        return right

    def _digest(self, name: str, password: bytes, hashed: bytes) -> bytes:
        parts = (name.encode(), password, hashed)
        framed = b"".join([len(part).to_bytes(4, "big") + part for part in parts])
        return hmac.digest(self._key, framed, hashlib.sha256)


def _credentials(header: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    if len(password) > _MOST_PASSWORD_BYTES or b"\0" in password:
        return False
    return bcrypt.checkpw(password, hashed)
