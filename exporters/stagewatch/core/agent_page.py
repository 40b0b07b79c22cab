"""Asks a node agent for one of its pages, with the standard library alone."""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlsplit

from stagewatch.core.access import Access
from stagewatch.core.errors import SourceError

_TLS_HINT = ": if it has TLS, give --agent https://HOST:PORT"


def fetch(
    url: str, path: str, access: Access, timeout: float, limit: int, accept: str = "*/*"
) -> bytes:
    """The page at `path` of the agent at `url`; each wait takes `timeout` seconds at the most.

    A page of more than `limit` bytes is cut.  Raises `SourceError` with the reason where there is
    no answer, `ConfigError` where a file that `access` names is of no use.
    """
    parts = urlsplit(url)
    secret = access.authorization()
    headers = {"Accept": accept} | ({"Authorization": secret} if secret else {})
    host, plain = parts.hostname or "", parts.scheme == "http"
    connection = (
        http.client.HTTPConnection(host, parts.port, timeout=timeout)
        if plain
        else http.client.HTTPSConnection(
            host, parts.port, timeout=timeout, context=access.context()
        )
    )
    try:
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
    finally:
        connection.close()
