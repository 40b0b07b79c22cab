"""The demo as a newcomer runs it: real processes hang, the right one is named, nothing is left."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.demo.sync_stall import RANKS
from tests.demo.running import Demo
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus on the PATH"
)


@pytest.fixture
def demo(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Demo]:
    (temporary := tmp_path / "tmp").mkdir()
    running = Demo(tmp_path, temporary, *getattr(request, "param", ()))
    yield running
    running.end()


@pytest.mark.parametrize("demo", [("--baseline-steps", "20")], indirect=True)
def test_the_rank_that_left_early_is_named_and_nothing_is_left(demo: Demo) -> None:
    wait_for(lambda: demo.process.poll() is not None, "the demo ends by itself", limit=240)
    assert demo.process.returncode == 0, demo.text()
    assert "left_loop_early" in demo.text()
    assert "the right rank was named" in demo.text()
    steps = re.search(r"step (\d+): one rank leaves", demo.text())
    assert steps is not None and int(steps[1]) >= 20, "so many healthy steps were asked for"
    assert demo.nothing_left()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_ended_in_the_middle_it_leaves_no_process_and_no_file(
    demo: Demo, end: signal.Signals
) -> None:
    wait_for(demo.training, "the demo has started everything", limit=120)
    assert len(demo.processes()) > RANKS
    demo.process.send_signal(end)
    demo.process.wait()
    wait_for(demo.nothing_left, "no process and no file is left")
    assert "Traceback" not in demo.text()


@pytest.mark.parametrize("demo", [("--scenario", "starved-rollout")], indirect=True)
def test_a_scenario_that_is_killed_leaves_no_process_no_file_and_no_cgroup(demo: Demo) -> None:
    wait_for(demo.training, "the scenario has started everything", limit=120)
    groups = {
        line.rpartition(":")[2]
        for process in demo.processes()
        for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
        if "stagewatch-demo-" in line
    }
    demo.end()

    def present() -> set[Path]:
        roots = Path("/sys/fs/cgroup").glob("*")
        return {root / group.strip("/") for root in roots for group in groups} & set(
            Path("/sys/fs/cgroup").glob("**/stagewatch-demo-*")
        )

    wait_for(lambda: not present(), "no cgroup is left")
