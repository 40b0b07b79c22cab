"""Two ways to ask Slurm: its commands (text.py), or slurmrestd (rest.py, json.py).

Each is a `SlurmClient`.  It hands its answers to the readers of slurm/model.py, under the names of
Slurm's JSON.  diagnostics.py reads sdiag, accounting.py reads sacct and sacctmgr.  Open text.py
first: most clusters use it.
"""

from __future__ import annotations

from typing import Protocol

from stagewatch.slurm import model
from stagewatch.slurm.model import Records


class SlurmClient(Protocol):
    """Every method asks once, takes a timeout in seconds, and raises `SourceError`."""

    def jobs(self, timeout: float) -> Records[model.Job]:
        """The queue, with jobs that ended within the controller's MinJobAge."""

    def nodes(self, timeout: float) -> Records[model.Node]:
        """Every node."""

    def diagnostics(self, timeout: float) -> model.Diagnostics:
        """The controller's statistics."""

    def ping(self, timeout: float) -> tuple[model.Controller, ...]:
        """Which controllers answer."""

    def ended_jobs(self, timeout: float, ago: float) -> Records[model.EndedJob]:
        """Runs that ended in the last `ago` seconds; `NoData` without accounting."""

    def node_events(self, timeout: float, ago: float) -> Records[model.NodeEvent]:
        """Events of nodes in the last `ago` seconds; `NoData` without accounting."""

    def gpu_claims(self, timeout: float) -> Records[model.Claim]:
        """Which job claims which GPUs, node by node; the caller checks it."""

    def close(self) -> None:
        """Cancel all running requests, from another thread."""
