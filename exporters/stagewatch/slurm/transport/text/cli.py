"""Asks a cluster through Slurm's commands, in text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stagewatch.core.errors import NoData, SourceError
from stagewatch.slurm.model import (
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
from stagewatch.slurm.transport import accounting as slurm_sacct
from stagewatch.slurm.transport.command import CommandRunner
from stagewatch.slurm.transport.text import job_detail as slurm_job_detail
from stagewatch.slurm.transport.text import scontrol as slurm_scontrol
from stagewatch.slurm.transport.text import sdiag as slurm_sdiag
from stagewatch.slurm.transport.text import squeue as slurm_squeue


class SlurmCli:
    """One method for each kind of data; each takes the seconds after which it is given up.

    `prefix` is the directory of the commands, where they are not on PATH.
    """

    def __init__(
        self,
        *,
        prefix: Path | None = None,
        runner: Callable[[], CommandRunner] = CommandRunner,
    ) -> None:
        self._prefix = prefix
        self._make_runner = runner
        self._runners: dict[str, CommandRunner] = {}

    def jobs(self, timeout: float) -> Records[Job]:
        """The queue: 2 requests to the controller (squeue loads the partitions too)."""
        return slurm_squeue.parse(self._run("jobs", "squeue", *slurm_squeue.ARGUMENTS)(timeout))

    def nodes(self, timeout: float) -> Records[Node]:
        """The nodes: 2 requests to the controller (scontrol loads the partitions too)."""
        output = self._run("nodes", "scontrol", *slurm_scontrol.NODES)(timeout)
        return slurm_scontrol.parse_nodes(output)

    def diagnostics(self, timeout: float) -> Diagnostics:
        """The controller's statistics: 1 request."""
        return slurm_sdiag.parse(self._run("diagnostics", "sdiag")(timeout))

    def ping(self, timeout: float) -> tuple[Controller, ...]:
        """Which controllers answer: 1 request to each."""
        run = self._run("ping", "scontrol", *slurm_scontrol.PING, accept_status=True)
        return slurm_scontrol.parse_ping(run(timeout))

    def reservations(self, timeout: float) -> Records[Reservation]:
        """The reservations: 1 request."""
        output = self._run("reservations", "scontrol", *slurm_scontrol.RESERVATIONS)(timeout)
        return slurm_scontrol.parse_reservations(output)

    def licenses(self, timeout: float) -> Records[License]:
        """The licences: 1 request."""
        output = self._run("licenses", "scontrol", *slurm_scontrol.LICENSES)(timeout)
        return slurm_scontrol.parse_licenses(output)

    def ended_jobs(self, timeout: float, ago: float) -> Records[EndedJob]:
        """Runs that ended: nothing to the controller, one query to slurmdbd."""
        run = self._run("ended_jobs", "sacct", *slurm_sacct.job_arguments(ago))
        return slurm_sacct.parse_jobs(_accounting(run, timeout))

    def node_events(self, timeout: float, ago: float) -> Records[NodeEvent]:
        """Events of nodes: one query to slurmdbd."""
        run = self._run("node_events", "sacctmgr", *slurm_sacct.event_arguments(ago))
        return slurm_sacct.parse_events(_accounting(run, timeout))

    def gpu_claims(self, timeout: float) -> Records[slurm_job_detail.Claim]:
        """Which job has which GPUs: 2 requests to the controller (scontrol loads the nodes too)."""
        run = self._run("gpu_claims", "scontrol", *slurm_job_detail.ARGUMENTS)
        return slurm_job_detail.parse(run(timeout))

    def close(self) -> None:
        """Kill every command that is running."""
        for runner in tuple(self._runners.values()):
            runner.close()

    def _run(
        self, source: str, command: str, *arguments: str, accept_status: bool = False
    ) -> Callable[[float], bytes]:
        runner = self._runners.setdefault(source, self._make_runner())
        name = str(self._prefix / command) if self._prefix else command
        return lambda timeout: runner.run([name, *arguments], timeout, accept_status=accept_status)


def _accounting(run: Callable[[float], bytes], timeout: float) -> bytes:
    try:
        return run(timeout)
    except SourceError as error:
        if any(text in str(error) for text in slurm_sacct.DISABLED):
            raise NoData("the cluster has no accounting (slurmdbd)") from error
        raise
