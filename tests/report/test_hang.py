"""Both reports on a job that hangs in a line of the user's own code.

What the agents and rules store of one is in docs/metrics.md (`rl_rank_stack_frame_info`) and
docs/design.md (`job:rl_stall:culprit`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch.cli import main
from stagewatch.core.processes import Children
from tests.report.filled import Past, filled_prometheus

T = time.time() // 100 * 100 - 7200
NAMED, STACKS, END = 12.0, 16.0, 120.0
"""When a verdict names rank 1, when the stacks are known, and when it is over."""
FRAME = "reward.py:25 in <lambda>"
ELSEWHERE = "train.py:40 in main"
RANKS = range(4)


def hang() -> Past:
    """Four ranks, of which rank 1 is stopped within its reward function at T."""
    past = Past(T - 600, T + 300)
    job = {"cluster": "c", "job_id": "540"}
    fault = {"cluster": "c", "node": "n1", "id": "stop-1"}
    past.add("up", 1.0, cluster="c", job="stagewatch", node="n1")
    kind = {"fault_type": "process_stop", "target_worker": "train:1"}
    past.add("fault_injection_active", between(0, END), **fault, **kind)
    past.add("fault_injection_start_timestamp_seconds", between(0, END, T), **fault)
    for rank in RANKS:
        who = {**job, "node": "n1", "role": "train", "rank": rank}
        past.add("rl_rank_up", 1.0, **who)
        past.add("rl_rank_info", 1.0, **who, pid=100 + rank, uuid=f"GPU-{rank}")
        past.add("rl_rank_stage_code", 5.0, **who)
        past.add("rl_rank_step", steps, **who)
        past.add("rl_rank_progress_age_seconds", age, **who)
        frame = FRAME if rank == 1 else ELSEWHERE
        past.add("rl_rank_stack_frame_info", between(STACKS, END), **who, frame=frame)
    culprit = {**job, "node": "n1", "role": "train", "rank": 1, "evidence": "stack_differs"}
    past.add("job:rl_stall:culprit", between(NAMED, END), **culprit)
    past.add("job:rl_stall:active", between(NAMED, END), **job, role="train")
    alert = {"alertname": "JobStalled", "alertstate": "firing", "severity": "critical"}
    past.add("ALERTS", between(NAMED, END), **alert, **culprit)
    return past


def between(start: float, end: float, value: float = 1.0) -> Callable[[float], float | None]:
    """A value from one time after the injection to another."""
    return lambda when: value if start <= when - T < end else None


def steps(when: float) -> float:
    """One each ten seconds, and none while it hangs."""
    after = when - T
    return (min(after, 0.0) + max(after - END, 0.0) + 600) // 10


def age(when: float) -> float:
    """Seconds since the last mark: none comes while it hangs."""
    after = when - T
    return after if 0 <= after < END else after % 10


@pytest.fixture(scope="module")
def url(children: Children, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Prometheus that has seen it."""
    return filled_prometheus(children, tmp_path_factory.mktemp("hang") / "p", hang())


def test_experiment_says_where_the_culprit_hung(url: str, tmp_path: Path) -> None:
    given = ["report", "experiment", "--prometheus", url, "--fault", "stop-1"]
    assert main([*given, "--output", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    (hung,) = report["view"]["hung"]
    assert (hung["time"], hung["component"], hung["frame"]) == (T + STACKS, "train 1", FRAME)
    assert report["milestones"]["localised"]["time"] == T + NAMED
    assert report["milestones"]["hung_at"]["time"] == T + STACKS
    page = (tmp_path / "report.html").read_text()
    escaped = FRAME.replace("<", "&lt;").replace(">", "&gt;")
    assert f"train 1 at {escaped}" in page  # the time line
    assert f"train 1, evidence stack_differs, at {escaped}" in page  # the alert
    assert FRAME not in page
    assert ELSEWHERE not in page  # where those are that wait for it
    assert "line named" in (tmp_path / "propagation.svg").read_text()


def test_recovery_says_where_the_culprit_hung(url: str, tmp_path: Path) -> None:
    given = ["report", "recovery", "--prometheus", url, "--from", str(T - 600)]
    assert main([*given, "--to", str(T + 300), "--output", str(tmp_path)]) == 0
    (cluster,) = json.loads((tmp_path / "report.json").read_text())["clusters"]
    (incident,) = cluster["incidents"]
    (hung,) = [sign for sign in incident["incident"]["signs"] if sign["kind"] == "hung"]
    assert (hung["job_id"], hung["text"]) == ("540", f"train 1 at {FRAME}")
