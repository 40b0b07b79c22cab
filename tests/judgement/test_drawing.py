"""The picture of who waits for whom: what a person sees, whatever a job has written."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.judgement.drawing.boxes import MAX_BOXES, MOST_BOXES, Look, Picture, picture
from stagewatch.judgement.drawing.layout import Rect, lay_out
from stagewatch.judgement.drawing.svg import cut, svg
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import judge
from stagewatch.judgement.waits import waits_of
from tests.judgement.cases import (
    AWAIT_WORK,
    CASES,
    PARKED,
    ROLES,
    SEARCHES,
    hang,
    inside,
    member,
    nobody,
    ranks_of,
    sends,
)
from tests.judgement.jobs import LEFT, SPINNING, job

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>alert(1)</script>&amp;]]>\u202e\x00\ud800 日本語" + "x" * 300


def ranks(name: str) -> list[RankFacts]:
    """Those of a job by its name."""
    return CASES[name].ranks("540") if name in CASES else ranks_of(name)


def shown(facts: list[RankFacts]) -> Picture:
    verdicts = judge(facts)
    return picture(verdicts, waits_of(verdicts))


def drawn(facts: list[RankFacts]) -> str:
    verdicts = judge(facts)
    return svg(verdicts, waits_of(verdicts))


def seen(picture: str) -> list[str]:
    """What a person reads in it."""
    return [text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def pairs() -> list[RankFacts]:
    """64 ranks in 32 pairs, of each of which one waits for the other."""
    late = {n: member((f"tp:{n // 2}", 69, 2), ("world", 99, 64)) | PARKED for n in range(0, 64, 2)}
    here = {
        n: inside(f"tp:{n // 2}", 70, 2, "all_gather", None, ("world", 99, 64))
        for n in range(1, 64, 2)
    }
    return hang(64, {}, late | here, {}).ranks("540")


def test_a_rank_that_left_early_is_red_and_all_others_are_one_box() -> None:
    facts = job(8, SPINNING, rank_5=LEFT)
    boxes = {box.title: box for box in shown(facts).boxes}
    assert boxes["rank 5"].look is Look.ROOT
    assert boxes["7 ranks: 0-4, 6-7"].look is Look.WAITS
    texts = seen(drawn(facts))
    assert texts[0] == "Job 540 hangs: rank 5 left the loop early"
    assert {"left the loop early (sure)", "all_reduce 220 of world", "not entered by rank 5"} <= {
        *texts
    }


def test_a_trainer_that_may_wait_for_rollout_is_linked_by_a_broken_line() -> None:
    facts = ranks("the-only-rank-of-a-role-stands")
    link = next(link for link in shown(facts).links if not link.seen)
    boxes = shown(facts).boxes
    assert [boxes[place].role for place in (*link.sources, *link.targets)] == ["train", "rollout"]
    assert 'class="line hot maybe"' in drawn(facts)


def test_a_circle_leads_there_and_back() -> None:
    links = shown(ranks("half-have-left-out-what-the-others-wait-in")).links
    assert {(link.sources, link.targets) for link in links} == {((0,), (1,)), ((1,), (0,))}
    assert seen(drawn(ranks("half-have-left-out-what-the-others-wait-in")))[0] == (
        "Job 540 hangs: every rank that others wait for is waiting too"
    )


def test_a_wait_of_64_ranks_in_32_groups_is_two_boxes() -> None:
    (link,) = shown(pairs()).links
    assert link.label == ("all_gather 70 of tp:0 +31", "not entered by 32 ranks")
    assert [box.size for box in shown(pairs()).boxes] == [32, 32]


def test_a_ring_of_512_ranks_waits_for_itself_in_one_box() -> None:
    ring = {n: sends("recv", (n + 1) % 512) for n in range(512)}
    found = shown(nobody(512, {"collectives": {}}, ring, "").ranks("540"))
    assert [(link.sources, link.targets) for link in found.links] == [((0,), (0,))]


def test_what_is_no_rank_has_a_box_of_its_own() -> None:
    found = shown(nobody(8, AWAIT_WORK | SEARCHES, {}, "").ranks("540", "reward"))
    assert {(box.title, box.look) for box in found.boxes} == {
        ("8 ranks: 0-7", Look.WAITS),
        ("search", Look.ABSENT),
    }


def test_hostile_names_are_text_and_cut() -> None:
    common = inside(HOSTILE, 220, 8, HOSTILE) | {"node": HOSTILE}
    late = member((HOSTILE, 219, 8)) | PARKED | {"stage": HOSTILE, "wait_channel": HOSTILE}
    facts = hang(8, common, {5: late}, {}).ranks(HOSTILE, HOSTILE)
    facts += hang(3, {"calls": {HOSTILE: 400.0}, "collectives": {}}, {}, {}).ranks(HOSTILE, "b")
    root = ElementTree.fromstring(drawn(facts))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "style", "defs", "marker", "path", "rect", "text", "g"),
    }
    assert max(map(len, seen(drawn(facts)))) < 200
    assert not re.search(r"[\x00-\x08\u202a-\u202e]", drawn(facts))


def test_many_roles_and_groups_stay_few_boxes() -> None:
    facts = [
        rank
        for number in range(60)
        for rank in nobody(2, {"collectives": {}} | PARKED, {}, "").ranks("540", f"role-{number}")
    ]
    found = shown(facts)
    assert (len(found.boxes), found.left_out) == (MOST_BOXES, 12)
    assert "and 12 more boxes" in seen(drawn(facts))
    mixed = {n: inside(f"g{n % 40}", n, 2, f"op{n}") for n in range(200)}
    assert len(shown(nobody(200, {}, mixed, "").ranks("540")).boxes) <= MAX_BOXES


def test_nothing_covers_anything_else_and_all_is_inside() -> None:
    for name in (*CASES, *ROLES):
        facts = ranks(name)
        root = ElementTree.fromstring(drawn(facts))
        found = shown(facts)
        layout = lay_out(found, [90.0] * len(found.boxes), 50.0)
        width, height = float(root.get("width", 0)), float(root.get("height", 0))
        pills = [arrow.pill for arrow in layout.arrows]
        for one, other in combinations([*layout.boxes, *pills], 2):
            assert apart(one, other), name
        rects = [*layout.boxes, *pills, *(rect for _, rect in layout.lanes)]
        assert all(rect.x >= 0 and rect.x + rect.width <= width for rect in rects), name
        for rect in root.iter(f"{SVG}rect"):
            assert float(rect.get("y", 0)) + float(rect.get("height", 0)) <= height, name


def apart(one: Rect, other: Rect) -> bool:
    """Whether two places share no point."""
    return (
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_job_is_drawn(data: st.DataObject) -> None:
    """Ranks of several jobs thrown together, with names that nobody expects."""
    pool = [rank for name in ("a-victim-in-a-sub-group", "two-of-two-cycles-take-another-turn",
            "left-the-loop-beside-a-livelock", "a-role-has-left-and-all-others-wait")
            for rank in ranks(name)]  # fmt: skip
    chosen = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=12))
    names = st.text(max_size=60)
    facts = [
        replace(rank, job_id="540", rank=number, stage=data.draw(st.none() | names),
                role=data.draw(st.sampled_from(["a", "b", rank.role])), node=data.draw(names))
        for number, rank in enumerate(chosen)
    ]  # fmt: skip
    ElementTree.fromstring(drawn(facts))


def test_a_text_is_cut_to_what_fits() -> None:
    assert cut("short", 200) == "short"
    assert cut("x" * 100, 100).endswith("x…")
    assert len(cut("日" * 100, 100)) < len(cut("x" * 100, 100))
