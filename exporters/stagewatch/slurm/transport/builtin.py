"""Slurm's own metrics endpoint (25.11 and later, `MetricsType=metrics/openmetrics`).

It answers from slurmctld's memory, without a request of the old kind.  All of it are gauges, its
node counts are 16 bits wide and start over beyond 65,535, and it knows no GPU types, reasons or
events; it is read where it is there, and never the only source.
https://slurm.schedmd.com/metrics.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stagewatch.core.errors import SourceError
from stagewatch.slurm.transport.http import HttpFailure, HttpReader

PAGES = ("jobs", "nodes", "scheduler")
_LINE = re.compile(r"^(slurm_\w+) (-?[\d.]+(?:[eE][+-]?\d+)?)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Builtin:
    """The endpoint's figures for the whole cluster, by name without `slurm_`."""

    values: Mapping[str, float]

    def by_suffix(self, prefix: str) -> dict[str, float]:
        """What follows a prefix: `jobs_` gives `pending`, `running`, ..."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.values.items()
            if name.startswith(prefix)
        }


class BuiltinEndpoint:
    """Reads the pages that do not grow with users, accounts, nodes or partitions."""

    def __init__(self, reader: HttpReader) -> None:
        self._reader = reader

    def read(self, timeout: float) -> Builtin:
        """All three pages, within `timeout` seconds each.  Raises `SourceError`."""
        values: dict[str, float] = {}
        for page in PAGES:
            try:
                body = self._reader.get(f"/metrics/{page}", timeout)
            except HttpFailure as failure:
                raise SourceError(_explain(failure)) from failure
            values.update(parse(body))
        if not values:
            raise SourceError("the built-in endpoint answered, but with no metrics of Slurm's")
        return Builtin(values)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()


def parse(body: bytes) -> dict[str, float]:
    """The series without labels."""
    found = _LINE.finditer(body.decode(errors="replace"))
    return {match[1].removeprefix("slurm_"): float(match[2]) for match in found}


def _explain(failure: HttpFailure) -> str:
    hints = {
        303: "this controller is on standby; give the address of the one that is not",
        401: "it wants a token (MetricsAuthUsers, PrivateData); see --rest-token-file",
        403: "the token's user may not read it (MetricsAuthUsers)",
        404: "there is no such page; MetricsType=metrics/openmetrics is needed in slurm.conf",
    }
    hint = hints.get(failure.status, "")
    return f"the built-in endpoint: {failure}{f': {hint}' if hint else ''}"
