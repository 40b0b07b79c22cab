"""Asks a running job's steps for a sign of life, the way Slurm itself reaches them.

`sstat` goes from the controller's list of steps to the slurmd of each node and on to the step
daemon; it starts nothing.  `srun` starts `true` as a further step beside what runs (--overlap), as
a user's own `srun --jobid` would; that takes the job's owner or root.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from stagewatch.core.errors import NoData, SourceError
from stagewatch.slurm.transport.command import CommandRunner, NoAnswer

METHODS = ("sstat", "srun")


class StepProbe:
    """Probes one job at a time."""

    def __init__(
        self,
        *,
        method: str = "sstat",
        prefix: Path | None = None,
        runner: Callable[[], CommandRunner] = CommandRunner,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._method = method
        self._command = str(prefix / method) if prefix else method
        self._runner = runner()
        self._clock = clock

    def probe(self, job_id: int, timeout: float) -> float:
        """Seconds until the job's steps had answered.

        Raises `NoData` where the job has no step to ask, `NoAnswer` where one did not answer in
        `timeout` seconds, and another `SourceError` where it could not be asked at all.
        """
        begin = self._clock()
        try:
            output = self._runner.run(self._argv(job_id), timeout)
        except SourceError as error:
            if _has_no_steps(str(error)):
                raise NoData(f"job {job_id} has no steps") from error
            raise
        if self._method == "sstat" and not output.strip():  # it fails with status 0
            raise NoAnswer("sstat: a step did not answer its node's slurmd")
        return self._clock() - begin

    def close(self) -> None:
        """Kill a probe that is under way."""
        self._runner.close()

    def _argv(self, job_id: int) -> list[str]:
        if self._method == "sstat":
            arguments = ["--allsteps", "--noheader", "--parsable2", "--format=JobID"]
            return [self._command, *arguments, f"--jobs={job_id}"]
        arguments = ["--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--quiet", "true"]
        return [self._command, f"--jobid={job_id}", *arguments]


def _has_no_steps(message: str) -> bool:
    return any(
        said in message
        for said in ("No steps running", "couldn't get steps", "has expired", "Invalid job id")
    )
