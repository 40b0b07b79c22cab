"""Every run is counted once, whoever tells of it first and however often."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.agent.slurm_cluster_events import ClusterEvents
from stagewatch.agent.slurm_histogram import GrowingHistogram
from stagewatch.agent.slurm_job_ledger import FARTHEST, GIVE_UP, OVERLAP, JobLedger
from stagewatch.agent.slurm_node_ledger import NodeLedger
from stagewatch.agent.slurm_state_file import StateFile
from stagewatch.sources.slurm_model import EndedJob, Job, Node, NodeEvent

T = 1750000000
STATES = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")


def job(job_id: int = 1, state: str = "RUNNING", **changes: object) -> Job:
    """A job of the queue."""
    base = Job(
        job_id=job_id,
        array_job_id=None,
        tasks=1,
        state=state,
        reason="",
        partitions=("gpu",),
        user="ada",
        account="physics",
        nodes=1,
        node_list="n1",
        gpus=(),
        submit=T,
        eligible=T,
        start=T + 10,
        end=T + 100,
        restarts=0,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def record(job_id: int = 1, state: str = "COMPLETED", **changes: object) -> EndedJob:
    """A record of accounting."""
    base = EndedJob(
        job_id=job_id,
        tasks=1,
        state=state,
        exit_code=0,
        signal=0,
        partition="gpu",
        user="ada",
        account="physics",
        submit=T,
        eligible=T,
        start=T + 10,
        end=T + 100,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def node(name: str = "n1", state: str = "IDLE", flags: str = "", **changes: object) -> Node:
    """A node of the controller's list."""
    base = Node(
        name=name,
        state=state,
        flags=frozenset(flags.split()),
        partitions=("gpu",),
        gpus=(),
        cpus=8,
        cpus_allocated=0,
        address=name,
        reason="",
        reason_user="",
        reason_time=None,
        boot_time=T - 5000,
        slurmd_start_time=T - 4000,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def event(node: str = "n1", start: int = T, end: int | None = None, **changes: str) -> NodeEvent:
    """An event of accounting."""
    return NodeEvent(
        node=node,
        state=changes.get("state", "DOWN"),
        start=start,
        end=end,
        reason=changes.get("reason", "link down"),
        user="root",
    )


def test_queue_and_accounting_tell_of_the_same_run_once() -> None:
    """In either order, and again and again."""
    for first in ("queue", "accounting"):
        ledger = JobLedger(T)
        for who in (first, "queue", "accounting", "queue", "accounting"):
            if who == "queue":
                ledger.observe_queue([job(state="COMPLETED")], T + 110)
            else:
                ledger.observe_accounting([record()], asked=T + 110, complete=True)
        assert ledger.ended == {("gpu", "COMPLETED"): 1}
        assert ledger.run["gpu"].exposed().count == 1


def test_what_ended_before_the_agent_began_is_not_counted() -> None:
    """Counters begin at 0, not with the history."""
    ledger = JobLedger(T + 1000)
    ledger.observe_queue([job(state="FAILED")], T + 1000)
    ledger.observe_accounting([record(2)], asked=T + 1000, complete=True)
    assert not ledger.ended


def test_vanished_job_is_unknown_until_accounting_tells() -> None:
    """Never failed; and the time it vanished is asked for until it comes."""
    ledger = JobLedger(T)
    ledger.observe_queue([job()], T + 50)
    ledger.observe_queue([], T + 100)
    for hour in range(1, 5):
        ledger.observe_accounting([], asked=T + hour * 3600, complete=True)
        assert ledger.unaccounted == 1
        assert ledger.window_start <= T + 50
    assert not ledger.ended
    ledger.observe_accounting([record(state="TIMEOUT")], asked=T + 5 * 3600, complete=True)
    assert (ledger.unaccounted, ledger.ended) == (0, {("gpu", "TIMEOUT"): 1})
    assert ledger.window_start == T + 5 * 3600 - OVERLAP


def test_vanished_job_that_nobody_tells_about_is_unknown_after_a_day() -> None:
    """So that accounting is not asked for ever further back."""
    ledger = JobLedger(T)
    ledger.observe_queue([job()], T + 50)
    ledger.observe_queue([], T + 100)
    ledger.observe_accounting([], asked=T + 100 + GIVE_UP, complete=True)
    assert (ledger.unaccounted, ledger.ended) == (0, {("gpu", "UNKNOWN"): 1})


def test_records_that_the_controller_still_owes_are_waited_for() -> None:
    """A queue to slurmdbd: the same time is asked for again, though no job is missed."""
    ledger = JobLedger(T)
    ledger.observe_accounting([], asked=T + 7200, complete=False)
    assert ledger.window_start == T - OVERLAP
    ledger.observe_accounting([record(end=T + 60)], asked=T + 7300, complete=True)
    assert ledger.ended == {("gpu", "COMPLETED"): 1}
    ledger.observe_accounting([], asked=T + 9 * 86400, complete=False)
    assert ledger.window_start == T + 9 * 86400 - FARTHEST


def test_requeued_job_has_two_runs() -> None:
    """The first ended with its node, the second as it should."""
    ledger = JobLedger(T)
    ledger.observe_queue([job()], T + 20)
    again = job(submit=T + 40, state="PENDING", restarts=1, start=None, end=None)
    ledger.observe_queue([again], T + 50)
    assert (ledger.requeues, ledger.unaccounted) == ({"gpu": 1}, 1)
    ledger.observe_accounting([record(state="NODE_FAIL", end=T + 40)], asked=T + 60, complete=True)
    ledger.observe_queue([replace(again, state="COMPLETED", end=T + 90)], T + 100)
    assert ledger.ended == {("gpu", "NODE_FAIL"): 1, ("gpu", "COMPLETED"): 1}
    assert ledger.unaccounted == 0


def test_without_accounting_a_requeued_run_is_known_and_a_vanished_one_is_not() -> None:
    """The new run's submit time tells the one from the other."""
    ledger = JobLedger(T)
    ledger.no_accounting(T)
    ledger.observe_queue([job(1), job(2)], T + 20)
    ledger.observe_queue([job(1, submit=T + 30, restarts=1)], T + 40)
    assert ledger.ended == {("gpu", "REQUEUED"): 1, ("gpu", "UNKNOWN"): 1}
    assert ledger.accounting is False


def test_restarts_from_before_the_agent_do_not_count_and_later_ones_do() -> None:
    """Several requeues between two looks are several."""
    ledger = JobLedger(T)
    ledger.observe_queue([job(restarts=5)], T + 1)
    assert not ledger.requeues
    ledger.observe_queue([job(restarts=8, submit=T + 10), job(2, restarts=1)], T + 20)
    assert ledger.requeues == {"gpu": 4}


def test_tasks_of_an_array_that_are_cancelled_together_count_one_by_one() -> None:
    """In the queue they are one record each; accounting has one for all."""
    ledger = JobLedger(T)
    cancelled = job(7, "CANCELLED", tasks=4, node_list="", start=None)
    ledger.observe_queue([cancelled, replace(cancelled, tasks=1)], T + 110)
    ledger.observe_accounting(
        [record(7, "CANCELLED", tasks=5, start=None)], asked=T + 110, complete=True
    )
    assert ledger.ended == {("gpu", "CANCELLED"): 5}
    assert not ledger.wait


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[EndedJob], list[tuple[str, list[int]]]]:
    """Runs that ended, and looks: which of them the queue or accounting told about each time."""
    runs = [
        record(
            number,
            draw(st.sampled_from(STATES)),
            partition=draw(st.sampled_from(["gpu", "cpu"])),
            submit=T + draw(st.integers(0, 50)),
            end=T + draw(st.integers(2600, 3000)),
        )
        for number in range(draw(st.integers(1, 8)))
    ]
    indices = st.lists(st.integers(0, len(runs) - 1), max_size=len(runs))
    source = st.sampled_from(["live", "ended", "accounting", "restart"])
    return runs, draw(st.lists(st.tuples(source, indices), max_size=12))


