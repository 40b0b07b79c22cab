"""Faults in a small RL system: where each began is named, and it comes to light elsewhere.

All jobs run side by side in one lab, beside a healthy one; the scenario that takes a whole core
away is put in force when the others are over.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.prometheus.api import Series
from stagewatch_lab.rl import memory_limit, storage, wire
from stagewatch_lab.rl.device import TRAIN_MEMORY
from stagewatch_lab.rl.experiment import ABOUT_FAULTS, Experiment, Record
from stagewatch_lab.rl.job import RlJob
from stagewatch_lab.rl.lab import RlLab
from stagewatch_lab.rl.scenarios import SCENARIOS
from tests.waiting import wait_for

WORKERS = 3
BASELINE_STEPS = 4
SAMPLES = 20
LAST = "starved-rollout"
"""It disturbs the others."""
OVER = 400.0

pytestmark = [
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH"),
    pytest.mark.xdist_group("rl"),
    pytest.mark.timeout(1200),
]


class Running:
    """The lab, with every scenario gone through."""

    def __init__(self, directory: Path) -> None:
        self.lab = RlLab(cache=directory)
        self.experiments: dict[str, Experiment] = {}
        self.said: dict[str, list[str]] = {name: [] for name in SCENARIOS}
        self.alerts_of_the_healthy: list[dict[str, str]] = []

    def run(self) -> None:
        """Baselines together, faults together, and the one that disturbs at last."""
        scenarios = {}
        for name, kind in SCENARIOS.items():
            job = self.lab.job(
                f"job-{name}",
                trains=WORKERS,
                rollouts=WORKERS,
                samples=SAMPLES,
                cpu_share=kind.cpu_share if name == LAST else 0.02,
            )
            scenarios[name] = kind(self.lab, job)
        self.healthy = self._job("healthy")
        self.api = self.lab.start()
        self.began = time.time()
        for name, scenario in scenarios.items():
            scenario.prepare()
            if name != LAST:
                scenario.job.start()
            say = self.said[name].append
            self.experiments[name] = Experiment(scenario, self.api, say, f"fault-{name}")
        together = [name for name in SCENARIOS if name != LAST]
        self.healthy.start()
        self._learn(together)
        self._go_through(together)
        self.alerts_of_the_healthy = [
            alert for alert in self.firing("healthy") if alert["alertname"] not in ABOUT_FAULTS
        ]
        self.healthy.stop()
        scenarios[LAST].job.start()  # it computes more than all others
        self._learn([LAST])
        self._go_through([LAST])

    def stop(self) -> None:
        """End everything."""
        for experiment in self.experiments.values():
            experiment.scenario.revert()
        self.lab.stop()
        for experiment in self.experiments.values():
            experiment.scenario.close()

    def firing(self, job_id: str) -> list[dict[str, str]]:
        """Every alert that has ever fired for a job."""
        selector = f'ALERTS{{job_id="{job_id}", alertstate="firing"}}'
        ago = int(time.time() - self.began) + 1
        return [found.labels for found in self.api.query(f"last_over_time({selector}[{ago}s])")]

    def fired(self, name: str, alert: str, label: str) -> set[tuple[str, ...]]:
        """Role, rank and a label of the alerts of that name for a scenario's job."""
        return {
            (labels["role"], labels["rank"], labels[label])
            for labels in self.firing(f"job-{name}")
            if labels["alertname"] == alert
        }

    def ever(self, metric: str, name: str, labels: str = "") -> list[Series]:
        """The highest value that each series of a scenario's job has ever had."""
        ago = int(time.time() - self.began) + 1
        selector = f'{metric}{{job_id="job-{name}", {labels}}}'
        return self.api.query(f"max_over_time({selector}[{ago}s])")

    def said_of(self, name: str) -> str:
        """What the judge said of a scenario's job, and whom the kernel showed ranks to wait for."""
        series = (*self.ever("job:rl_stall:told", name), *self.ever("rl_rank_waits_for", name))
        return "\n".join(str(one.labels) for one in series)

    def record(self, name: str) -> Record:
        """What came of a scenario."""
        record = self.experiments[name].record
        assert record is not None
        return record

    def _job(self, job_id: str) -> RlJob:
        return self.lab.job(
            job_id, trains=WORKERS, rollouts=WORKERS, samples=SAMPLES, cpu_share=0.02
        )

    def _learn(self, names: list[str]) -> None:
        wait_for(
            lambda: all(self.experiments[name].warmed_up(BASELINE_STEPS) for name in names),
            "the rules have learnt how long each stage takes",
            OVER,
        )

    def _go_through(self, names: list[str]) -> None:
        """Inject each when its job is at the right place, and look on until all are told of."""
        waiting = [self.experiments[name] for name in names]
        under_way: list[Experiment] = []
        looked = 0.0

        def over() -> bool:
            nonlocal looked
            for experiment in list(waiting):
                if experiment.due():
                    waiting.remove(experiment)
                    experiment.inject()
                    under_way.append(experiment)
            if time.monotonic() < looked + 1:
                return False
            looked = time.monotonic()
            for experiment in under_way:
                experiment.look()
            for experiment in [each for each in under_way if each.done() and each.job.over()]:
                under_way.remove(experiment)
                experiment.end()
                experiment.job.stop()
            return not waiting and not under_way

        try:
            what = "every fault is named and comes to light"
            wait_for(over, what, OVER, pause=0.02)  # a fault has its place within a step
        except AssertionError as error:
            left = {each.scenario.name: self.said[each.scenario.name] for each in under_way}
            raise AssertionError(f"{left}, and {len(waiting)} were not injected") from error


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """All scenarios, over."""
    if lacks := wire.missing() or memory_limit.missing() or storage.missing():
        pytest.skip(lacks)
    running = Running(tmp_path_factory.mktemp("cache"))
    try:
        running.run()
        yield running
    finally:
        running.stop()


