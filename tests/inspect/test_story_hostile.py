"""A job may have any id, and its ranks may run on nodes of any name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from tests.report.filled import Past, filled_prometheus
from tests.running import clean_environ

JOB = 'a"b\\c\n{0}\u202e'
NODE = "n\u202e1"

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


@pytest.fixture
def url(children: Children, tmp_path: Path) -> Iterator[str]:
    """A Prometheus that knows the job just now."""
    now = time.time()
    past = Past(now - 60, now)
    who = {"job_id": JOB, "role": 'tr"ain', "rank": 0, "node": NODE}
    past.add("rl_rank_up", 1.0, **who)
    past.add("rl_rank_progress_age_seconds", 1.0, **who)
    yield filled_prometheus(children, tmp_path / "p", past)


def inspect(url: str, job: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stagewatch.cli", "inspect", "--prometheus", url, "--job", job],
        capture_output=True,
        text=True,
        env=clean_environ({}),
        timeout=250,
        check=False,
    )


def test_the_story_of_a_job_with_a_hostile_id_is_told_in_printable_text(url: str) -> None:
    done = inspect(url, JOB)
    assert done.stderr == ""
    assert done.stdout.startswith('Job a"b\\c?{0}?: in progress')
    assert '\ntr"ain: 1 rank on n?1' in done.stdout
    assert done.returncode == 0


def test_an_id_that_is_not_utf_8_is_of_no_job_there(url: str) -> None:
    done = inspect(url, os.fsdecode(b"job-\xff"))
    assert "Traceback" not in done.stderr
    assert "shows a rank of job job-" in done.stderr
    assert done.returncode == 1
