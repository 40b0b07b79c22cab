"""Asks a node agent for one of its pages, with the standard library alone."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from stagewatch.core.access import Access
from stagewatch.core.errors import SourceError
from stagewatch.core.listeners import users_that_listen

_TLS_HINT = ": if it has TLS, give --agent https://HOST:PORT"


def fetch(
    url: str,
    path: str,
    access: Access,
    timeout: float,
    limit: int,
    accept: str = "*/*",
    *,
    users: Collection[int] | None = None,
    in_all: bool = False,
) -> bytes:
    """The page at `path` of the agent at `url`; every wait takes at most `timeout` seconds, or all
    waits together if `in_all`.

    A page of more than `limit` bytes is cut. With `users`, only one of these users may listen there
    on this machine, unless a certificate identifies the server: while no agent runs, anybody may
    take its port. Raises `SourceError` with the reason if there is no answer, `ConfigError` if a
    file of `access` is unusable.
    """
    parts = urlsplit(url)
    secret = access.authorization()
    headers = {"Accept": accept} | ({"Authorization": secret} if secret else {})
    host, plain = parts.hostname or "", parts.scheme == "http"
    context = None if plain else access.context()
    held = users if plain or access.insecure else None
    try:
        link = _connected(host, parts.port or (80 if plain else 443), timeout, held)
        if context is not None:
            link = context.wrap_socket(link, server_hostname=host, do_handshake_on_connect=False)
        with link, _given_up_after(link, timeout if in_all else None):
            if isinstance(link, ssl.SSLSocket):
                link.do_handshake()
            return _ask(link, host, path, headers, limit, plain=plain)
    except ssl.SSLCertVerificationError as error:
        raise SourceError(
            f"the certificate of the node agent is not accepted ({error.verify_message}): --ca-file"
        ) from error
    except ssl.SSLError as error:
        reason = (error.reason or "no agreement").replace("_", " ").lower()
        raise SourceError(f"no TLS with the node agent: {reason}") from error
    except (ConnectionResetError, http.client.HTTPException) as error:
        hint = _TLS_HINT if plain else ""
        raise SourceError(f"the node agent closes the connection{hint}") from error
    except OSError as error:
        raise SourceError("the node agent does not answer") from error


def _ask(
    link: socket.socket, host: str, path: str, headers: dict[str, str], limit: int, *, plain: bool
) -> bytes:
    connection = http.client.HTTPConnection(host)
    connection.sock = link
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    if answer.status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        raise SourceError(
            f"the node agent refuses access (HTTP status {answer.status}): --basic-auth-file"
        )
    if answer.status != http.HTTPStatus.OK:
        hint = _TLS_HINT if answer.status == http.HTTPStatus.BAD_REQUEST and plain else ""
        raise SourceError(f"the node agent answers with HTTP status {answer.status}{hint}")
    return answer.read(limit)


def _connected(
    host: str, port: int, timeout: float, users: Collection[int] | None
) -> socket.socket:
    """A connection to the first address that accepts one.  Raises `OSError` and `SourceError`."""
    failure = OSError("no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        link = socket.socket(family, kind, protocol)
        link.settimeout(timeout)
        try:
            # Before and after, so that a user who takes or releases the port in between is seen.
            looks = [_listening(address, users)]
            link.connect(address)
            looks.append(_listening(address, users))
            if users is not None and link.getsockname()[0] == address[0]:
                _check(looks, users, port)
            return link
        except OSError as error:
            link.close()
            failure = error
        except SourceError:
            link.close()
            raise
    raise failure


def _listening(address: tuple[object, ...], users: Collection[int] | None) -> set[int]:
    return set() if users is None else users_that_listen(str(address[0]), int(str(address[1])))


def _check(looks: list[set[int]], users: Collection[int], port: int) -> None:
    """Raises `SourceError` unless one of the users listened both times."""
    for found in looks:
        if others := sorted(found - set(users)):
            raise SourceError(
                f"port {port} is held by user {others[0]}, and not by the node agent's: "
                "nothing of what answers there is believed"
            )
        if not found:
            raise SourceError("the node agent does not answer")


@contextlib.contextmanager
def _given_up_after(link: socket.socket, seconds: float | None) -> Iterator[None]:
    """Cut off a connection that takes longer in total, however slowly the data comes.

    Raises `SourceError` then.
    """
    if seconds is None:
        yield
        return
    late = threading.Event()
    timer = threading.Timer(seconds, _cut, (link, late))
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise SourceError("the node agent does not answer")


def _cut(link: socket.socket, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)  # below TLS, which would wait for its peer
