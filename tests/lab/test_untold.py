"""Jobs of real processes of which none tells anything: who never came, or has gone, is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from stagewatch.demo.waiting import TookTooLong
from stagewatch.judgement.limits import Limits
from stagewatch.judgement.watch import Watch
from tests.deploy.engine import need
from tests.lab.lab import NICE, Lab
from tests.running import clean_environ

SLEEPS = "import time; time.sleep(3600)"
MOVES = "import time\nwhile True: open('/dev/null', 'wb').write(bytes(1 << 20)); time.sleep(0.1)"
RECORD = (
    "import stagewatch, sys; stagewatch.init(rank=int(sys.argv[1]), world_size=int(sys.argv[2]))\n"
)
LIMITS = Limits(still_seconds=20.0, bare_seconds=20.0)
HERE = str(os.getpid())

JOBS: dict[str, tuple[int, list[str]]] = {
    "never-joined": (4, [RECORD + SLEEPS] * 2),
    "loads": (4, [RECORD + SLEEPS, RECORD + MOVES]),
    "all-wait": (2, [RECORD + SLEEPS] * 2),
    "loses-one": (3, [SLEEPS] * 3),
    "ends": (3, [SLEEPS] * 3),
    "idles": (2, [SLEEPS] * 2),
    "one-kernel-of-two": (2, [SLEEPS]),
}
"""The size that the world says, and the program of each rank that is launched."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One node, on which ranks are looked for."""
    need("prometheus")
    with Lab(tmp_path_factory.mktemp("lab"), 1, "--ranks-by-environment") as lab:
        yield lab


def started(lab: Lab, job: str) -> list[subprocess.Popen[bytes]]:
    """The ranks of a job, as a launcher starts them."""
    world, programs = JOBS[job]
    told = {"SLURM_JOB_ID": f"{job}-{HERE}", "WORLD_SIZE": str(world)}
    return [
        lab.children.start(
            [*NICE, sys.executable, "-c", program, str(rank), str(world)],
            log=lab.directory / f"{job}.{rank}",
            environ=lab.environ(lab.nodes[0]) | clean_environ(told | {"RANK": str(rank)}),
        )
        for rank, program in enumerate(programs)
    ]


def test_who_never_came_or_has_gone_is_named_and_nobody_where_all_are_there(lab: Lab) -> None:
    processes = {job: started(lab, job) for job in JOBS}
    ranks = sum(map(len, processes.values()))
    still = f'rl_rank_still_seconds{{job_id=~".*-{HERE}"}}'
    remembered = f"max_over_time({still}[1m:5s])"  # the judge looks back in steps of five seconds
    lab.wait(lambda: len(lab.api.query(remembered)) == ranks, "all ranks are seen")
    asleep = f'count(rl_rank_wait_class{{job_id=~".*-{HERE}", class="parked"}} == 1) >= {ranks - 1}'
    lab.wait(lambda: lab.api.query(asleep), "all but the one that loads have begun to sleep")
    gone = [processes["loses-one"][1], *processes["ends"][:2]]
    for process in gone:
        os.killpg(process.pid, signal.SIGKILL)
    watch = Watch(lab.api, LIMITS)
    ever: set[tuple[str, int, str, str]] = set()
    paged: set[str] = set()

    def named() -> set[tuple[str, int, str, str]]:
        found = set()
        for (_, job), judged in watch.look(time.time()).jobs.items():
            if not job.endswith(HERE):  # ranks of other tests, which the agent sees as well
                continue
            for state in judged.states:
                paged.update([job] if state.paged else [])
                for one in state.verdict.charges:
                    found.add((job, one.rank.rank, one.evidence, one.confidence))
        ever.update(found)
        return found

    expected = {(f"never-joined-{HERE}", rank, "not_started", "likely") for rank in (2, 3)}
    expected |= {(f"loses-one-{HERE}", 1, "missing", "likely")}
    with suppress(TookTooLong):
        lab.wait(lambda: named() == expected, "both are named")
    assert named() == expected
    beyond = f"min({still} unless on (job_id) {still} < 10) > 1.5 * {LIMITS.bare_seconds}"
    lab.wait(lambda: named() and lab.api.query(beyond), "all others have stood still for long")
    assert (ever, paged) == (expected, set())
