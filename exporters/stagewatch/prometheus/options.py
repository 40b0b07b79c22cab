"""How a Prometheus is asked: the table [prometheus], which several commands share."""

from __future__ import annotations

from dataclasses import dataclass

from stagewatch.core.access import Access
from stagewatch.core.config import option


@dataclass(frozen=True, slots=True)
class PrometheusOptions(Access):
    """The server, and how it is asked."""

    url: str = option("http://127.0.0.1:9090", "server to ask", flag="--prometheus")
    timeout: float = option(60.0, "how long one query may take")
