"""Bits that flip in a data-parallel job of PyTorch over gloo, and healthy jobs.

`python -m tests.client.test_replicas_gloo STEPS SEED` runs a healthy one for longer.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from tests.client.hooking import needs, start_ranks

RANKS = 4
EVERY = 5


def run(
    directory: Path,
    what: str,
    *,
    odd: int,
    at: int,
    steps: int,
    every: int,
    kind: str,
    seed: int = 0,
) -> Run:
    """What each rank has told."""
    with Children() as children:
        numbers = odd, at, steps, every, seed
        arguments = directory / "store", what, *numbers, kind
        started = start_ranks(children, RANKS, "replicas", directory, *arguments)
        assert [one.wait(timeout=36_000) for one in started] == [0] * RANKS
    told = [(directory / f"{rank}.log").read_text() for rank in range(RANKS)]
    return [[line.split() for line in text.splitlines() if line[:1].isdigit()] for text in told]


Run = list[list[list[str]]]
"""By rank and check: the step, and what was checked with its sum."""


def named(told: Run) -> dict[int, list[tuple[int, str]]]:
    """Whom `alerts/replicas.rules.yaml` would name at each step: who is not like most."""
    odd: dict[int, list[tuple[int, str]]] = {}
    for lines in zip(*told, strict=True):
        step = int(lines[0][0])
        for values in zip(*(line[1:-1] for line in lines), strict=True):
            ((value, count), *others) = Counter(values).most_common()
            if others:
                assert 2 * count > RANKS
                what = value.split("/")[2].partition("@")[0]
                who = [(rank, what) for rank, one in enumerate(values) if one != value]
                odd.setdefault(step, []).extend(who)
    return odd


@pytest.fixture(autouse=True)
def torch() -> None:
    needs("torch")


@pytest.mark.parametrize(
    ("what", "kind"), [("weights", "bfloat16"), ("reduced", "bfloat16"), ("optimizer", "float32")]
)
def test_a_flipped_bit_is_named_at_the_next_check(what: str, kind: str, tmp_path: Path) -> None:
    odd = named(run(tmp_path, what, odd=2, at=12, steps=20, every=EVERY, kind=kind))
    assert min(odd) == 15
    assert {rank for who in odd.values() for rank, _ in who} == {2}


def test_a_gradient_that_is_not_finite_is_told_by_its_rank_first(tmp_path: Path) -> None:
    told = run(tmp_path, "nonfinite", odd=1, at=7, steps=10, every=EVERY, kind="bfloat16")
    assert [lines[-1][-1] for lines in told] == ["first=8", "first=7", "first=8", "first=8"]


def test_a_healthy_job_names_nobody(tmp_path: Path) -> None:
    told = run(tmp_path, "nothing", odd=-1, at=0, steps=200, every=1, kind="bfloat16")
    assert named(told) == {}
    assert {lines[-1][-1] for lines in told} == {"first=0"}
    assert len({lines[100][1] for lines in told}) == 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as here:
        count, seed = int(sys.argv[1]), int(sys.argv[2])
        healthy = run(
            Path(here), "nothing", odd=-1, at=0, steps=count, every=1, kind="bfloat16", seed=seed
        )
        print(f"{count} healthy steps of {RANKS} ranks, seed {seed}, bf16: named {named(healthy)}")
