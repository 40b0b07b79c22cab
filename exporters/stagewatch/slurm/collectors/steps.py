"""Whether the steps of running GPU jobs answer Slurm: `srun` blocks while `ssh` to the node works.

Off unless enabled, since each probe asks the controller, the nodes and the step daemons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stagewatch.core.collector import Collector, CollectorSpec
from stagewatch.core.config import duration, integer, option
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Metric, Samples
from stagewatch.slurm.collectors.queue import HOLDING
from stagewatch.slurm.gres import total
from stagewatch.slurm.model import Job, Records
from stagewatch.slurm.source import Source
from stagewatch.slurm.step_probe import METHODS, StepProbe
from stagewatch.slurm.transport.command import NoAnswer

if TYPE_CHECKING:
    from stagewatch.slurm.context import SlurmContext

RESPONSIVE = Metric(
    "slurm_step_responsive",
    "gauge",
    "1 if the job's steps answered Slurm when last asked, 0 if they did not in time.",
    ("job_id",),
)
RESPONSE = Metric(
    "slurm_step_response_seconds",
    "gauge",
    "How long the job's steps took to answer; absent if they did not.",
    ("job_id",),
)


def method(value: Any) -> str:
    """sstat or srun"""
    if value not in METHODS:
        raise ValueError
    return str(value)


@dataclass(frozen=True, slots=True)
class StepsOptions:
    """Options of the steps collector."""

    jobs: int = option(
        20, "how many running GPU jobs are asked in turn, the largest first", parse=integer
    )
    method: str = option(
        "sstat",
        "sstat asks the steps that run; srun starts one more beside them, for which the agent "
        "must be root or the job's owner",
        parse=method,
    )
    timeout: float = option(8.0, "after which a step is taken not to answer", parse=duration)


class StepsCollector(Collector):
    """Probes one job at each collection, and remembers the others' answers."""

    def __init__(
        self,
        jobs: Source[Records[Job]],
        probe: StepProbe,
        *,
        most: int = 20,
        timeout: float = 8.0,
    ) -> None:
        self._jobs = jobs
        self._probe = probe
        self._most = most
        self._timeout = timeout
        self._answers: dict[int, float | None] = {}
        self._turn: list[int] = []

    def collect(self) -> Samples:
        """Ask the next job's steps; nobody's while the controller gives no answer itself."""
        reading = self._jobs.keep_fresh()
        if not self._jobs.status().success:
            self._answers.clear()
            raise NoData("the controller does not answer, so nothing can be said of steps")
        chosen = _largest(reading.data.items, self._most) if reading else []
        if not chosen:
            raise NoData("no GPU job is running")
        self._turn = [job for job in self._turn if job in chosen]
        self._turn += [job for job in chosen if job not in self._turn]
        job = self._turn.pop(0)
        self._turn.append(job)
        self._answers = {each: answer for each, answer in self._answers.items() if each in chosen}
        try:
            self._answers[job] = self._probe.probe(job, self._timeout)
        except NoData:
            self._answers.pop(job, None)
        except NoAnswer:
            self._answers[job] = None
        out = Samples()
        for each, answer in self._answers.items():
            out.add(RESPONSIVE, int(answer is not None), each)
            out.add(RESPONSE, answer, each)
        return out

    def close(self) -> None:
        """Kill a probe that is under way."""
        self._probe.close()


def _largest(jobs: tuple[Job, ...], most: int) -> list[int]:
    running = [job for job in jobs if job.state in HOLDING and job.gpus]
    running.sort(key=lambda job: (-total(job.gpus), job.job_id))
    return [job.job_id for job in running[:most]]


def _build(options: StepsOptions, context: SlurmContext) -> Collector:
    return StepsCollector(
        context.cluster.jobs,
        StepProbe(method=options.method, prefix=context.options.bin_dir),
        most=options.jobs,
        timeout=options.timeout,
    )


SPEC = CollectorSpec(
    name="slurm_steps",
    help="whether the steps of running GPU jobs answer (sstat or srun; off unless enabled)",
    interval=30,
    options=StepsOptions,
    build=_build,
    default=False,
)
