"""TLS and authentication for requests to a server."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.config import option, path
from stagewatch.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Access:
    """Options of every command that asks a server; secrets are in files, never on a command line.

    `verify` and `certificate` are what requests takes, `context` what http.client does.
    """

    ca_file: Path | None = option(
        None,
        "PEM file of the trusted authorities; if none, those of this machine",
        parse=path,
    )
    client_cert_file: Path | None = option(None, "PEM file of the client certificate", parse=path)
    client_key_file: Path | None = option(
        None, "PEM file of the client key, if it is not in the same file", parse=path
    )
    insecure: bool = option(False, "accept any certificate of the server, even a forged one")
    bearer_token_file: Path | None = option(None, "file with a token for the server", parse=path)
    basic_auth_file: Path | None = option(
        None, "file with USER:PASSWORD for the server", parse=path
    )

    def authorization(self) -> str:
        """The value of the Authorization header; empty for none.  Raises `ConfigError`."""
        if self.bearer_token_file is not None:
            return f"Bearer {secret(self.bearer_token_file, '--bearer-token-file')}"
        if self.basic_auth_file is not None:
            pair = secret(self.basic_auth_file, "--basic-auth-file")
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        return ""

    def context(self) -> ssl.SSLContext:
        """The TLS context for the server. Raises `ConfigError` with the name of an unusable "
        "file."""
        if self.client_key_file is not None and self.client_cert_file is None:
            raise ConfigError("--client-key-file needs --client-cert-file")
        context = ssl.create_default_context()
        if self.ca_file is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            with _named("--ca-file", self.ca_file):
                context.load_verify_locations(cafile=self.ca_file)
        if self.client_cert_file is not None:
            with _named("--client-cert-file", self.client_cert_file):
                context.load_cert_chain(
                    self.client_cert_file, self.client_key_file, password=_no_password
                )
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    @property
    def verify(self) -> bool | str | None:
        """The `verify` argument of requests; None means its default."""
        if self.insecure:
            return False
        return None if self.ca_file is None else str(self.ca_file)

    @property
    def certificate(self) -> str | tuple[str, str] | None:
        """The `cert` argument of requests."""
        if self.client_cert_file is None:
            return None
        if self.client_key_file is None:
            return str(self.client_cert_file)
        return str(self.client_cert_file), str(self.client_key_file)


@contextmanager
def _named(flag: str, file: Path) -> Iterator[None]:
    """Name the unusable file, since the ssl module's own messages do not."""
    try:
        with file.open("rb"):
            pass
        yield
    except ssl.SSLError as error:
        reason = (error.reason or "no PEM file").replace("_", " ").lower()
        raise ConfigError(f"{flag} {file}: {reason}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{flag} {file}: {getattr(error, 'strerror', None) or error}") from error


def _no_password() -> str:
    raise ValueError("its key must not be encrypted")


def secret(file: Path, flag: str) -> str:
    """The one line of a file.  Raises `ConfigError` that begins with the flag."""
    try:
        line = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {file}: {getattr(error, 'strerror', None) or error}") from error
    if not line or not line.isprintable():
        raise ConfigError(f"{flag} {file}: must hold one line")
    return line
