"""The options for a Prometheus: the table [prometheus], which several commands share."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from stagewatch.core.access import Access
from stagewatch.core.config import option, options_of


@dataclass(frozen=True, slots=True)
class PrometheusOptions(Access):
    """The server, and how it is asked."""

    url: str = option("http://127.0.0.1:9090", "server to ask", flag="--prometheus")
    timeout: float = option(60.0, "how long one query may take")


def server_at(url: str, arguments: argparse.Namespace) -> PrometheusOptions | None:
    """The options of [prometheus] with this URL; None without a URL."""
    if not url:
        return None
    return replace(options_of(arguments, PrometheusOptions, "prometheus"), url=url)
