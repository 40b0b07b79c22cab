"""Which of several failures the others follow from."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from stagewatch.died.causes import Cause, Kind, first
from stagewatch.ranks.records import Failure, Life, RankRecord
from stagewatch.run.causes import of_helpers, of_rank
from stagewatch.run.endings import Ending

PEER = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.1]:5123"


def record(
    rank: int, failure: Failure | None = None, life: Life = Life.GONE, last: Failure | None = None
) -> RankRecord:
    """One that says nothing but how its rank has ended."""
    return RankRecord(
        job_id="7",
        role="train",
        rank=rank,
        local_rank=None,
        world_size=None,
        framework="",
        host="",
        gpu="",
        job_name="",
        pid=100 + rank,
        boot_id="",
        pid_namespace=0,
        start_ticks=1,
        created=0.0,
        closed=False,
        dropped=0,
        lanes=(),
        totals={},
        expected_until=0.0,
        groups={},
        scalars={},
        work={},
        calls={},
        failures={},
        first_failure=failure,
        last_failure=last or failure,
        life=life,
    )


def raised(rank: int, at: float, error: str, message: str = "") -> Cause:
    """An exception that ended a rank."""
    cause = of_rank(record(rank, Failure("train", error, message, 3, at)), None, at, 0.0)
    assert cause is not None
    return cause


def test_an_exception_outside_of_every_stage_names_none() -> None:
    cause = of_rank(record(1, Failure("idle", "ValueError", "no reward", 3, 5.0)), None, 5.0, 0.0)
    assert cause is not None and cause.what == "ValueError: no reward, at step 3"


def died(rank: int, at: float, status: int | None) -> Cause:
    """A rank that ended without one."""
    ending = Ending(100 + rank, 1, "python", at, status)
    cause = of_rank(record(rank), ending, at, 0.0)
    assert cause is not None
    return cause


@pytest.mark.parametrize(
    "echo",
    [
        raised(0, 9.0, "RuntimeError", PEER),
        raised(0, 9.0, "DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp"),
        raised(0, 9.0, "ConnectionResetError", "[Errno 104] Connection reset by peer"),
        raised(0, 9.0, "ConnectionError", "peer closed the connection"),
        raised(0, 9.0, "ProtocolError", "Remote end closed connection without response"),
        died(0, 9.0, signal.SIGTERM),
    ],
)
def test_an_echo_gives_way_to_its_cause_also_where_it_is_recorded_first(echo: Cause) -> None:
    for cause in (died(1, 9.5, signal.SIGKILL), raised(1, 9.5, "ValueError")):
        assert first([echo, cause]) is cause
        assert first([cause, echo]) is cause


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_death_wins_over_an_exception_of_up_to_a_second_before_it(number: int) -> None:
    """Whatever the exception says, unless its own process had ended before."""

    def first_of(death: Cause, exit_at: float | None) -> Cause | None:
        end = None if exit_at is None else Ending(100, 1, "python", exit_at, 256)
        failure = Failure("train", "PeerLost", "rank 1 says nothing", 3, 9.0)
        error = of_rank(record(0, failure), end, 9.0, 0.0)
        assert error is not None
        chosen = first([error, death])
        return None if chosen is error else chosen

    soon, late = died(1, 9.9, number), died(1, 10.1, number)
    assert first_of(soon, 9.95) is soon
    assert first_of(soon, None) is soon
    assert first_of(soon, 9.8) is None
    assert first_of(late, None) is None


def test_a_rank_that_left_well_explains_a_lost_connection_and_nothing_else() -> None:
    left = of_rank(record(2, life=Life.CLOSED), None, 8.0, 0.0)
    assert left is not None and left.kind is Kind.LEFT
    assert first([raised(0, 9.0, "RuntimeError", PEER), left]) is left
    own = raised(0, 9.0, "ValueError")
    assert first([own, left]) is own


@pytest.mark.parametrize(
    ("status", "what"), [(0, "it ended well"), (3 << 8, "it exited with status 3")]
)
def test_a_rank_that_left_before_others_lost_it_is_told_though_its_process_ended_later(
    status: int, what: str
) -> None:
    closed = dataclasses.replace(record(2, life=Life.CLOSED), closed_at=3.0)
    left = of_rank(closed, Ending(102, 1, "python", 9.5, status), 9.6, 5.0)
    assert left is not None and left.what == what
    assert first([raised(0, 9.0, "RuntimeError", PEER), left]) is left
    assert first([raised(0, 7.0, "RuntimeError", PEER), left]) is not left


def test_a_worker_that_the_kernel_killed_explains_the_exception_of_its_rank() -> None:
    error = raised(0, 9.0, "RuntimeError", "DataLoader worker (pid(s) 77) exited unexpectedly")
    ends = [Ending(77, 1, "pt_data_worker", 8.9, signal.SIGKILL), Ending(78, 1, "grep", 8.9, 256)]
    worker = first([error, *of_helpers(ends, 9.0, apart=True)])
    assert worker.whom == "process 77 (pt_data_worker), which is not a rank,"
    assert not list(of_helpers(ends, 60.0, apart=True))
    [unknown] = of_helpers(ends, 9.0, apart=False)
    assert unknown.whom == "process 77 (pt_data_worker)", "where no rank kept a record"
    [bare] = of_helpers(ends, 9.0, apart=True, names={(77, 1): "rank 1"})
    assert bare.whom == "rank 1 (pid 77)", "by what its launcher set"


def test_an_exception_that_a_rank_went_on_after_ended_nothing() -> None:
    before, then = Failure("data", "Flaky", "", 3, 5.0), Failure("train", "Fatal", "", 3, 90.0)
    told = of_rank(_moved(record(0, before, last=then), 89.0), None, 91.0, 0.0)
    assert told is not None and told.what == "Fatal, in train at step 3"
    assert of_rank(_moved(record(0, before, Life.ALIVE), 89.0), None, 91.0, 0.0) is None


def _moved(record: RankRecord, at: float) -> RankRecord:
    from dataclasses import replace

    from stagewatch.ranks.records import Group

    group = Group(1, at, at, end_known=True, size=2, op="all_reduce", elements=None, peer=None)
    return replace(record, groups={"world": group})