every_scenario = pytest.mark.parametrize("name", SCENARIOS)


@every_scenario
def test_an_alert_names_where_the_fault_began(name: str, running: Running) -> None:
    named = running.experiments[name].named()
    assert named is not None, running.said[name]
    assert running.experiments[name].scenario.names(named.labels)


@every_scenario
def test_the_fault_comes_to_light_elsewhere(name: str, running: Running) -> None:
    record, scenario = running.record(name), running.experiments[name].scenario
    assert record.t_surface is not None
    assert record.t_surface > record.t_inject
    surface = scenario.surface
    began = (scenario.origin.get("role"), scenario.origin.get("stage"))
    assert (surface.role, surface.stage) != began
    logs = "".join(scenario.job.log(worker) for worker in scenario.job.processes)
    assert surface.message in logs


@every_scenario
def test_the_marker_was_open_while_the_fault_was_in_force(name: str, running: Running) -> None:
    record = running.record(name)
    labels = f'id="fault-{name}", target_worker="{record.target}", scenario="{record.source}"'
    ago = int(time.time() - running.began) + 1
    selector = f"fault_injection_active{{{labels}}}[{ago}s]"
    assert len(running.api.query(f"count_over_time({selector})")) == len(running.lab.nodes)
    assert record.t_end is not None
    assert record.t_end > record.t_inject


def test_nothing_is_said_of_a_healthy_job(running: Running) -> None:
    assert running.alerts_of_the_healthy == []
    assert len(running.healthy.steps()) >= BASELINE_STEPS
    assert running.record(LAST).t_inject - running.began > 60


def test_no_rank_is_accused_but_the_one_where_it_began(running: Running) -> None:
    accusing = {"Straggler", "WeightSyncStraggler", "JobStalled", "RankStarved"}
    accusing |= {"OutOfMemoryKill", "RankRetransmits", "RankRoundTripSlow"}
    for name in SCENARIOS:
        origin = running.experiments[name].scenario.origin
        for labels in running.firing(f"job-{name}"):
            if labels["alertname"] in accusing and "rank" in origin and "rank" in labels:
                found = (labels["alertname"], labels["role"], labels["rank"])
                assert found == (labels["alertname"], origin["role"], origin["rank"])


def test_a_job_whose_culprit_is_known_is_not_called_deadlocked(running: Running) -> None:
    fired = [
        labels
        for labels in running.firing("job-slow-upload")
        if (labels["alertname"], labels["severity"]) == ("JobStalled", "critical")
    ]
    named = running.ever("job:rl_stall:culprit", "slow-upload")
    origin = running.experiments["slow-upload"].scenario.origin
    ranks = {found.labels["rank"] for found in named}
    assert ranks == {origin["rank"]}, running.said_of("slow-upload")
    assert all("rank" in labels for labels in fired)


