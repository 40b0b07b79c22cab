"""From nothing to the line of code: the real torchrun, an ordinary user, no agent, no root."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.hooking import ROOT, needs
from tests.running import clean_environ
from tests.waiting import wait_for

needs("torch")

JOB = ROOT / "tests/client/jobs/reward_hang.py"
OTHER = 64_540
"""Somebody without any privilege."""


def _user() -> int:
    """As root, the other user, unless Python lies where only root may look."""
    if os.geteuid() != 0:
        return os.geteuid()
    try:
        subprocess.run([sys.executable, "-c", ""], user=OTHER, cwd="/", check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return OTHER


USER = _user()


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of that user's, on a machine where his records lie."""
    with tempfile.TemporaryDirectory(prefix="stagewatch-test-") as name:
        home = Path(name)
        shutil.copy(JOB, home / "train.py")
        os.chown(home, USER, -1)
        yield home
    if os.geteuid() != USER:
        shutil.rmtree(f"/dev/shm/stagewatch-{USER}", ignore_errors=True)


def as_user(home: Path) -> dict[str, Any]:
    """How that user starts something."""
    beside = str(Path(sys.executable).parent)
    environ = clean_environ(
        {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "exporters"), str(ROOT)]),
            "PATH": os.pathsep.join([beside, os.environ["PATH"]]),
            "HOME": str(home),
            "TMPDIR": str(home),  # torchrun leaves a directory behind
            "OMP_NUM_THREADS": "1",
        }
    )
    environ.pop("XDG_RUNTIME_DIR", None)
    other = {"user": USER, "group": USER, "extra_groups": []} if USER == OTHER else {}
    return {"cwd": home, "env": environ, **other}


def may_trace() -> bool:
    """Whether the kernel lets a user look into his own processes; see ptrace(2), Yama."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return USER == 0 or not scope.exists() or scope.read_text().strip() == "0"


def works_in(pid: int, directory: Path) -> bool:
    """Whether this is the process's working directory."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve() == directory
    except OSError:
        return False


def test_inspect_names_the_rank_the_function_and_the_line(home: Path) -> None:
    if Path("/run/stagewatch/ranks").exists():
        pytest.skip("an agent has run on this machine")
    stagewatch = [sys.executable, "-m", "stagewatch.cli"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "4"]
    log = home / "log"
    with log.open("wb") as output:
        job = subprocess.Popen(
            [*stagewatch, "run", "--", *torchrun, "train.py", str(home / "checkpoint.pt")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            **as_user(home),
        )
    try:
        seen: dict[str, Any] = {}

        def named() -> bool:
            assert job.poll() is None, log.read_text()
            done = subprocess.run(
                [*stagewatch, "inspect", "--evidence", "--json"],
                capture_output=True,
                text=True,
                check=False,
                **as_user(home),
            )
            seen.update(json.loads(done.stdout))
            # Root sees others' jobs as well.
            seen["ranks"] = [rank for rank in seen["ranks"] if works_in(rank["pid"], home)]
            jobs = {rank["job_id"] for rank in seen["ranks"]}
            seen["verdicts"] = [one for one in seen["verdicts"] if one["job_id"] in jobs]
            seen["stacks"] = [one for one in seen["stacks"] if one["job_id"] in jobs]
            return any(one["evidence"] for one in seen["verdicts"])

        wait_for(named, "a verdict", limit=200)
        (verdict,) = seen["verdicts"]
        assert [culprit["rank"] for culprit in verdict["culprits"]] == [2], seen
        ranks = {rank["rank"]: rank for rank in seen["ranks"]}
        assert sorted(ranks) == [0, 1, 2, 3]
        assert {rank["job_id"] for rank in ranks.values()} == {verdict["job_id"]}
        assert {rank["step"] for rank in ranks.values()} == {8}
        assert {rank["stage"] for rank in ranks.values()} == {"train"}
        assert ranks[0]["substage"] == "backward"
        assert {rank["wait_class"] for rank in ranks.values()} == {"parked"}  # no help from there
        if shutil.which("py-spy", path=as_user(home)["env"]["PATH"]) and may_trace():
            (line,) = [
                number
                for number, text in enumerate(JOB.read_text().splitlines(), 1)
                if "Event().wait()" in text
            ]
            suspect = next(stack for stack in seen["stacks"] if stack["why"] == "suspect")
            frames = [frame for _, frames in suspect["threads"] for frame in frames]
            assert any(f"length_reward (train.py:{line})" in frame for frame in frames), suspect
        told = "rank 2 (pid "  # by `run` itself, which may look a little later than `inspect`
        wait_for(lambda: told in log.read_text(), "the same from `run`", limit=60)
    finally:
        job.send_signal(signal.SIGINT)
        try:
            job.wait(timeout=60)
        finally:
            job.kill()
    last = log.read_text().splitlines()[-1]
    # Within the job's patience the interrupt comes first, afterwards the hang.
    early = re.match(
        r"stagewatch: stopped by Ctrl-C at step 8, after .+, the last .+ without progress; ", last
    )
    assert early or last.startswith("stagewatch: hung for "), last
    assert "rank 2" in last
