"""From a real torchrun to the alert's text: agent, rules and Prometheus, no line in the script."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.errors import StagewatchError
from stagewatch.demo.stack import Stack, only
from stagewatch.prometheus.api import PrometheusApi
from tests.client.hooking import FRAMEWORKS, ROOT, needs
from tests.client.test_first_minutes import JOB, may_trace
from tests.running import clean_environ
from tests.waiting import wait_for

needs("torch")

NODE = "node-a"
COLLECTORS = ("stages", "ranks", "work", "incidents")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A node with its agent."""
    if not may_trace():
        pytest.skip("needs root, or kernel.yama.ptrace_scope=0, to look into other processes")
    if shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None:
        assert not FRAMEWORKS, "py-spy is not installed: make test-frameworks"
        pytest.skip("needs py-spy (pip install py-spy)")
    try:
        stack = Stack(cache=tmp_path / "cache", nodes=[NODE])
    except StagewatchError as error:
        pytest.skip(f"needs prometheus: {error}")
    kept = ("--collector.incidents.dir", str(tmp_path / "incidents"))
    try:
        stack.start_agent(NODE, *only(COLLECTORS), *kept)
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def job(stack: Stack, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Four ranks, of which rank 2 hangs in its reward function, as anybody starts them."""
    script = tmp_path / "train.py"
    shutil.copy(JOB, script)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "4"]
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(
            [
                *(sys.executable, "-m", "stagewatch.cli", "run", "--", *torchrun),
                *(str(script), str(tmp_path / "checkpoint.pt")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=clean_environ(
                {
                    "STAGEWATCH_DIR": str(stack.record_dir(NODE)),
                    "PYTHONPATH": os.pathsep.join([str(ROOT / "exporters"), str(ROOT)]),
                    "TMPDIR": str(tmp_path),  # torchrun leaves a directory behind
                    "OMP_NUM_THREADS": "1",
                }
            ),
        )
    yield job
    job.send_signal(signal.SIGINT)
    try:
        job.wait(timeout=60)
    finally:
        job.kill()


def test_alert_and_incident_name_the_rank_and_the_line(
    stack: Stack, job: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    api: PrometheusApi = stack.start_prometheus()
    reward = next(
        f"train.py:{number} in length_reward"
        for number, line in enumerate(JOB.read_text().splitlines(), 1)
        if "Event().wait()" in line
    )

    def texts() -> list[str]:
        assert job.poll() is None, (tmp_path / "log").read_text()
        return [
            alert.annotations["description"]
            for alert in api.alerts()
            if alert.labels["alertname"] == "JobStalled"
            and alert.labels.get("rank")
            and alert.labels["job_id"].startswith("torchrun-")  # not ranks of other tests
        ]

    wait_for(lambda: any(reward in text for text in texts()), "the alert with the line", 240)
    (text,) = texts()
    assert text.startswith("Rank 2 (train, pid ")
    assert f" on {NODE}) holds up job " in text
    assert f" Line of code: {reward}." in text
    api.close()

    (file,) = (tmp_path / "incidents").iterdir()
    incident = json.loads(file.read_text())
    (sentence,) = incident["sentences"]
    assert "rank 2 (pid " in sentence
    assert reward in sentence
    frames = {rank["rank"]: rank["stack"]["frame"] for rank in incident["ranks"]}
    assert sorted(frames) == [0, 1, 2, 3]
    assert frames.pop(2) == reward
    assert len(set(frames.values())) == 1
    assert frames[0].startswith("train.py:")
    assert frames[0].endswith(" in main")
    last = next(rank["events"][-1] for rank in incident["ranks"] if rank["rank"] == 0)
    assert "all_reduce" in last or "backward" in last
