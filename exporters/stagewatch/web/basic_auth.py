"""Basic authentication (RFC 7617) against bcrypt hashes, cheap for whoever comes again."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping

_REFUSALS = 64
_MOST_BYTES = 72
"""What bcrypt looks at; longer passwords are refused rather than cut."""


class TooBusy(Exception):
    """Passwords are being tried faster than they can be checked."""


class BasicAuth:
    """Checks credentials; one at a time, since each check is meant to cost CPU.

    What has been checked is remembered under a keyed digest of user, password and hash: a
    scrape every second costs one bcrypt at the start, and a changed hash is checked anew.
    """

    def __init__(self, *, wait: float = 3.0) -> None:
        self._wait = wait
        self._key = secrets.token_bytes(32)
        self._one_at_a_time = threading.Lock()
        self._accepted: dict[str, bytes] = {}
        self._refused: OrderedDict[bytes, None] = OrderedDict()

    def allows(self, header: str, users: Mapping[str, bytes]) -> bool:
        """Whether an `Authorization` header names one of the users with their password.

        Takes as long for an unknown user as for a wrong password.  Raises `TooBusy`.
        """
        credentials = _credentials(header)
        if credentials is None:
            return False
        name, password = credentials
        known = name in users
        hashed = users[name] if known else next(iter(users.values()))
        digest = self._digest(name, password, hashed)
        if known and hmac.compare_digest(self._accepted.get(name, b""), digest):
            return True
        if digest in self._refused:
            return False
        if not self._one_at_a_time.acquire(timeout=self._wait):
            raise TooBusy
        try:
            right = _matches(password, hashed) and known
            if right:
                self._accepted[name] = digest
            else:
                self._refused[digest] = None
                if len(self._refused) > _REFUSALS:
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

    if len(password) > _MOST_BYTES or b"\0" in password:
        return False
    return bcrypt.checkpw(password, hashed)
