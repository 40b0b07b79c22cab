"""Why a server gave no answer, in a few words instead of a library's chain of errors."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator

import requests


def why_unanswered(error: requests.RequestException, timeout: float) -> str:
    """Why the server did not answer; `timeout`: the time limit in seconds."""
    if isinstance(error, requests.Timeout):
        return f"nothing within {timeout:g} s"
    by = "by its proxy: " if isinstance(error, requests.exceptions.ProxyError) else ""
    return by + next(filter(None, map(_reason, _chain(error))), type(error).__name__)


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: its certificate is not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or 'no agreement').replace('_', ' ').lower()}"
    if isinstance(error, (ConnectionResetError, BrokenPipeError, http.client.HTTPException)):
        return "it closed the connection without an answer"
    return (error.strerror or "").lower() if isinstance(error, OSError) else ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes: urllib3 keeps a cause in `reason`, requests in `args`."""
    found: list[object] = [error]
    seen: set[int] = set()
    while found:
        one = found.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        found += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
