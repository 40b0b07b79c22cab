"""From four real ranks, slow one and all, to the alert: client, agent, rules, Prometheus."""

from __future__ import annotations

from pathlib import Path

from tests.client.slow_job import running, told, watched
from tests.waiting import wait_for

SHORTER = {
    "slow-jobs": {
        "interval: 1m": "interval: 2s",
        "offset 1m, 0) / 60": "offset 4s, 0) / 4",
        "offset 50m": "offset 18s",
        "[1h]": "[20s]",
        "[2m]": "[10s]",
        "for: 5m": "for: 2s",
    }
}
"""An hour is 20 s here, and a minute 4 s."""
STARVES = """
from pathlib import Path
def prepare(number): pass
def work(number):
    recorder = stagewatch.client._api._recorder
    word = recorder.wait_for_batch()
    time.sleep(0.5 if Path({starve!r}).exists() else 0.02)
    recorder.got_batch(word)
"""


def test_a_job_that_starves_for_data_is_told_as_a_whole_and_no_rank_of_it(tmp_path: Path) -> None:
    starve = tmp_path / "starve"
    with (
        watched(tmp_path, {"stages"}, SHORTER) as (stack, prometheus),
        running(stack, STARVES.format(starve=str(starve))) as job,
    ):
        best = 'rl_job_step_reference_seconds{beside="best_hours"}'
        wait_for(lambda: prometheus.query(best), "hours at the usual pace", 240)
        starve.touch()
        (text,) = told(job, prometheus, lambda text: "Waiting for data is" in text)
        assert text.startswith("Job slow-540 (train): over the last hour a step took ")
        assert " times as long as in its best hours of the last day. Waiting for data" in text
