"""A Prometheus asked as of a moment that is over."""

from __future__ import annotations

from stagewatch.prometheus.api import PrometheusApi, Series


class Then:
    """A server as it would have answered at a moment of its past."""

    def __init__(self, api: PrometheusApi, when: float) -> None:
        self._api = api
        self._when = when

    def query(self, expression: str) -> list[Series]:
        return self._api.query(expression, self._when)
