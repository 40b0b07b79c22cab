"""A case and its truth come back from a file as they were, and damaged ones are told."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.judgement.case_file import CaseFile, Truth, as_json, packed, read, read_all
from stagewatch.judgement.memory import Moment
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
