"""Ways of asking Slurm: by its commands (command.py) or through slurmrestd (rest.py).

Both are a `SlurmClient`.  What they get is parsed by text.py, json.py, diagnostics.py (sdiag) and
accounting.py (sacct, sacctmgr) into the records of slurm/model.py.  Open text.py first: it is what
most clusters are read by.
"""

from __future__ import annotations

from typing import Protocol

from stagewatch.slurm.model import (
    Claim,
    Controller,
    Diagnostics,
    EndedJob,
    Job,
    License,
    Node,
    NodeEvent,
    Records,
    Reservation,
)


class SlurmClient(Protocol):
    """Each method asks once, takes the seconds after which to give up, and raises `SourceError`."""

    def jobs(self, timeout: float) -> Records[Job]:
        """The queue, with jobs that ended within the controller's MinJobAge."""

    def nodes(self, timeout: float) -> Records[Node]:
        """Every node."""

    def diagnostics(self, timeout: float) -> Diagnostics:
        """The controller's statistics."""

    def ping(self, timeout: float) -> tuple[Controller, ...]:
        """Which controllers answer."""

    def reservations(self, timeout: float) -> Records[Reservation]:
        """The reservations."""

    def licenses(self, timeout: float) -> Records[License]:
        """The licences that the controller counts."""

    def ended_jobs(self, timeout: float, ago: float) -> Records[EndedJob]:
        """Runs that ended in the last `ago` seconds; `NoData` where there is no accounting."""

    def node_events(self, timeout: float, ago: float) -> Records[NodeEvent]:
        """Events of nodes in the last `ago` seconds; `NoData` where there is no accounting."""

    def gpu_claims(self, timeout: float) -> Records[Claim]:
        """Which job has which GPUs, node by node; to be checked."""

    def close(self) -> None:
        """Give up whatever is under way, from another thread."""
