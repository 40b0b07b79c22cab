"""The flags that say which server to ask, and who asks."""

from __future__ import annotations

import argparse
import base64
import os
from pathlib import Path

from stagewatch.core.config import duration
from stagewatch.core.errors import ConfigError
from stagewatch.prometheus.api import PrometheusApi

TIMEOUT_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them; no secret stands on a command line."""
    environ = os.environ
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        default=environ.get("STAGEWATCH_PROMETHEUS_URL", "http://127.0.0.1:9090"),
        help="server to ask [default: http://127.0.0.1:9090; STAGEWATCH_PROMETHEUS_URL]",
    )
    parser.add_argument(
        "--bearer-token-file", type=Path, metavar="FILE", help="file with a token for the server"
    )
    parser.add_argument(
        "--basic-auth-file",
        type=Path,
        metavar="FILE",
        help="file with USER:PASSWORD for the server",
    )
    parser.add_argument(
        "--timeout",
        type=duration_given,
        default=TIMEOUT_SECONDS,
        metavar="TIME",
        help="how long one query may take [default: 60s]",
    )


def api_of(arguments: argparse.Namespace) -> PrometheusApi:
    """The server, with what it wants to see.  Raises `ConfigError`."""
    header = ""
    if arguments.bearer_token_file:
        header = f"Bearer {_secret(arguments.bearer_token_file, '--bearer-token-file')}"
    elif arguments.basic_auth_file:
        pair = _secret(arguments.basic_auth_file, "--basic-auth-file")
        header = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return PrometheusApi(arguments.prometheus, timeout=arguments.timeout, authorization=header)


def duration_given(text: str) -> float:
    """Seconds of a flag such as 90s or 5m."""
    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s or 5m") from error


def _secret(file: Path, flag: str) -> str:
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {file}: {getattr(error, 'strerror', None) or error}") from error
    if not secret or not secret.isprintable():
        raise ConfigError(f"{flag} {file}: must hold one line")
    return secret
