"""What is said of slow ranks and jobs, beside the texts of the alerts on them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagewatch.inspect.slowness import slow_job, witnesses
from stagewatch.judgement.slow_jobs import Cause
from stagewatch.prometheus.api import Series
from tests.dashboards.boards import ROOT

Given = dict[str, list[tuple[float, dict[str, str]]]]
WHO = {"node": "n2", "role": "train", "rank": "3"}
WITNESSES = [
    (0.3, WHO | {"witness": "core_wait", "words": "Its threads wait for a core %s of the time."}),
    (1200.4, WHO | {"witness": "page_faults", "words": "It waits for %.0f pages a second."}),
    (5.0, WHO | {"witness": "nfs_read", "words": "NFS reads take %s of what they take."}),
]


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


def test_witnesses_are_told_in_the_words_that_the_judge_gives_them() -> None:
    twice = [(value, labels | {"instance": judge}) for value, labels in WITNESSES for judge in "ab"]
    assert witnesses(asked({"rl_rank_slow_witness": twice}))["n2", "train", "3"] == (
        "its threads wait for a core 30% of the time",
        "NFS reads take 500% of what they take",
        "it waits for 1200 pages a second",
    )


@pytest.mark.parametrize(
    ("beside", "causes", "job", "times"),
    [("best_hours", [Cause("work", "rollout", 0.981)], "7", 1.5), ("earlier_runs", [], "8", 1.25)],
)
def test_a_slow_job_is_told_in_the_words_of_the_alert(
    beside: str, causes: list[Cause], job: str, times: float
) -> None:
    who = {"role": "train", "beside": beside}
    other = {"role": "train", "beside": "other"}
    given: Given = {
        "job_role:rl_slow_job_told:ratio": [(times, who)],
        "job_role:rl_step_time:seconds": [(15.0, {"role": "train"})],
        "rl_job_slow_cause_share": [
            (cause.share, labels | {"words": cause.words, "instance": judge})
            for cause in causes
            for labels in (who, other)
            for judge in "ab"
        ],
    }
    (told,) = slow_job(asked(given))
    (text,) = (text for text in expected("slow-jobs") if text.startswith(f"Job {job} "))
    words = re.findall(r"[\w.%]+\b", text.partition(" times ")[2].lower())
    ours = told.partition(" times ")[2].lower()
    assert re.findall(r"[\w.%]+\b", ours) == words
