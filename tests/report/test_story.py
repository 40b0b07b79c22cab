"""What a report says in words, and the values it hands on, of the history in `contention`."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import datetime

import pytest

from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.events import Firing, Milestone
from stagewatch.report.experiment import Experiment
from stagewatch.report.periods import Period
from stagewatch.report.records import experiment_csv
from stagewatch.report.recovery import Asked, Recovery, make_recovery
from stagewatch.report.story import entries, experiment_opening, recovery_opening
from tests.report import contention as past
from tests.report import hyperpod


@pytest.fixture(scope="module")
def recovery(hyperpod_url: str) -> Recovery:
    """Two hours in which one node failed."""
    api = PrometheusApi(hyperpod_url)
    period = Period(hyperpod.T + hyperpod.START, hyperpod.T + hyperpod.END)
    try:
        return make_recovery(api, Asked(period, period, cluster=hyperpod.CLUSTER))
    finally:
        api.close()


def test_the_time_line_is_in_the_order_of_time_and_has_the_kernels_kills(
    experiment: Experiment,
) -> None:
    told = [(round(each.time - past.T, 2), each.words, each.what) for each in entries(experiment)]
    assert [when for when, _, _ in told] == sorted(when for when, _, _ in told)
    assert told[0][1] == "injected"
    kill = (past.KILLED, "OOM kill", "rollout 2: OOM kill (cgroup)")
    gone = (past.GONE, "process gone", "rollout 2: process gone")
    assert told.index(kill) < told.index(gone)
    assert (18.25, "kernel", "node node-b: OOM kill (cgroup, no rank's)") in told
    assert not [what for when, _, what in told if when < 0]


def test_three_sentences_say_who_where_when_and_what_it_cost(experiment: Experiment) -> None:
    began, showed, cost = experiment_opening(experiment)
    assert began.startswith("Rollout 2 of job 530 (cluster lab) went wrong first, in rollout, ")
    assert f"{past.EFFECT:.1f} s after CPU contention was injected on rollout_worker_2" in began
    assert re.search(r"at \d\d:\d\d:\d\d UTC on \d{4}-\d\d-\d\d", began)
    parts = [
        f"he first alert was Straggler: rollout 2, after {past.DETECTED:.1f} s",
        f"ollout 2 was killed for lack of memory after {past.KILLED:.1f} s",
        "he last error, SecondTimeout, was that of controller 0 in cleanup, after 2 min",
    ]
    places = [showed.index(part) for part in parts]
    assert places == sorted(places)
    assert cost == "What it cost is not known, since the job's steps were not seen."


def test_a_verdict_is_told_where_no_series_left_a_baseline_that_is_too_short(
    experiment: Experiment,
) -> None:
    short = replace(experiment, baseline=Period(past.T - 2.4, past.T), suspects=[])
    alert = experiment.view.firings[0]
    verdict = replace(alert, name="hung", labels=alert.labels | {"evidence": "left_loop_early"})

    def began(firings: list[Firing]) -> str:
        view = replace(experiment.view, firings=firings)
        detected = Milestone(alert.start, alert.name) if firings else Milestone()
        seen = {**experiment.milestones, "detected": detected}
        return experiment_opening(replace(short, view=view, milestones=seen))[0]

    named = began([verdict])
    assert named.startswith("Rollout 2 of job 530 (cluster lab) was named ")
    assert named.endswith(": left loop early; no series left its baseline, which has only 2.4 s.")
    assert began([alert]).startswith(f"The first alert, {alert.name}, came ")
    assert began([]).startswith("Nothing visibly went wrong in job 530")


def test_who_is_looked_at_first_is_not_called_the_first_to_deviate(experiment: Experiment) -> None:
    """Within two looks a verdict decides, not the time."""
    first, other = experiment.suspects[:2]
    later = replace(first, time=other.time + 2)
    told = replace(experiment, suspects=[later, other])
    assert "went wrong, in" in experiment_opening(told)[0]


def test_a_recoverys_sentences_say_whether_where_when_and_what_it_cost(recovery: Recovery) -> None:
    first, worst, cost = recovery_opening(recovery, recovery.clusters[0])
    assert first == "On cluster hyperpod 1 of 2 incidents hit a job."  # two hours judge nothing
    assert worst.startswith("It began on n1 at ")
    assert "JobStalled was the first alert, after 2 min 15 s" in worst
    assert "job 77 made progress again after 18 min 45 s" in worst
    assert cost.startswith("It cost 18 min 45 s of downtime and ")


def rows(text: str) -> list[dict[str, str]]:
    """Those of report.csv."""
    return list(csv.DictReader(io.StringIO(text)))


def test_series_are_handed_on_in_long_form(experiment: Experiment) -> None:
    table = rows(experiment_csv(experiment))
    assert list(table[0]) == ["time", "metric", "labels", "value", "unit"]
    who = {"name": "batch_size", "rank": "1", "role": "train"}
    sizes = {
        datetime.fromisoformat(row["time"].replace("Z", "+00:00")).timestamp() - past.T: float(
            row["value"]
        )
        for row in table
        if row["metric"] == "rl_scalar" and json.loads(row["labels"]) == who
    }
    assert (sizes[-600.0], sizes[past.GONE - 2], sizes[past.GONE]) == (1600.0, 1600.0, 1500.0)
    first, last = past.GAP
    assert not [when for when in sizes if first + 4 <= when < last]  # nothing is interpolated
    times = list(sizes)
    assert all(later > earlier for earlier, later in itertools.pairwise(times))
    waits = [row for row in table if row["metric"] == "rate(rl_rank_run_queue_seconds_total)"]
    assert {row["unit"] for row in waits} == {"cores"}
    assert not [row for row in table if past.RECORDED in row["labels"]]


def test_libraries_for_figures_and_values_are_loaded_by_a_report_alone() -> None:
    code = (
        "import sys, stagewatch.cli as cli\n"
        "try: cli.main(['report', 'experiment', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--baseline" in done.stdout
