"""What is said of waits that the kernel shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stagewatch.gpu.device_state import Device
from stagewatch.judgement.facts import BLANK, Inside, KernelWait
from stagewatch.judgement.from_prometheus import JobSeries, moment
from stagewatch.judgement.headline import findings_of
from stagewatch.judgement.judge import judge
from stagewatch.judgement.limits import Shown
from stagewatch.judgement.memory import Course, Moment
from stagewatch.judgement.sentence import sentence
from stagewatch.judgement.wait_words import wait_sentence
from stagewatch.judgement.waits import waits_of
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.cases import CASES, ranks_of
from tests.judgement.jobs import HEALTHY


def test_the_rank_that_others_read_from_is_named_with_what_they_wait_in() -> None:
    (found,) = judge(CASES["all-read-a-pipe-of-one-that-sleeps"].ranks("540"))
    assert [charge.confidence for charge in found.charges] == ["sure"]
    assert sentence(found).endswith("; 3 ranks wait for it, parked, in a read of a pipe")


def test_a_process_that_is_no_rank_is_named_and_no_rank_accused() -> None:
    ranks = CASES["one-asks-a-process-that-is-no-rank"].ranks("540")
    (found,) = judge(ranks)
    assert found.culprits == ()
    told = "for vllm serve (pid 7) in a receive from a socket"
    assert sentence(found).endswith(f"they wait {told}")
    assert findings_of([found], ranks)[0].headline.endswith(f": they wait {told}.")


def test_a_process_is_told_where_those_who_wait_for_it_are_waited_for_by_another_role() -> None:
    """A driver waits for its rollout workers, and these for a reward server."""
    late = replace(
        HEALTHY, progress_age_seconds=400.0, collectives={}, wait_class=WaitClass.UNKNOWN
    )
    score = KernelWait("a task of Ray", process="Reward.score (pid 7)")
    ranks = [
        replace(late, role="driver", pid=1, kernel_waits=(KernelWait("a task", "rollout", 0),)),
        replace(late, role="rollout", pid=2, kernel_waits=(score,)),
        replace(late, role="rollout", pid=3, rank=1, kernel_waits=(score,)),
        replace(late, role="train", pid=4, kernel_waits=(KernelWait(""),)),
    ]
    found = {verdict.role: verdict for verdict in judge(ranks)}
    assert not any(verdict.charges for verdict in found.values())
    assert {role: verdict.evidence for role, verdict in found.items()} == {
        "driver": "other_role",
        "rollout": "outsider",
        "train": "other_role",
    }


@pytest.mark.parametrize(
    "name",
    [
        "one-engine-owes-an-answer-that-all-wait-for",
        "one-asks-a-server-that-has-ended-while-its-peers-ask-a-queue",
    ],
)
def test_of_several_processes_the_one_at_fault_alone_is_told(name: str) -> None:
    (told,) = (one for one in judge(ranks_of(name)) if one.evidence == "outsider")
    assert "(pid 7)" in sentence(told)
    assert sentence(told).count("pid") == 1


def test_a_rank_at_work_is_named_where_others_wait_for_whoever_waits_for_it() -> None:
    """An engine waits for its first worker, that in a collective for one whose GPU works."""
    late = replace(HEALTHY, progress_age_seconds=400.0, group_sizes={"world": 3})
    inside = {"world": Inside("all_reduce", 400.0, None, None)}
    waits = [
        replace(late, pid=n + 2, rank=n, role="rollout", collectives={"world": 9}, inside=inside)
        for n in range(2)
    ]
    works = replace(
        late, pid=4, rank=2, role="rollout", collectives={"world": 8}, device=Device.WORKS
    )
    engine = replace(late, role="engine", pid=1, kernel_waits=(KernelWait("a lock", "rollout", 0),))
    charges = [one for verdict in judge([engine, *waits, works]) for one in verdict.charges]
    assert [(one.rank.role, one.rank.rank) for one in charges] == [("rollout", 2)]


def test_of_a_circle_through_roles_nobody_is_sure() -> None:
    verdicts = judge(ranks_of("one-asks-a-frontend-that-waits-for-all-who-wait-for-it"))
    charges = [charge for verdict in verdicts for charge in verdict.charges]
    assert [charge.confidence for charge in charges] == ["likely"]


def test_a_circle_is_none_while_who_has_left_may_be_waited_for() -> None:
    ranks = ranks_of("one-asks-a-frontend-that-waits-for-all-who-wait-for-it")
    left = replace(BLANK, job_id=ranks[0].job_id, role="loader", rank=0, wait_class=WaitClass.GONE)
    for seconds in (5.0, 800.0):
        verdicts = judge([*ranks, replace(left, left_seconds=seconds)])
        charged = [charge.rank.role for verdict in verdicts for charge in verdict.charges]
        assert "rollout" not in charged


QUEUE = KernelWait("a receive from a connection", through="broker (pid 7)")


@pytest.mark.parametrize(("what", "patience"), [({}, 180.0), ({"device": Device.WORKS}, 900.0)])
def test_nobody_is_woken_early_while_another_role_may_fill_a_queue(
    what: dict[str, Any], patience: float
) -> None:
    shown = {"train": {"train": Shown(90, 4.0, 4.0, 4.0)}}
    ranks = [
        replace(rank, kernel_waits=(QUEUE,) if rank.kernel_waits else ())
        if rank.role == "train"
        else replace(rank, **what)
        for rank in ranks_of("one-reads-a-pipe-of-a-rank-without-a-record")
    ]
    states = Course().look(Moment(1e9, tuple(ranks), shown))
    (train,) = (state for state in states if state.verdict.role == "train")
    assert (train.verdict.culprits, train.patience_seconds) == ((), patience)


def test_the_graph_shows_who_reads_whose_pipe_across_roles() -> None:
    waits = waits_of(judge(ranks_of("one-reads-a-pipe-of-another-role")))
    told = [wait_sentence(wait, roles=True) for wait in waits]
    assert "rank 1 of train waits in a read of a pipe for rank 1 of rollout" in told
    assert "ranks 0, 2 of rollout wait in a read of a pipe for rank 1 of train" in told


def test_it_is_known_when_a_rank_was_last_answered_by_whom_it_called() -> None:
    job = JobSeries()
    mine = {"role": "train", "rank": "0", "node": "a"}
    job.by["rl_rank_up"].append((mine, 1.0))
    for side, port, age in (("client", "1", 7.0), ("client", "2", 3.0), ("server", "3", 1.0)):
        labels = mine | {"side": side, "port": port}
        job.by["rl_rank_tcp_last_receive_age_seconds"].append((labels, age))
    (rank,) = moment("540", job, 1e9).ranks
    assert rank.heard_seconds == 3.0
