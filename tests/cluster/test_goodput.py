"""A short day of a real cluster: who has which GPUs, held against Slurm's accounting."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable

from stagewatch.slurm.collectors import holdings
from stagewatch.slurm.collectors.holdings import HELD, UNHELD
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.cluster.observing import observed

CONFIGURED = {"h200": 3 * 8 + 2, "a100": 2}
ROUNDING = 1.0
"""Seconds: Slurm's times are whole ones."""


class Day:
    """Looks at the cluster, one after the other, each of which stands until the next."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self._slurm = slurm
        self._cluster = observed(slurm)
        self._last: tuple[float, dict[tuple[str, str], float]] | None = None
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        """GPU-seconds by job (empty outside of jobs) and state."""
        self.longest = 0.0
        """Most seconds from the beginning of a look to the end of the next one."""

    def look(self) -> dict[tuple[str, str], float]:
        """The GPUs now, which are those configured, by job and state."""
        began = time.time()
        jobs, nodes = self._cluster.jobs.refresh().items, self._cluster.nodes.refresh().items
        samples = holdings.measure(jobs, nodes)
        now: defaultdict[tuple[str, str], float] = defaultdict(float)
        models: defaultdict[str, float] = defaultdict(float)
        for job_id, user, account, partition, model, state in samples.families.get(HELD, {}):
            key = (job_id, user, account, partition, model, state)
            now[job_id, state] += samples.value(HELD, *key) or 0
            models[model] += samples.value(HELD, *key) or 0
        for model, state in samples.families[UNHELD]:
            now["", state] += samples.value(UNHELD, model, state) or 0
            models[model] += samples.value(UNHELD, model, state) or 0
        assert models == CONFIGURED
        if self._last is not None:
            before, held = self._last
            for key_then, number in held.items():
                self.seconds[key_then] += number * (began - before)
            self.longest = max(self.longest, time.time() - before)
        self._last = began, now
        return now

    def until(self, condition: Callable[[dict[tuple[str, str], float]], bool], what: str) -> None:
        """Look until what is seen fulfils a condition."""

        def there() -> bool:
            time.sleep(0.3)
            return condition(self.look())

        self._slurm.wait(there, what)


def as_accounting_says(slurm: SlurmCluster, jobs: tuple[str, ...]) -> dict[str, tuple[float, int]]:
    """GPU-seconds of each job over all of its runs, and how many runs it had."""
    table = slurm.run(
        *("sacct", "-X", "-D", "-n", "-P", "-j", ",".join(jobs)),
        "--format=JobIDRaw,Start,End,AllocTRES",
        env={"SLURM_TIME_FORMAT": "%s"},
    )
    found: dict[str, tuple[float, int]] = {}
    for row in table.splitlines():
        job, start, end, resources = row.split("|")
        if not (start.isdecimal() and end.isdecimal()):
            continue
        gpus = dict(each.split("=") for each in resources.split(",") if each).get("gres/gpu", "0")
        seconds, runs = found.get(job, (0.0, 0))
        found[job] = seconds + int(gpus) * (int(end) - int(start)), runs + 1
    return found


def test_a_day_adds_up_to_what_accounting_says(slurm: SlurmCluster) -> None:
    """Idle hours, a job over two nodes that is cancelled, one that ends, one whose node fails."""
    day = Day(slurm)
    assert day.look() == {("", "free"): 28}
    slurm.run("scontrol", "update", "nodename=m1", "state=drain", "reason=fan")
    slurm.run(
        *("scontrol", "create", "reservation", "reservationname=class", "starttime=now"),
        *("duration=10", "users=root", "nodes=h3", "flags=ignore_jobs"),
    )
    try:
        day.until(
            lambda now: now == {("", "free"): 16, ("", "drained"): 4, ("", "reserved"): 8},
            "the drain and the reservation",
        )
        wide = slurm.submit("-N2", "-w", "h1,h2", "--gres=gpu:h200:3")
        short = slurm.submit("-w", "h1", "--gres=gpu:h200:2", script="sleep 12")
        dying = slurm.submit("--gres=gpu:h200:4", "--requeue")  # there is room on h2
        day.until(lambda now: now.get((dying, "RUNNING")) == 4, "the last job to run")
        day.until(lambda now: (short, "RUNNING") not in now, "the short job to end")
        slurm.run("scancel", wide)
        day.until(lambda now: (wide, "RUNNING") not in now, "the cancelled job to end")
        slurm.daemons.stop("slurmd-h2", signal.SIGKILL)
        slurm.run("scontrol", "update", "nodename=h2", "state=down", "reason=lost")
        day.until(lambda now: now.get(("", "down")) == 8, "the node to be down")
        day.until(lambda now: now.get((dying, "RUNNING")) == 4, "the requeued job to run on h1")
        slurm.run("scancel", dying)
        day.until(lambda now: {of for of, _ in now} == {""}, "all jobs to be gone")
    finally:
        slurm.run("scontrol", "delete", "reservationname=class")
        slurm.run("scontrol", "update", "nodename=m1", "state=resume")
    jobs = (wide, short, dying)
    told = slurm.wait(
        lambda: (
            (found := as_accounting_says(slurm, jobs)).keys() == set(jobs)
            and found[dying][1] == 2
            and found
        ),
        "accounting to have all four runs",
    )
    gpus = {wide: 6, short: 2, dying: 4}
    for job, (seconds, runs) in told.items():
        ours = sum(
            number for (of, state), number in day.seconds.items() if (of, state) == (job, "RUNNING")
        )
        assert abs(ours - seconds) <= gpus[job] * runs * 2 * (day.longest + ROUNDING), job
        assert seconds > 0
    cleanup = {of for of, state in day.seconds if state == "COMPLETING"}
    assert cleanup <= set(jobs)
