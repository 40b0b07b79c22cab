"""Asks a cluster through Slurm's commands, in JSON where the installed version has it.

JSON says which GPUs each job has, and no reason is cut short; it costs several times the time and
memory of text.  What a version offers only in text is read in text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from stagewatch.slurm.model import Diagnostics, Job, Node, Records
from stagewatch.slurm.transport.command import CommandRunner
from stagewatch.slurm.transport.json import diagnostics as slurm_json_diag
from stagewatch.slurm.transport.json import records as slurm_json
from stagewatch.slurm.transport.text.cli import SlurmCli

_SCONTROL_HAS_JSON = (23, 2)


class SlurmJsonCli(SlurmCli):
    """The queue, the nodes and the diagnostics in JSON; the rest as `SlurmCli` has it."""

    def __init__(
        self,
        *,
        prefix: Path | None = None,
        runner: Callable[[], CommandRunner] = CommandRunner,
    ) -> None:
        super().__init__(prefix=prefix, runner=runner)
        self._version: tuple[int, int] | None = None

    def jobs(self, timeout: float) -> Records[Job]:
        """The queue: 1 request to the controller."""
        run = self._run("jobs", "squeue", "--json", "--all", "--states=all")
        return slurm_json.jobs(slurm_json.document(run(timeout), "squeue --json"))

    def nodes(self, timeout: float) -> Records[Node]:
        """The nodes: 2 requests to the controller."""
        if self._installed(timeout) >= _SCONTROL_HAS_JSON:
            run = self._run("nodes", "scontrol", "--json", "--details", "--all", "show", "nodes")
            return slurm_json.nodes(slurm_json.document(run(timeout), "scontrol --json"))
        run = self._run("nodes", "sinfo", "--json", "--all")
        return slurm_json.nodes(slurm_json.document(run(timeout), "sinfo --json"))

    def diagnostics(self, timeout: float) -> Diagnostics:
        """The controller's statistics: 1 request."""
        if self._installed(timeout) < _SCONTROL_HAS_JSON:
            return super().diagnostics(timeout)
        run = self._run("diagnostics", "sdiag", "--json")
        return slurm_json_diag.diagnostics(slurm_json.document(run(timeout), "sdiag --json"))

    def _installed(self, timeout: float) -> tuple[int, int]:
        """Major and minor version of the commands, asked once; the controller is not."""
        if self._version is None:
            output = self._run("version", "squeue", "--version")(timeout)
            match = re.search(rb"(\d+)\.(\d+)", output)
            self._version = (int(match[1]), int(match[2])) if match else (0, 0)
        return self._version
