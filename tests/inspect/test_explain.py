"""`stagewatch explain` as an operator reads it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stagewatch.cli import main
from stagewatch.inspect.explain import text
from stagewatch.judgement.case_file import CaseFile, as_json, packed, read
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.limits import DEFAULT, Limits
from stagewatch.judgement.memory import Moment
from stagewatch.judgement.waits import waits_of
from tests.judgement.cases import PARKED, hang, inside, member, ranks_of
from tests.judgement.jobs import LEFT, SPINNING, job

BEGAN = 1_700_000_000.0
EARLY = job(8, SPINNING | {"node": "gpu-17"}, rank_5=LEFT)
HOSTILE = "</text>\x1b[31m\u202e\x00&<script>" + "x" * 300
Explain = Callable[..., str]


def case(
    ranks: list[RankFacts], seconds: int = 0, limits: Limits = DEFAULT, cluster: str = ""
) -> CaseFile:
    """A job that has stood like that for so long, looked at every 15 s."""
    moments = [
        Moment(BEGAN + at, tuple(_earlier(rank, seconds - at) for rank in ranks))
        for at in range(0, seconds + 1, 15)
    ]
    return CaseFile(cluster, ranks[0].job_id, moments, limits)


def _earlier(rank: RankFacts, seconds: float) -> RankFacts:
    age = rank.progress_age_seconds
    return dataclasses.replace(
        rank, progress_age_seconds=None if age is None else max(age - seconds, 0.0)
    )


@pytest.fixture
def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """What the command says of a case."""

    def explain(one: CaseFile, *arguments: str) -> str:
        file = tmp_path / "case.json.gz"
        file.write_bytes(packed(as_json(one, one.states())))
        assert main(["explain", str(file), *arguments]) == 0
        return capsys.readouterr().out

    return explain


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 1) -> str:
    """The one line on standard error of a run that could not explain."""
    assert main(["explain", *arguments]) == status
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


def test_job_540_is_explained_step_by_step(explain: Explain) -> None:
    said = explain(case(EARLY, 60, cluster="prod-1"))
    assert said.startswith(
        "Job 540 of cluster prod-1 as of 2023-11-14 22:14:20 UTC, the last of 5 moments, 1 min "
        "after the first.\n"
    )
    ranks, waits, decision = said.split("\n\n")[1:]
    assert ranks.splitlines()[7].split() == [
        *("train", "5", "gpu-17", "cleanup", "220", "6", "min", "52", "s!", "15", "s"),
        *("is", "parked", "in", "futex", "-"),
    ]  # fmt: skip
    assert waits.splitlines()[1:] == [
        "  7 ranks (0-4, 6-7) wait in all_reduce 220 of world for rank 5, which has entered 219"
    ]
    assert decision.splitlines() == [
        "THE DECISION",
        "  1. Is it stalled?  Yes.",
        "     - 8 ranks have made no progress for 6 min 52 s; their stage may take 15 s",
        "     - nothing excuses that: no debugger, no announced pause, no work that may take so "
        "long, no stage that is long by nature, no suspension",
        "  2. Which of its ranks is at fault?  Rank 5.",
        "     - who has died: nobody",
        "     - collectives, messages and steps: rank 5 left the loop early, in all_reduce of "
        "world (left_loop_early, sure)  <- this counts",
        "     - weaker evidence was not needed",
        "  3. Is somebody woken?  Yes.",
        "     - suspected since 2023-11-14 22:13:20 UTC, for 1 min; 30 s must pass",
        "     - silent for 6 min 52 s; its patience is 1 min, the minimum",
        "  => job 540: rank 5 (pid 4005 on gpu-17) holds up the job: parked in futex for 6 min 52 "
        "s at step 220; it left the loop early; 7 ranks wait for it, spinning, in all_reduce of "
        "world",
    ]


def test_a_role_that_gives_way_says_to_whom_and_why(explain: Explain) -> None:
    said = explain(case(ranks_of("left-the-loop-beside-a-livelock")))
    rollout, train = said.split("THE DECISION: ")[1:]
    assert rollout.startswith("ROLLOUT")
    assert "Do the other roles of the job show more?  No" in rollout
    assert "Do the other roles of the job show more?  Yes: it gives way." in train
    assert "rank 0 is asleep, and may wait for another role through a queue" in train
    assert (
        "rollout shows more: rank 1 marks progress but completes no step (livelock, sure)" in train
    )


def test_512_ranks_are_a_few_lines(explain: Explain) -> None:
    late = member(("world", 219, 512)) | PARKED
    ranks = [
        dataclasses.replace(rank, node=f"n{rank.rank // 8}", progress_age_seconds=400.0 + rank.rank)
        for rank in hang(512, inside("world", 220, 512), {77: late}, {}).ranks("540")
    ]
    said = explain(case(ranks))
    assert len(said.splitlines()) < 30
    assert "train  0-76, 78-511 (511)  64 nodes" in said
    assert "511 ranks (0-76, 78-511) wait in all_reduce 220 of world for rank 77" in said


def test_hostile_names_do_not_reach_the_terminal(explain: Explain, tmp_path: Path) -> None:
    common = inside(HOSTILE, 220, 8, HOSTILE) | {"node": HOSTILE}
    late = member((HOSTILE, 219, 8)) | PARKED | {"stage": HOSTILE, "calls": {HOSTILE: 400.0}}
    ranks = hang(8, common, {5: late}, {}).ranks(HOSTILE, HOSTILE)
    said = explain(case(ranks, cluster=HOSTILE), "--svg", str(tmp_path / "job.svg"))
    assert said.replace("\n", "").isprintable()
    assert max(map(len, said.splitlines())) < 1500
    ElementTree.parse(tmp_path / "job.svg")


def test_sentences_fit_the_terminal() -> None:
    one = case(ranks_of("left-the-loop-beside-a-livelock"), 60)
    states = one.states()
    waits = waits_of([state.verdict for state in states])
    said = text(one, states, waits, colour=False, width=72)
    _, rest = said.split("WHO WAITS FOR WHOM")
    assert max(map(len, rest.splitlines())) <= 72


def test_the_picture_is_written(explain: Explain, tmp_path: Path) -> None:
    explain(case(EARLY), "--svg", str(tmp_path / "job.svg"))
    root = ElementTree.parse(tmp_path / "job.svg").getroot()
    texts = [line.text for line in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "Job 540 hangs: rank 5 left the loop early"
    assert "prefers-color-scheme: dark" in (tmp_path / "job.svg").read_text()


def test_colours_are_for_terminals(explain: Explain, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in explain(case(EARLY))
    monkeypatch.setenv("FORCE_COLOR", "1")
    red = [line for line in explain(case(EARLY)).splitlines() if line.startswith("\x1b[31m")]
    assert len(red) == 2


def test_what_inspect_writes_is_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f"
    cases = [case(job(2, SPINNING, job_id=job_id)) for job_id in ("7", "8")]
    content = {"ranks": [], "cases": [as_json(one, one.states()) for one in cases]}
    file.write_text(json.dumps(content))
    assert main(["explain", str(file)]) == 0
    assert capsys.readouterr().out.startswith("Job 7 as of")
    assert main(["explain", str(file), "--job", "8"]) == 0
    assert capsys.readouterr().out.startswith("Job 8 as of")
    assert complaint(capsys, str(file), "--job", "9") == (
        "stagewatch: it holds no case of job 9, but of 7, 8"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is no case: Expecting value"),
        (b'{"version": 2}', "is no case: version 2 is not 1"),
        (b'{"cases": []}', "no job was in sight"),
        (packed(as_json(case(EARLY)))[:-40], "is damaged"),
        (b'{"version": 1, "cluster": "", "job_id": "1", "moments": []}', "holds no moment"),
        (b'{"version": 1, "cluster": "", "job_id": "1", "moments": [{}]}', "is no case"),
        (b"[" * 100_000, "is no case"),
    ],
)
def test_a_file_that_is_no_case_is_one_line_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, expected: str
) -> None:
    (tmp_path / "f").write_bytes(content)
    assert expected in complaint(capsys, str(tmp_path / "f"))


def test_damage_anywhere_is_one_line_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = packed(as_json(case(EARLY)))
    for place in range(12, len(whole), 97):
        broken = bytearray(whole)
        broken[place] ^= 0x55
        (tmp_path / "f").write_bytes(bytes(broken))
        complaint(capsys, str(tmp_path / "f"))


def test_a_file_that_is_not_there_and_a_place_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No such file" in complaint(capsys, str(tmp_path / "absent"))
    assert "Is a directory" in complaint(capsys, str(tmp_path))
    (tmp_path / "f").write_bytes(packed(as_json(case(EARLY))))
    assert "cannot write" in complaint(capsys, str(tmp_path / "f"), "--svg", str(tmp_path))


def test_a_case_is_judged_by_the_limits_of_its_site(tmp_path: Path) -> None:
    patient = Limits(page_seconds=600.0)
    (tmp_path / "f").write_bytes(packed(as_json(case(EARLY, 60, patient))))
    one = read(tmp_path / "f")
    assert one.limits == patient
    assert [(state.patience_seconds, state.paged) for state in one.states()] == [(600.0, False)]