@given(histories())
@settings(max_examples=300)
def test_every_run_is_counted_exactly_once_in_the_end(
    history: tuple[list[EndedJob], list[tuple[str, list[int]]]],
) -> None:
    """In whatever order, with repetitions, late records and restarts of the agent."""
    runs, looks = history
    ledger = JobLedger(T)
    now = T + 3000.0
    previous: Counter[tuple[str, str]] = Counter()
    for kind, chosen in [*looks, ("accounting", list(range(len(runs))))]:
        now += 15
        told = [runs[index] for index in sorted(set(chosen))]
        if kind == "accounting":
            ledger.observe_accounting(told, asked=now, complete=True)
        elif kind == "restart":
            ledger = JobLedger.load(json.loads(json.dumps(ledger.dump())))
        else:
            ledger.observe_queue([_as_queue_shows(run, kind) for run in told], now)
        assert all(ledger.ended[key] >= number for key, number in previous.items())
        previous = Counter(ledger.ended)
    assert ledger.ended == Counter((run.partition, run.state) for run in runs)
    assert ledger.unaccounted == 0


def _as_queue_shows(run: EndedJob, kind: str) -> Job:
    return job(
        run.job_id,
        run.state if kind == "ended" else "RUNNING",
        partitions=(run.partition,),
        submit=run.submit,
        end=run.end,
    )


