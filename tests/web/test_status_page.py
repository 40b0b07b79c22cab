"""What a person with only a browser sees."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from stagewatch.faults.collector import HOLD_SECONDS
from stagewatch.web.facts import FAULT_SHOWN_SECONDS
from tests.waiting import wait_for
from tests.web.http_helpers import GENEROUS, Serve
from tests.web.status_scenes import SCENES, Hangs, fails, gpus, nothing, ranks

VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """The text of each table by its section's title, and every element seen."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, list[list[str]]] = {}
        self.said: dict[str, str] = {}
        self.cards: dict[str, str] = {}
        self._open: list[str] = []
        self._title = ""
        self._card = ""
        self.feed(markup)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "h2":
            self._title = ""
        if tag == "dl":
            self._card = ""
        if tag == "tr":
            self.sections.setdefault(self._title, []).append([])
        if tag in ("td", "th"):
            self.sections[self._title][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "h2" in self._open and "span" not in self._open:
            self._title += data.strip()
        elif "dt" in self._open:
            self._card = data
        elif "dd" in self._open:
            self.cards[self._card] = " ".join(f"{self.cards.get(self._card, '')} {data}".split())
        elif "td" in self._open or "th" in self._open:
            self.sections[self._title][-1][-1] += data
        elif "p" in self._open and self._title:
            self.said[self._title] = f"{self.said.get(self._title, '')} {data}".strip()

    def rows(self, title: str) -> list[dict[str, str]]:
        head, *rows = self.sections[title]
        return [
            {name: " ".join(text.split()) for name, text in zip(head, row, strict=True)}
            for row in rows
        ]


def page_of(settled: Serve, what: object, **options: object) -> Page:
    return Page(settled(what, **options).get("/").text)


def test_a_hang_shows_which_rank_is_parked_while_the_others_spin(settled: Serve) -> None:
    page = page_of(settled, "hang")
    ranks = page.rows("Ranks")
    assert [row["Wait class"] for row in ranks] == ["parked"] + ["spin"] * 7
    assert ranks[0] | {"Memory": ""} == {
        "Rank": "0",
        "Role": "train",
        "Job": "540",
        "PID": "3905310",
        "Wait class": "parked",
        "Stage": "train",
        "Open for": "6 min 54 s",
        "Step": "219",
        "Last progress": "6 min 52 s ago",
        "Memory": "",
        "GPU": "0",
    }
    assert page.cards["Ranks"] == "8 7 spin 1 parked"
    assert page.cards["Longest without progress"].startswith("6 min 53 s train rank 7")


def test_a_hang_that_was_looked_at_shows_where_each_rank_is(settled: Serve) -> None:
    rows = page_of(settled, "looked-at").rows("Ranks")
    assert [row["Hangs at"] for row in rows[:2]] == [
        "reward.py:25 in length_reward",
        "loop.py:80 in wait",
    ]
    assert "Hangs at" not in page_of(settled, "hang").rows("Ranks")[0]


def test_a_rank_that_is_gone_comes_first_with_what_it_failed_of(settled: Serve) -> None:
    rows = page_of(settled, "failed").rows("Ranks")
    assert [row["Rank"] for row in rows] == ["5", "0", "1", "2", "3", "4", "6", "7"]
    assert (rows[0]["Wait class"], rows[0]["First failure"]) == (
        "gone",
        "CUDAOutOfMemory in rollout",
    )
    assert {row["First failure"] for row in rows[1:]} == {"–"}


def test_gpus_show_their_readings_and_what_is_missing(settled: Serve) -> None:
    rows = page_of(settled, "hang").rows("GPUs")
    assert rows[0] == {
        "GPU": "0",
        "Model": "NVIDIA H200",
        "Temperature": "58 °C slows at 92",
        "Utilisation": "97 %",
        "Memory": "140.0 GiB of 141.0 GiB",
        "Power": "690 W of 700 W",
        "Job": "540 alice",
    }
    assert [rows[7][name] for name in ("Memory", "Power", "Job")] == ["–"] * 3


def test_temperatures_are_coloured_by_threshold(settled: Serve) -> None:
    page = page_of(settled, {"gpu": gpus})
    bars = [attributes["class"] for tag, attributes in page.elements if tag == "svg"]
    temperatures = [name for name in bars if name != "bar plain"]
    temperatures.remove("bar warn")  # the memory of the first GPU, which is nearly full
    assert temperatures == ["bar good"] * 5 + ["bar warn"] * 2 + ["bar bad"]


def test_recorded_readings_are_labelled_on_every_gpu(settled: Serve) -> None:
    page = page_of(settled, "recorded")
    assert [row["Model"] for row in page.rows("GPUs")] == ["NVIDIA H200 recorded"] * 2
    assert "not measured on this machine" in settled("recorded").get("/").text
    assert "recorded" not in settled("healthy").get("/").text.split("</style>")[1]


def test_a_lost_gpu_is_shown_as_lost(settled: Serve) -> None:
    row = page_of(settled, "many").rows("GPUs")[7]
    assert row["Model"].endswith("lost")
    assert row["Temperature"] == "–"
    assert page_of(settled, "many").cards["GPUs"] == "8 1 lost, hottest 82 °C (GPU 6)"


def test_collectors_show_what_is_wrong_with_them(settled: Serve) -> None:
    rows = {row["Collector"]: row for row in page_of(settled, "hang").rows("Collectors")}
    assert rows["gpu"]["State"] == "ok"
    assert rows["infiniband"]["State"] == "nothing here"
    assert rows["infiniband"]["Message"] == "nothing of the kind here"
    assert rows["clock"]["State"] == "failing"
    assert "Permission denied" in rows["clock"]["Message"]


def test_a_stuck_collector_is_named_and_its_section_says_that_nothing_is_known(
    serve: Serve,
) -> None:
    agent = serve({"gpu": Hangs(), "ranks": ranks}, interval=0.05)
    wait_for(
        lambda: Page(agent.get("/").text).rows("Collectors")[0]["State"] == "stuck",
        "the collector is called stuck",
    )
    page = Page(agent.get("/").text)
    assert "past its deadline" in page.rows("Collectors")[0]["Message"]
    assert page.said["GPUs"] == "Nothing is known: the collector gpu is stuck."
    assert len(page.rows("Ranks")) == 8
    assert page.cards["GPUs"] == "– not known"


def test_what_is_not_known_is_not_reported_as_none(serve: Serve) -> None:
    agent = serve("stuck", interval=0.05)
    wait_for(lambda: agent.get("/").text.count(">stuck<") == 2, "the collectors are called stuck")
    cards = Page(agent.get("/").text).cards
    assert cards.pop("Collectors that answer").startswith("0 of 3")
    assert set(cards.values()) == {"– not known"}


def test_open_faults_are_shown(settled: Serve) -> None:
    (row,) = page_of(settled, "hang").rows("Open or recent faults")
    assert row == {
        "Fault": "f-20241124-1",
        "Type": "cpu_contention",
        "Target": "rollout_worker_8",
        "Expected in": "train",
        "Scenario": "S1 #2",
        "Began": "2024-11-24 14:30:00 UTC",
    }


def test_a_fault_that_was_just_closed_is_not_called_open(settled: Serve) -> None:
    page = page_of(settled, "hang")
    assert "Open faults" not in {*page.cards, *page.sections}
    assert page.cards["Open or recent faults"].startswith("1 ")
    assert "also if it is closed" in page.said["Open or recent faults"]


def test_the_page_and_the_collector_agree_on_how_long_a_fault_is_shown() -> None:
    assert FAULT_SHOWN_SECONDS == HOLD_SECONDS


def test_an_empty_node_says_so_in_words(settled: Serve) -> None:
    page = page_of(settled, "nothing", record_dir=Path("/run/stagewatch/ranks"))
    assert page.said["Ranks"] == (
        "No ranks on this node: no stage record in /run/stagewatch/ranks "
        "and no process with RANK or SLURM_PROCID."
    )
    assert page.said["GPUs"] == "No GPU on this node."
    assert page.said["Open or recent faults"] == "No fault is marked as open."


def test_a_failing_collector_is_not_taken_for_an_empty_node(settled: Serve) -> None:
    page = page_of(settled, {"faults": fails, "ranks": nothing})
    assert page.said["Open or recent faults"].startswith(
        "Nothing is known: the collector faults fails: chr"
    )


def test_an_agent_without_node_collectors_shows_only_its_own(settled: Serve) -> None:
    assert page_of(settled, "slurm").sections.keys() == {"Collectors"}


def test_hundreds_of_ranks_are_cut_with_a_word_about_the_rest(settled: Serve) -> None:
    page = page_of(settled, "many")
    assert len(page.rows("Ranks")) == 256
    assert page.said["Ranks"].startswith("and 44 more rows; all of them are in /metrics")
    rows = page.rows("Ranks")
    gone = [str(rank) for rank in range(4, 300, 7)]
    assert [row["Rank"] for row in rows if row["Wait class"] == "gone"] == gone
    assert [row["Rank"] for row in rows[: len(gone)]] == gone
    assert [row["Rank"] for row in rows[len(gone) :][:5]] == ["0", "1", "2", "3", "5"]
    assert rows[7]["Stage"] == "weights_update update_actor"


@pytest.mark.parametrize("scene", SCENES)
def test_every_scene_is_well_formed_and_loads_nothing(settled: Serve, scene: str) -> None:
    reply = settled(scene).get("/")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    page = Page(reply.text)
    for tag, attributes in page.elements:
        assert tag not in {"script", "img", "iframe", "object", "form"}
        assert not {name for name in attributes if name.startswith("on")}
        assert "style" not in attributes
        assert attributes.get("src") is None
        href = attributes.get("href")
        assert href is None or href == "data:," or href.startswith("/")


def test_hostile_names_stay_text(settled: Serve) -> None:
    text = settled("hostile").get("/").text
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\0" not in text
    row = Page(text).rows("Ranks")[0]
    assert row["Job"].startswith("<script>alert(1)</scrip")
    assert len(row["Job"]) == 24


def test_the_policy_admits_the_pages_own_style_and_nothing_else(settled: Serve) -> None:
    reply = settled("hang").get("/")
    style = re.search(r"<style>(.*?)</style>", reply.text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = dict(
        part.strip().split(" ", 1) for part in reply.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == f"'sha256-{digest}'"
    assert policy["frame-ancestors"] == "'none'"


def test_an_agent_whose_page_nobody_looks_at_holds_no_template_engine() -> None:
    code = "import stagewatch.web.agent_server, sys; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=GENEROUS).returncode == 0
