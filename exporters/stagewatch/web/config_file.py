"""The web-config file: TLS and basic authentication, in the format of Prometheus' exporter-toolkit.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md The
reader refuses a key that it does not support: a missing protection must not stay unnoticed.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from stagewatch.core.errors import ConfigError

_EXTRA = "pip install 'stagewatch[web-config]'"
_T = TypeVar("_T")
_MOST_BYTES = 1 << 20
_MOST_COST = 18
"""bcrypt cost above which checking one password takes many seconds of CPU."""

_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # requested and then not checked
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class TLSConfig:
    """`tls_server_config`; the fields have the names of its keys."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    client_auth_type: ssl.VerifyMode = ssl.CERT_NONE
    client_allowed_sans: tuple[str, ...] = ()
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold certificates and keys."""
        return tuple(filter(None, (self.cert_file, self.key_file, self.client_ca_file)))


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The whole file."""

    tls: TLSConfig | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    """bcrypt hashes by user name; without users, nobody needs a password."""


def read_web_config(file: Path) -> WebConfig:
    """Read the file.  Raises `ConfigError` with one line: file, key and accepted values."""
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(f"--web-config needs PyYAML and bcrypt: {_EXTRA}") from error
    try:
        with file.open("rb") as handle:
            content = yaml.safe_load(handle.read(_MOST_BYTES))
    except OSError as error:
        raise ConfigError(f"--web-config {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"--web-config {file}: not valid YAML: {problem}") from error
    reader = _Reader(file)
    top = reader.table("", content, ("tls_server_config", "basic_auth_users"))
    tls = top.get("tls_server_config")
    return WebConfig(
        tls=reader.tls(tls) if tls is not None else None,
        users=reader.users(top.get("basic_auth_users")),
    )


class _Reader:
    """Reads parsed YAML, and names the key of the file that is wrong."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def wrong(self, key: str, problem: str) -> ConfigError:
        where = f"--web-config {self._file}: {key}" if key else f"--web-config {self._file}"
        return ConfigError(f"{where}: {problem}")

    def table(self, key: str, value: Any, accepted: Collection[str]) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(key, "must be a mapping")
        for name in value:
            if name not in accepted:
                inner = f"{key}.{name}" if key else str(name)
                raise self.wrong(inner, f"is not supported; there are: {', '.join(accepted)}")
        return value

    def tls(self, value: Any) -> TLSConfig | None:
        key = "tls_server_config"
        # prefer_server_cipher_suites has no effect in TLS 1.3, and is our default before.
        accepted = [item.name for item in fields(TLSConfig)] + ["prefer_server_cipher_suites"]
        table = self.table(key, value, accepted)
        if not table:
            return None
        certificate, private = self._path(table, "cert_file"), self._path(table, "key_file")
        if certificate is None or private is None:
            missing = "cert_file" if certificate is None else "key_file"
            raise self.wrong(f"{key}.{missing}", "is missing")
        mode = self._choice(table, "client_auth_type", _CLIENT_AUTH, "NoClientCert")
        authority = self._path(table, "client_ca_file")
        if (authority is None) != (mode == ssl.CERT_NONE):
            raise self.wrong(
                f"{key}.client_ca_file",
                "goes together with client_auth_type RequireAndVerifyClientCert "
                "or VerifyClientCertIfGiven",
            )
        names = table.get("client_allowed_sans") or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.wrong(f"{key}.client_allowed_sans", "must be a list of strings")
        if names and mode != ssl.CERT_REQUIRED:
            raise self.wrong(
                f"{key}.client_allowed_sans",
                "goes together with client_auth_type RequireAndVerifyClientCert",
            )
        lowest = self._choice(table, "min_version", _VERSIONS, "TLS12")
        return TLSConfig(certificate, private, authority, mode, tuple(names), lowest)

    def users(self, value: Any) -> Mapping[str, bytes]:
        key = "basic_auth_users"
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(key, "must be a mapping of user names to bcrypt hashes")
        users: dict[str, bytes] = {}
        for name, hashed in value.items():
            if not isinstance(name, str) or not name or ":" in name:
                raise self.wrong(key, f"{name!r} must be a string without colons")
            match = _BCRYPT.fullmatch(hashed) if isinstance(hashed, str) else None
            if match is None:  # not shown: it may be a password in clear text
                raise self.wrong(f"{key}.{name}", "must be a bcrypt hash, as from htpasswd -nBC 10")
            if not 4 <= int(match[1]) <= _MOST_COST:
                raise self.wrong(f"{key}.{name}", f"its bcrypt cost must be 4 to {_MOST_COST}")
            users[name] = match[0].encode("ascii")
        if users:
            try:
                import bcrypt  # noqa: F401 - the start fails without it, not the first password
            except ImportError as error:
                raise self.wrong(key, f"needs bcrypt: {_EXTRA}") from error
        return users

    def _path(self, table: Mapping[str, Any], name: str) -> Path | None:
        """A file; relative names are relative to the directory of the web-config file."""
        value = table.get(name) or None
        if value is not None and not isinstance(value, str):
            raise self.wrong(f"tls_server_config.{name}", "must be a path")
        return None if value is None else self._file.parent / value

    def _choice(
        self, table: Mapping[str, Any], name: str, choices: Mapping[str, _T], default: str
    ) -> _T:
        value = table.get(name, default)
        if not isinstance(value, str) or value not in choices:
            accepted = ", ".join(filter(None, choices))
            raise self.wrong(f"tls_server_config.{name} = {value!r}", f"must be one of {accepted}")
        return choices[value]