def test_node_that_leaves_service_counts_when_it_leaves() -> None:
    """Not again while it is out; again if it gets worse, or returns and leaves again."""
    ledger = NodeLedger(T)
    looks = (
        (node(), 0),
        (node(flags="DRAIN", reason="Xid 79"), 1),
        (node(flags="DRAIN", reason="Xid 79"), 1),
        (node(state="DOWN", flags="DRAIN", reason="Not responding"), 2),
        (node(flags="DRAIN", reason="Xid 79"), 2),
        (node(), 2),
        (node(flags="FAIL", reason="ask bob"), 3),
    )
    for moment, (seen, total) in enumerate(looks):
        ledger.observe_nodes([seen], T + moment * 30.0)
        assert ledger.failures.total() == total
    assert ledger.failures == {
        ("drain", "gpu"): 1,
        ("down", "not_responding"): 1,
        ("fail", "other"): 1,
    }
    assert ledger.recent["n1"].kind == "fail"


def test_first_look_and_passing_states_are_no_failures() -> None:
    """What was out before, a node that has just been resumed, and a controller that starts."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node(state="DOWN"), node("n2")], T + 1.0)
    ledger.observe_nodes([node(state="DOWN"), node("n2", flags="NOT_RESPONDING")], T + 31.0)
    ledger.observe_nodes([node(state="UNKNOWN"), node("n2", state="UNKNOWN")], T + 61.0)
    ledger.observe_nodes([node(state="DOWN"), node("n2")], T + 91.0)
    assert not ledger.failures
    ledger.observe_nodes([node(state="DOWN"), node("n2", state="DOWN")], T + 121.0)
    assert ledger.failures.total() == 1


def test_a_node_that_died_while_the_controller_was_away_is_counted_once() -> None:
    """Slurm may never call it DOWN: it stays UNKNOWN, and does not respond."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node()], T + 1.0)
    ledger.observe_nodes([node(state="UNKNOWN")], T + 31.0)
    assert not ledger.failures
    ledger.observe_nodes([node(state="UNKNOWN", flags="NOT_RESPONDING")], T + 61.0)
    ledger.observe_nodes([node(state="UNKNOWN", flags="NOT_RESPONDING")], T + 91.0)
    ledger.observe_nodes([node(state="DOWN")], T + 121.0)
    assert [(kind, number) for (kind, _), number in ledger.failures.items()] == [("down", 1)]


def test_reboots_and_restarts_of_slurmd_are_told_from_their_times() -> None:
    """A second's difference is slurmd's own rounding."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node()], T + 1.0)
    ledger.observe_nodes([node(boot_time=T - 4999)], T + 31.0)
    assert (ledger.reboots, ledger.slurmd_restarts) == (0, 0)
    ledger.observe_nodes([node(boot_time=T + 20, slurmd_start_time=T + 30)], T + 61.0)
    assert (ledger.reboots, ledger.slurmd_restarts) == (1, 1)


def test_event_that_no_look_saw_is_a_flap_and_counts_once() -> None:
    """While it may still be seen it is left to the looks."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node()], T + 10.0)
    flap = event(start=T + 12, end=T + 14)
    ledger.observe_events([flap], T + 15)
    assert not ledger.failures
    ledger.observe_nodes([node()], T + 40.0)
    for _ in range(3):
        ledger.observe_events([flap, event(start=T - 100, end=T - 50)], T + 45)
    assert ledger.failures == ledger.flaps == {("down", "network"): 1}


