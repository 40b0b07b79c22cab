"""Stacks by py-spy: whose are taken, and what is said where they cannot be."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

import pytest

from stagewatch.ranks.wait_class import WaitClass
from stagewatch.verdict import evidence
from stagewatch.verdict.judge import judge
from tests.verdict.jobs import HEALTHY, PARKED, SPINNING, job

LEFT = PARKED | {"stage": "cleanup", "step": 219, "collectives": {"world": 219}}
THREAD = {
    "pid": 1,
    "thread_id": 1,
    "thread_name": "Main\nThread",
    "frames": [{"name": "all_reduce", "filename": "/x/rank.py", "short_filename": "", "line": 7}],
}


class Spy:
    """What stands for the program: keeps the pids it was asked about."""

    def __init__(self, status: int = 0, out: str = json.dumps([THREAD]), error: str = "") -> None:
        self.pids: list[str] = []
        self._done = (status, out, error)

    def __call__(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        assert "--nonblocking" in command
        self.pids.append(command[-1])
        return subprocess.CompletedProcess(command, *self._done)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence.shutil, "which", lambda name, path=None: "/usr/bin/py-spy")


def stalled() -> list[evidence.RankFacts]:
    return job(8, SPINNING, rank_3=LEFT)


def test_the_suspect_and_one_of_the_majority_are_looked_at() -> None:
    spy = Spy()
    ranks = stalled()
    found = evidence.gather(ranks, judge(ranks), spy)
    assert [(one.rank, one.why) for one in found] == [(3, "suspect"), (0, "majority")]
    assert spy.pids == [str(ranks[3].pid), str(ranks[0].pid)]
    assert found[0].threads == (("Main?Thread", ("all_reduce (/x/rank.py:7)",)),)
    assert "all_reduce" in evidence.text(found)


def test_a_healthy_job_is_not_looked_at() -> None:
    spy = Spy()
    ranks = job(8)
    assert ranks[0] == HEALTHY
    assert evidence.gather(ranks, judge(ranks), spy) == []
    assert not spy.pids


def test_a_rank_that_is_gone_has_no_stack_and_its_pid_may_be_anybodys() -> None:
    spy = Spy()
    ranks = job(8, SPINNING, rank_3={"wait_class": WaitClass.GONE})
    found = evidence.gather(ranks, judge(ranks), spy)
    assert [(one.rank, one.why) for one in found] == [(0, "majority")]
    assert spy.pids == [str(ranks[0].pid)]


def test_a_rank_in_a_namespace_that_is_not_seen_from_here_has_no_pid_to_ask_about() -> None:
    spy = Spy()
    ranks = job(8, SPINNING, rank_3=LEFT | {"pid": 0})
    found = evidence.gather(ranks, judge(ranks), spy)
    assert "run this on the host" in found[0].problem
    assert spy.pids == [str(ranks[0].pid)]


@pytest.mark.parametrize(
    ("spy", "problem"),
    [
        (Spy(1, "", "Error: Permission Denied: Try running again with sudo"), "not permitted"),
        (Spy(1, "", "Error: Operation not permitted (os error 1)"), "not permitted"),
        (Spy(1, "", "Error: Failed to find python version"), "py-spy: Error: Failed to find"),
        (Spy(0, "no JSON"), "no JSON"),
        (Spy(0, '[{"frames": 3}]'), "no JSON"),
    ],
)
def test_what_stands_in_the_way_is_said(spy: Spy, problem: str) -> None:
    ranks = stalled()
    found = evidence.gather(ranks, judge(ranks), spy)
    assert problem in found[0].problem
    assert problem in evidence.text(found)


def test_a_missing_program_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence.shutil, "which", lambda name, path=None: None)
    ranks = stalled()
    found = evidence.gather(ranks, judge(ranks))
    assert "pip install 'stagewatch[evidence]'" in found[0].problem


def test_one_that_does_not_answer_is_given_up() -> None:
    def never(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, 20)

    ranks = stalled()
    assert "did not answer" in evidence.gather(ranks, judge(ranks), never)[0].problem
