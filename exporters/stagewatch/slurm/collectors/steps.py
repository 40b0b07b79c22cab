"""Whether the steps of running GPU jobs answer Slurm: `srun` blocks while `ssh` to the node works.

Off unless enabled, since each probe asks the controller, the nodes and the step daemons.

`sstat` asks the controller for the list of steps, then the slurmd of each node, and that asks the
step daemons; it starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, gauge
from stagewatch.slurm.cluster import Source
from stagewatch.slurm.collectors.queue import HOLDING
from stagewatch.slurm.model import Job, Records
from stagewatch.slurm.notation import total

RESPONSIVE = gauge(
    "slurm_step_responsive",
    "1 if the job's steps answered Slurm when last asked, 0 if they did not answer in time.",
    ("job_id",),
)


MOST = 20
"""Most running GPU jobs that are asked in turn, the largest first."""


class StepsCollector(Collector):
    """Asks one job per collection, and remembers the answers of the others.

    `answer` says whether the steps of a job answer in time, as `SlurmCli.steps_answer` does.
    """

    def __init__(
        self,
        jobs: Source[Records[Job]],
        answer: Callable[[int, float], bool],
        *,
        most: int = MOST,
        timeout: float = 8.0,
    ) -> None:
        self._jobs = jobs
        self._answer = answer
        self._most = most
        self._timeout = timeout
        self._answers: dict[int, bool] = {}
        self._turn: list[int] = []

    def collect(self) -> Samples:
        """Ask the next job's steps; ask none while the controller itself does not answer."""
        reading = self._jobs.keep_fresh()
        if self._jobs.failure is not None:
            self._answers.clear()
            raise NoData("the controller does not answer, so nothing can be said of steps")
        chosen = _largest(reading.data.items, self._most) if reading else []
        if not chosen:
            raise NoData("no GPU job is running")
        self._turn = [job for job in self._turn if job in chosen]
        self._turn += [job for job in chosen if job not in self._turn]
        job = self._turn.pop(0)
        self._turn.append(job)
        self._answers = {
            job_id: answer for job_id, answer in self._answers.items() if job_id in chosen
        }
        try:
            self._answers[job] = self._answer(job, self._timeout)
        except NoData:
            self._answers.pop(job, None)
        out = Samples()
        for job_id, answer in self._answers.items():
            out.add(RESPONSIVE, int(answer), job_id)
        return out


def _largest(jobs: tuple[Job, ...], most: int) -> list[int]:
    running = [job for job in jobs if job.state in HOLDING and job.gpus]
    running.sort(key=lambda job: (-total(job.gpus), job.job_id))
    return [job.job_id for job in running[:most]]


SPEC = Declaration(
    name="slurm_steps",
    help="whether the steps of running GPU jobs answer (sstat; off unless enabled)",
    interval=30,
    options=NoOptions,
    default=False,
)