def test_event_that_a_look_saw_is_no_flap() -> None:
    """The look's failure and the event are the same, whenever the event ends."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node()], T + 10.0)
    ledger.observe_nodes([node(state="DOWN", reason="link down")], T + 40.0)
    ledger.observe_events([event(start=T + 12)], T + 45)
    ledger.observe_nodes([node()], T + 70.0)
    ledger.observe_events([event(start=T + 12, end=T + 60)], T + 75)
    assert ledger.failures == {("down", "network"): 1}
    assert not ledger.flaps


def test_node_ledger_goes_on_after_a_restart() -> None:
    """A node that is still down is no news; one that went down meanwhile is."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node("a", state="DOWN"), node("b")], T + 10.0)
    ledger.observe_nodes([node("a", state="DOWN"), node("b", flags="DRAIN")], T + 20.0)
    successor = NodeLedger.load(json.loads(json.dumps(ledger.dump())))
    successor.observe_nodes(
        [node("a", state="DOWN"), node("b", flags="DRAIN"), node("c", state="DOWN")], T + 900.0
    )
    assert successor.failures == {("drain", "none"): 1, ("down", "none"): 1}


@given(st.lists(st.floats(0, 1e6), max_size=30))
def test_histogram_counts_every_value(values: list[float]) -> None:
    """Cumulative, with a sum, and the same after being saved."""
    histogram = GrowingHistogram((1.0, 60.0, 3600.0))
    for value in values:
        histogram.observe(value)
    loaded = GrowingHistogram.load(json.loads(json.dumps(histogram.dump())), histogram.bounds)
    shown = loaded.exposed()
    assert shown.cumulative == tuple(sum(v <= bound for v in values) for bound in shown.bounds)
    assert (shown.count, shown.sum) == (len(values), pytest.approx(sum(values)))
    assert GrowingHistogram.load(histogram.dump(), (1.0, 2.0)).exposed().count == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 99}',
        b'{"version": 1}',
        b'{"version": 1, "jobs": {}, "nodes": {}}',
        b'{"version": 1, "jobs": {"watermark": "x"}, "nodes": 7}',
        b"\xff\xfe" * 50,
        b"[" * 100_000,
    ],
)
def test_state_file_that_cannot_be_used_is_put_aside(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counting begins anew, it is said once, and the next save works."""
    path = tmp_path / "slurm.json"
    path.write_bytes(content)
    events = ClusterEvents(path, wall=lambda: float(T))
    assert not events.jobs.ended
    assert (tmp_path / "slurm.json.corrupt").read_bytes() == content
    assert len([line for line in caplog.messages if "not usable" in line]) == 1
    assert events.kept is False
    events.save(now=True)
    assert events.kept is True
    assert ClusterEvents(path).kept is True


def test_state_is_kept_and_written_whole(tmp_path: Path) -> None:
    """What was counted is there after a restart, and no temporary file is left."""
    path = tmp_path / "deep" / "slurm.json"
    events = ClusterEvents(path, wall=lambda: float(T))
    events.jobs.observe_accounting([record(), record(2, "FAILED")], asked=T + 200, complete=True)
    events.nodes.observe_nodes([node()], T + 1.0)
    events.nodes.observe_nodes([node(state="DOWN")], T + 31.0)
    events.save(now=True)
    assert [each.name for each in path.parent.iterdir()] == ["slurm.json"]
    again = ClusterEvents(path)
    assert again.jobs.ended == events.jobs.ended
    assert again.jobs.failed == {("gpu", "exit_0"): 1}
    assert again.nodes.failures == events.nodes.failures


def test_state_directory_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent goes on; a metric says that the counters will not outlive it."""
    (tmp_path / "file").write_text("in the way")
    file = StateFile(tmp_path / "file" / "slurm.json")
    for _ in range(5):
        file.save({"jobs": {}})
    assert file.ok is False
    assert len(caplog.messages) == 1
    assert "cannot be written" in caplog.messages[0]
