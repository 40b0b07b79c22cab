"""A case and its truth come back from a file as they were, and damaged ones are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.judgement.case_file import CaseFile, Truth, as_json, packed, read
from stagewatch.judgement.memory import Moment

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


def test_a_case_needs_no_truth(tmp_path: Path) -> None:
    content = as_json(CaseFile("c", "j", ()))
    assert "truth" not in content
    file = tmp_path / "case.json"
    file.write_text(json.dumps(content))
    assert read(file).truth is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("title", 7),
        ("healthy", "no"),
        ("processes", [["train", -1, "a"]]),
        ("processes", [["train", 1]]),
        ("expected", {"train": 1}),
        ("expected", ["train"]),
        ("suspicion", ["must"]),
        ("page", "perhaps"),
        ("evidence", 5),
        ("trigger", True),
        ("end", "soon"),
        ("blind_spot", None),
    ],
)
def test_a_truth_that_is_none_is_told_by_its_key(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"its truth has no {name} that can be used"):
        read(written(tmp_path, **{name: value}))


@pytest.mark.parametrize("truth", [[], "none", 5, {}])
def test_what_is_no_truth_at_all_is_told(truth: object, tmp_path: Path) -> None:
    content = as_json(CaseFile("c", "j", ())) | {"truth": truth}
    file = tmp_path / "case.json"
    file.write_text(json.dumps(content))
    with pytest.raises(SourceError, match="is no case: its truth has no title"):
        read(file)
