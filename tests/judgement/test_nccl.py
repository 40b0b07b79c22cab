"""What is said of waits that NCCL shows, and that a case file keeps them."""

from __future__ import annotations

import io

from stagewatch.judgement.case_file import CaseFile, as_json, packed, read_all
from stagewatch.judgement.headline import findings_of
from stagewatch.judgement.judge import judge
from stagewatch.judgement.memory import Moment
from stagewatch.judgement.sentence import sentence
from stagewatch.judgement.wait_words import label, said
from stagewatch.judgement.waits import waits_of
from tests.judgement.cases import CASES


def told(name: str) -> tuple[str, list[str]]:
    """The sentence, and the waits."""
    found = judge(CASES[name].ranks("540"))
    assert [charge.confidence for charge in found[0].charges] == ["sure"]
    return sentence(found[0]), [said(wait, roles=False) for wait in waits_of(found)]


def test_a_rank_that_has_not_launched_is_told_with_what_the_others_wait_in() -> None:
    verdict, waits = told("one-has-not-launched")
    assert "rank 5 (pid 4005) holds up the job" in verdict
    assert "it has not launched on its GPU what the others wait in; 7 ranks wait" in verdict
    assert (
        "7 ranks (0-4, 6-7) wait in all_reduce 220 of world for rank 5, which has not launched it "
        "(NCCL's profiler plugin), though by its program it is in it"
    ) in waits


def test_a_kernel_that_has_not_begun_is_told() -> None:
    verdict, waits = told("one-gpu-has-not-begun")
    assert "it has launched what the others are in, and its GPU has not begun it" in verdict
    assert waits[-1].startswith(
        "7 ranks (0-1, 3-7) wait in all_reduce 220 of world for rank 2, whose GPU has "
    )


def test_a_proxy_that_waits_for_bytes_is_told_with_the_device() -> None:
    verdict, waits = told("the-network-loses-what-one-sends")
    assert "all_reduce 220 (rank 4's proxy waits for its bytes over mlx5_2) of world" in verdict
    assert (
        "rank 4's proxy waits in all_reduce 220 of world for bytes of rank 3 over mlx5_2 "
        "(NCCL's profiler plugin)"
    ) in waits
    found = judge(ranks := CASES["the-network-loses-what-one-sends"].ranks("540"))
    (finding,) = findings_of(found, ranks)
    assert "rank 3 does not exchange the bytes that the others wait for" in finding.headline
    assert all(label(wait)[1] for wait in waits_of(found))


def test_a_case_file_keeps_what_nccl_showed() -> None:
    ranks = tuple(CASES["the-network-loses-what-one-sends"].ranks("540"))
    case = CaseFile("c", "540", [Moment(1e9, ranks)])
    (again,) = read_all(io.BytesIO(packed(as_json(case))), "a file")
    assert [rank.nccl for rank in again.moments[0].ranks] == [rank.nccl for rank in ranks]
