"""What is said of slow ranks and jobs, beside the texts of the alerts on them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagewatch.inspect.slowness import slow_job, slow_ranks, witnesses
from stagewatch.prometheus.api import Series
from tests.dashboards.boards import ROOT

Given = dict[str, list[tuple[float, dict[str, str]]]]
WHO = {"node": "n2", "role": "train", "rank": "3"}
SHARES = {
    "core_wait": 0.3,
    "cpu_limit": 0.2,
    "cpu_steal": 0.05,
    "disk_wait": 0.4,
    "swapped": 0.1,
    "numa_other": 0.3,
    "data_wait": 0.4,
    "nfs_read": 5.0,
    "gpu_clock": 0.75,
    "gpu_throttled": 0.6,
    "pcie_width": 0.5,
    "tcp_repeats": 0.05,
}
ALL: Given = {
    "rank:rl_slow:ratio": [(1.14, WHO)],
    "rank:rl_slow_witness:ratio": [
        (share, WHO | {"witness": name, "reason": "hw_power_brake"})
        for name, share in SHARES.items()
    ],
    "rank:rl_slow_gpu_clock_below:hertz": [(495e6, WHO)],
    "rank:rl_slow_page_faults:per_second": [(1200.0, WHO)],
    "rank:rl_slow_gpu_errors:per_minute": [
        (count, WHO | {"what": what})
        for what, count in (("nvlink", 2000.0), ("pcie", 40.0), ("memory", 4.0))
    ],
    "rank:rl_slow_gpu_hotter:celsius": [(24.0, WHO)],
    "rank:rl_slow_gpu_active_odd:ratio": [
        (0.2, WHO | {"unit": "sm"}),
        (-0.1, WHO | {"unit": "tensor"}),
    ],
}


def asked(given: Given) -> Callable[[str], list[Series]]:
    """A server that has these series and no others."""
    return lambda metric: [Series(labels, value) for value, labels in given.get(metric, [])]


def expected(subject: str) -> list[str]:
    """The descriptions that promtool expects of the alerts of a file."""
    file = ROOT / "alerts" / "tests" / f"{subject}.test.yaml"
    tests: list[dict[str, Any]] = yaml.load(Path(file).read_text(), yaml.CSafeLoader)["tests"]
    return [
        alert["exp_annotations"]["description"]
        for test in tests
        for check in test.get("alert_rule_test", ())
        for alert in check.get("exp_alerts") or ()
    ]


def test_witnesses_are_told_in_the_words_of_the_alert() -> None:
    told = witnesses(asked(ALL))["n2", "train", "3"]
    (text,) = (text for text in expected("slow") if "A CPU limit" in text)
    of_alert = text.partition(" a step. ")[2].removesuffix(".").split(". ")
    assert [one[0].upper() + one[1:] for one in told] == of_alert


def test_a_slow_rank_is_told_with_its_cost_and_what_stands_beside_it() -> None:
    given = {
        "rank:rl_slow:ratio": [(1.14, WHO), (1.3, WHO | {"rank": "5"})],
        "rank:rl_slow_cost:ratio": [(0.02, WHO), (0.3, WHO | {"rank": "5"})],
        "rank:rl_slow_cost:seconds_per_step": [(1.234, WHO | {"rank": "5"})],
        "rank:rl_slow_witness:ratio": [(0.2, WHO | {"witness": "cpu_limit"})],
    }
    costly = "Slow: rank 5 on n2 works 1.30 times as long as its peers, which costs 1.2 s a step."
    limited = (
        "Slow: rank 3 on n2 works 1.14 times as long as its peers: a CPU limit stops it 20% of "
        "the time."
    )
    assert slow_ranks(asked(given), 6) == [costly, limited]
    assert slow_ranks(asked(given), 1) == [costly, "And 1 more."]
    assert slow_ranks(asked({}), 6) == []


@pytest.mark.parametrize(
    ("beside", "cause", "job"),
    [
        ("best_hours", {"cause": "waiting"}, "1"),
        ("best_hours", None, "5"),
        ("earlier_runs", {"cause": "data"}, "4"),
    ],
)
def test_a_slow_job_is_told_in_the_words_of_the_alert(
    beside: str, cause: dict[str, str] | None, job: str
) -> None:
    who = {"role": "train", "beside": beside}
    given: Given = {
        "job_role:rl_slow_job_told:ratio": [(1.5, who)],
        "job_role:rl_step_time:seconds": [(15.0, {"role": "train"})],
        "job_role_stage:rl_slow_job_cause:share": [(1.0, who | cause)] if cause else [],
    }
    (told,) = slow_job(asked(given))
    (text,) = (text for text in expected("slow-jobs") if text.startswith(f"Job {job} "))
    words = re.findall(r"[\w.%]+\b", text.partition(": ")[2].lower())
    ours = told.partition(": ")[2].replace("of train ", "").lower()
    assert re.findall(r"[\w.%]+\b", ours) == words


def test_only_what_it_is_compared_with_is_told_of() -> None:
    """The causes beside earlier runs are recorded as well, and are others."""
    given: Given = {
        "job_role:rl_slow_job_told:ratio": [(1.3, {"role": "train", "beside": "best_hours"})],
        "job_role_stage:rl_slow_job_cause:share": [
            (0.7, {"role": "train", "beside": beside, "cause": "work", "stage": stage})
            for beside, stage in (("best_hours", "rollout"), ("earlier_runs", "reward"))
        ],
    }
    (told,) = slow_job(asked(given))
    assert "1.30 times as long as in its best hours" in told
    assert told.endswith("; work in rollout is 70% of what it has grown by.")
