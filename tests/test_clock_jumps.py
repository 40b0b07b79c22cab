"""A node agent whose wall clock is set forwards and backwards; the monotonic clocks go on, as with
`settimeofday(2)`.

The clock is moved by a library of our own: libfaketime moves sleeps too, and refuses (EINVAL) one
whose end has passed by the time it looks, as happens on a busy machine.
"""

from __future__ import annotations

import http.client
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.node_agent import TRAINER, NodeAgent, Series
from tests.waiting import wait_for

SOURCE = Path(__file__).parent / "fakes" / "wall_clock.c"
DAY = 86400
COUNTED = ("_total", "_count", "_sum", "_bucket")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[NodeAgent]:
    library = tmp_path / "wall_clock.so"
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
    subprocess.run(["gcc", *flags, "-o", library, SOURCE, "-lm"], check=True)
    set_clock(tmp_path, 0)
    agent = NodeAgent(
        tmp_path,
        *("--no-ranks-by-environment", "--collector.kmsg.state-file", str(tmp_path / "kmsg.json")),
        *("--collector.incidents.dir", str(tmp_path / "incidents")),
        LD_PRELOAD=str(library),
        WALL_CLOCK_OFFSET=str(tmp_path / "offset"),
    )
    agent.start()
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, "0"], env=os.environ | {"STAGEWATCH_DIR": str(agent.ranks)}
    )
    yield agent
    trainer.kill()
    trainer.wait()
    agent.stop()


def set_clock(directory: Path, offset: float) -> None:
    """In one write, as the process has the file mapped."""
    descriptor = os.open(directory / "offset", os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(descriptor, struct.pack("d", offset), 0)
    os.close(descriptor)


def wall_offset(agent: NodeAgent) -> float:
    """How far the agent's clock is ahead, by the date of its answer, in seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=30)
    connection.request("GET", "/-/healthy")
    date = connection.getresponse().headers["Date"]
    connection.close()
    return parsedate_to_datetime(date).timestamp() - time.time()


def of_rank(series: Series, name: str) -> list[float]:
    return [value for (found, _), value in series.items() if found == name]


def jump(agent: NodeAgent, offset: int) -> Series:
    """The agent's series, once it has looked at the rank at that time of its clock."""
    set_clock(agent.directory, offset)
    wait_for(lambda: abs(wall_offset(agent) - offset) < 2, "the agent's clock has jumped")
    step = agent.value("rl_rank_step")
    wait_for(lambda: agent.value("rl_rank_step") != step, "the agent looks at the rank again")
    return agent.series()


def test_ages_counters_and_collectors_survive_a_clock_that_jumps(agent: NodeAgent) -> None:
    for name in ("rl_rank_cpu_seconds_total", "rl_rank_started_timestamp_seconds"):
        wait_for(lambda name=name: agent.value(name) is not None, "the rank is seen")
    before = agent.series()
    begun = of_rank(before, "rl_rank_started_timestamp_seconds")
    for offset in (DAY, -2 * DAY, 0, 3, -3):
        now = jump(agent, offset)
        for key in before.keys() & now.keys():
            if key[0].endswith(COUNTED):
                assert now[key] >= before[key], (offset, key)
        for name in ("rl_rank_progress_age_seconds", "rl_rank_stage_open_seconds"):
            assert all(0 <= age < DAY / 2 for age in of_rank(now, name)), (offset, name)
        assert of_rank(now, "rl_rank_up") == [1]
        assert of_rank(now, "rl_rank_started_timestamp_seconds") == begun
        failed = [
            labels
            for (name, labels), value in now.items()
            if name == "stagewatch_collector_success" and not value
        ]
        assert not failed
        before = now
    assert len(agent.log.read_text().splitlines()) == 1, "nothing but that it has started"
    assert agent.get("/")[0] == 200
