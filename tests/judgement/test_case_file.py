"""A case and its truth come back from a file as they were, and damaged ones are told."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.gpu.device_state import Device
from stagewatch.judgement.case_file import CaseFile, Truth, as_json, packed, read, read_all
from stagewatch.judgement.facts import Inside, KernelWait, RankFacts, RecordState
from stagewatch.judgement.memory import Moment
from stagewatch.ranks.nccl.layout import Communicator
from stagewatch.ranks.stacks import Stack
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.cases import CASES

TRUTH = Truth(
    title="Rank 1 sleeps",
    collection="open",
    kind="lock",
    healthy=False,
    processes=(("train", 0, "a"), ("train", 1, "b")),
    expected=(frozenset({("train", 1, "b")}), frozenset()),
    suspicion="must",
    page="may",
    evidence=frozenset({"awaited", "mismatch"}),
    trigger=100.5,
    end=220.0,
)


def written(folder: Path, **truth: Any) -> Path:
    """A file whose truth says something else."""
    content = as_json(CaseFile("c", "j", (Moment(1.0, ()),), truth=TRUTH))
    content["truth"] |= truth
    file = folder / "case.json"
    file.write_text(json.dumps(content))
    return file


def test_a_case_comes_back_with_its_truth(tmp_path: Path) -> None:
    case = CaseFile("c", "j", (Moment(1.0, ()),), truth=TRUTH)
    file = tmp_path / "case.json.gz"
    file.write_bytes(packed(as_json(case)))
    assert read(file) == case


@pytest.mark.parametrize(
    "name", ["one-asks-a-process-that-is-no-rank", "the-network-loses-what-one-sends"]
)
def test_a_case_needs_no_truth_and_keeps_what_kernel_and_nccl_showed(name: str) -> None:
    case = CaseFile("c", "j", (Moment(1.0, tuple(CASES[name].ranks("540"))),))
    content = as_json(case)
    assert "truth" not in content
    (again,) = read_all(io.BytesIO(packed(content)), "a file")
    told = [(rank.kernel_waits, rank.nccl) for rank in case.moments[0].ranks]
    assert [(rank.kernel_waits, rank.nccl) for rank in again.moments[0].ranks] == told


def test_every_fact_of_a_rank_comes_back() -> None:
    """A fact that is written and not read changes what `explain` says of the judge's own case."""
    other: dict[Any, Any] = {
        int: 7,
        float: 7.5,
        str: "x",
        bool: True,
        Stack: Stack("g", still=True, frame="f", call="c", whom="peers"),
        tuple[KernelWait, ...]: (KernelWait("a read", "train", 1, "p", "a", "t"),),
        tuple[Communicator, ...]: (Communicator("i", "n", 0, 2, "all_reduce", 1, 4, "begun"),),
        Mapping[str, int]: {"x": 7},
        Mapping[str, float]: {"x": 7.5},
        Mapping[str, Inside]: {"x": Inside("send", 1.5, 1, 4)},
        frozenset[str]: frozenset({"x"}),
        WaitClass: WaitClass.IO,
        Device: Device.SPINS,
        RecordState: RecordState.NO_ROOM,
    }
    values: dict[str, Any] = {
        name: other[kind] if kind in other else other[get_args(kind)[0]]
        for name, kind in get_type_hints(RankFacts).items()
    }
    rank = RankFacts(**values | {"job_id": "j"})
    (again,) = read_all(
        io.BytesIO(packed(as_json(CaseFile("c", "j", (Moment(1.0, (rank,)),))))), ""
    )
    assert again.moments[0].ranks == (rank,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("title", 7),
        ("healthy", "no"),
        ("processes", [["train", -1, "a"]]),
        ("expected", ["train"]),
        ("page", "perhaps"),
        ("trigger", True),
    ],
)
def test_a_truth_that_is_none_is_told_by_its_key(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"its truth has no {name} that can be used"):
        read(written(tmp_path, **{name: value}))


@pytest.mark.parametrize("truth", [[], {}])
def test_what_is_no_truth_at_all_is_told(truth: object, tmp_path: Path) -> None:
    content = as_json(CaseFile("c", "j", ())) | {"truth": truth}
    file = tmp_path / "case.json"
    file.write_text(json.dumps(content))
    with pytest.raises(SourceError, match="is no case: its truth has no title"):
        read(file)