def test_the_slow_uploads_packets_are_repeated_and_its_peers_are_not(running: Running) -> None:
    again = running.ever("rl_rank_tcp_retransmissions_total", "slow-upload", 'role="train"')
    by_rank = {
        rank: sum(found.value for found in again if found.labels["rank"] == rank)
        for rank in map(str, range(WORKERS))
    }
    worst = running.record("slow-upload").origin["rank"]
    assert by_rank.pop(worst) > 3 * (1 + max(by_rank.values()))
    trip = running.ever("rl_rank_tcp_rtt_seconds", "slow-upload", f'role="train", rank="{worst}"')
    assert max(found.value for found in trip) > 0.4


def test_the_starved_rank_waited_for_its_core_and_was_killed(running: Running) -> None:
    record = running.record(LAST)
    rank, end = record.origin["rank"], record.t_end
    assert end is not None
    ratio = f'rank:rl_run_queue:ratio{{job_id="{record.job_id}", role="rollout"}}'
    lasted = f"[{int(end - record.t_inject)}s] @ {end}"
    waited = {
        found.labels["rank"]: found.value
        for found in running.api.query(f"avg_over_time({ratio}{lasted})")
    }
    assert max(waited, key=lambda each: waited[each]) == rank
    killed = running.ever("log_oom_kills_total", LAST)
    assert {found.labels["rank"] for found in killed} == {rank}
    alerts = wait_for(lambda: running.fired(LAST, "OutOfMemoryKill", "scope"), "the alert")
    assert alerts == {("rollout", rank, "cgroup")}


def test_the_first_failure_stays_first_when_the_controller_fails_later(running: Running) -> None:
    rank = running.record("masked-oom").origin["rank"]
    failed = running.fired("masked-oom", "FirstFailure", "error")
    assert failed == {("train", rank, "OutOfDeviceMemory")}
    logged = running.fired("masked-oom", "LogFirstError", "pattern")
    assert logged == {("train", rank, "cuda_oom")}
    ends = running.experiments["masked-oom"].job.log().splitlines()
    errors = [line for line in ends if "ERROR" in line]
    assert "Request timeout" in errors[-1], "which is what a person would see at the log's end"


@pytest.mark.parametrize("name", ["lost-event", "unresolved-name"])
def test_a_lost_event_leaves_a_device_held_and_nobody_spinning(name: str, running: Running) -> None:
    tries = running.ever("rl_scalar", name, 'name="failed_allocations"')
    assert [found.labels["rank"] for found in tries] == ["0"]
    assert tries[0].value > 100
    uuid = running.experiments[name].job.uuid(0)
    window = f"[15s] @ {running.record(name).t_surface}"
    (held,) = running.api.query(f'min_over_time(gpu_memory_used_bytes{{uuid="{uuid}"}}{window})')
    assert held.value == TRAIN_MEMORY
    (busy,) = running.api.query(f'max_over_time(gpu_utilization_ratio{{uuid="{uuid}"}}{window})')
    assert busy.value == 0
    waiting = f'rl_rank_wait_class{{job_id="job-{name}", role=~"train|rollout"}}{window}'
    classes = running.api.query(f"count by (class) (count_over_time({waiting}))")
    assert {found.labels["class"]: found.value for found in classes} == {"parked": 2 * WORKERS}
    told = {labels.get("evidence") for labels in running.firing(f"job-{name}")}
    assert not {"left_loop_early", "group_only"} & told


def test_the_checkpoint_was_cut_short_a_step_before_it_was_missed(running: Running) -> None:
    job = running.experiments["full-storage"].job
    logs = "\n".join(job.log(f"train-{rank}") for rank in range(job.plan.trains))
    lines = [line for line in logs.splitlines() if line.startswith("20")]  # with their times
    saved = min(line for line in lines if "Checkpoint save failed" in line)
    # Whichever rank sees it first ends the job.
    assert min(line for line in lines if "Checkpoint corrupted" in line) > saved
    failed = max(job.steps())
    assert f"start to save, step: {failed}\n" in job.log()
    assert job.started("update weights", failed + 1)
    room = running.api.query(
        f'min_over_time(mount:io_filesystem_free:ratio{{mount="{job.plan.checkpoints}"}}[10m])'
    )
    assert min(found.value for found in room) < 0.03
