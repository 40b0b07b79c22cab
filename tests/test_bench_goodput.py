"""The count that `make bench ARGS=goodput` holds the ledger against."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.day_count import Count, Rank, Run, lost, outside, read_rank

DAY = (0.0, 100.0)


def log(directory: Path, *parts: tuple[str, float, float]) -> Rank:
    """What is read of a log with a line each second."""
    lines = [
        f"{when}.000 {state}" for state, start, end in parts for when in range(int(start), int(end))
    ]
    file = directory / "0-3-n1.log"
    file.write_text("\n".join(lines) + "\n")
    return read_rank(file)


def test_a_rank_that_makes_no_mark_stalls_after_ten_seconds(tmp_path: Path) -> None:
    rank = log(tmp_path, ("init", 0, 5), ("still", 5, 30), ("train", 30, 41))
    assert rank.node == "n1"
    assert rank.states == (
        (0, 5, "init"),
        (5, 15, "train"),
        (15, 30, "stalled"),
        (30, 40, "train"),
    )


def test_a_run_waits_works_loses_a_node_and_cleans_up() -> None:
    ranks = (Rank("n1", ((10, 40, "train"),)), Rank("n2", ((10, 30, "train"),)))
    run = Run("7", 0, 50, "NODE_FAIL", ("n1", "n2"), 4, ranks)
    count = Count(list(run.pieces({"n2": [(30, 1000)]})))
    assert count.seconds([DAY]) == {
        ("7", "waiting"): 40,
        ("7", "train"): 80 + 20,
        ("7", "cleanup"): 20,
        ("7", "unobserved"): 40,
    }
    assert count.seconds([(0, 5), (45, 100)]) == {
        ("7", "waiting"): 20,
        ("7", "cleanup"): 10,
        ("7", "unobserved"): 10,
    }
    assert count.transitions()["7", "train"] == 4 + 2 + 2
    assert count.transitions()["7", "waiting"] == 8


def test_ranks_that_move_within_half_a_second_are_one_transition() -> None:
    ranks = tuple(
        Rank("n1", ((0, 10 + at / 10, "train"), (10 + at / 10, 20, "checkpoint")))
        for at in range(4)
    )
    count = Count(list(Run("7", 0, 20, "COMPLETED", ("n1",), 4, ranks).pieces({})))
    assert count.transitions()["7", "checkpoint"] == pytest.approx(8)


def test_only_a_failed_run_loses_its_work_and_only_that_since_the_last_whole_checkpoint() -> None:
    states = ((0, 10, "train"), (10, 15, "checkpoint"), (15, 30, "train"), (30, 32, "checkpoint"))
    ranks = (Rank("n1", states),)

    def lost_seconds(state: str) -> float:
        run = Run("7", 0, 32, state, ("n1",), 2, ranks)
        return Count(lost(run, run.pieces({}))).seconds([DAY]).get(("7", "lost"), 0.0)

    assert lost_seconds("REQUEUED") == 30
    assert lost_seconds("COMPLETED") == 0


def test_gpus_outside_of_runs_are_in_the_state_of_their_node() -> None:
    run = Run("7", 20, 40, "COMPLETED", ("n1",), 3, ())
    absences = {"n1": [(30.0, 60.0, "drained"), (50.0, 70.0, "down")]}
    pieces = list(outside([run], {"n1": 4, "n2": 4}, absences, DAY))
    assert Count(pieces).seconds([DAY]) == {
        ("", "free"): 400 + 80 + 10 + 120,
        ("", "drained"): 10 + 40,
        ("", "down"): 80,
    }
