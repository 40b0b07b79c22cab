"""What a person with only a browser sees."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from stagewatch.core.findings import Finding
from stagewatch.web.facts import Judged, next_steps
from tests.running import run_stagewatch
from tests.waiting import wait_for
from tests.web.http_helpers import Serve
from tests.web.status_scenes import HOSTILE, hang, nothing, ranks

VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """The rows of each section by its title, its banners and foldings, and every element."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, list[dict[str, str]]] = {}
        self.row_classes: dict[str, list[str]] = {}
        self.said: dict[str, str] = {}
        self.banners: list[tuple[str, str]] = []
        """Class and sentence of each."""
        self.folded: dict[str, bool] = {}
        """Whether a part is folded away, by the line that opens it."""
        self.rows_folded: dict[str, int] = {}
        """How many rows are folded away, by section."""
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._title = ""
        self._headings: list[str] = []
        self._label = ""
        self._summary = ""
        self.feed(markup)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def _inside(self, tag: str) -> bool:
        return any(tag == name for name, _ in self._open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self._open.append((tag, attributes))
        if tag == "h2":
            self._title = ""
        if tag == "thead":
            self._headings = []
        if tag == "th" and self._inside("thead"):
            self._headings.append("")
        if tag == "section" and "banner" in str(attributes.get("class")):
            self.banners.append((str(attributes["class"]), ""))
        if tag == "summary":
            self._summary = ""
        if tag == "tr" and not self._inside("thead"):
            self.sections.setdefault(self._title, []).append({})
            self.row_classes.setdefault(self._title, []).append(attributes.get("class") or "")
            if any(name == "details" and "open" not in of for name, of in self._open):
                self.rows_folded[self._title] = self.rows_folded.get(self._title, 0) + 1
        if tag in ("td", "th") and not self._inside("thead"):
            row = self.sections[self._title][-1]
            self._label = self._headings[len(row)]
            row[self._label] = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        name, _ = self._open.pop()
        assert name == tag
        if tag == "summary":
            _, attributes = self._open[-1]
            self.folded[" ".join(self._summary.split())] = "open" not in attributes

    def handle_data(self, data: str) -> None:
        if self._inside("svg"):
            return
        if self._inside("thead"):
            self._headings[-1:] = [each + data for each in self._headings[-1:]]
        elif any(of.get("class") == "verdict" for _, of in self._open):
            kind, sentence = self.banners[-1]
            self.banners[-1] = (kind, sentence + data)
        elif self._inside("summary"):
            self._summary += data
        elif self._inside("h2") and not self._inside("span"):
            self._title += data.strip()
        elif self._inside("td") or self._inside("th"):
            self.sections[self._title][-1][self._label] += data
        elif self._inside("p") and self._title:
            self.said[self._title] = f"{self.said.get(self._title, '')} {data}".strip()

    def rows(self, title: str) -> list[dict[str, str]]:
        return [
            {name: " ".join(text.split()) for name, text in row.items()}
            for row in self.sections[title]
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
        "PID": "3905310",
        "Wait class": "parked",
        "Stage": "train",
        "Open for": "6 min 54 s",
        "Step": "219",
        "Last progress": "6 min 52 s ago",
        "Memory": "",
        "GPU": "0",
    }


def test_a_hang_that_was_looked_at_shows_where_each_rank_is(settled: Serve) -> None:
    rows = page_of(settled, "looked-at").rows("Ranks")
    assert [row["Hangs at"] for row in rows[:2]] == [
        "reward.py:25 in length_reward",
        "loop.py:80 in wait",
    ]
    assert "Hangs at" not in page_of(settled, "hang").rows("Ranks")[0]


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


def test_a_lost_gpu_is_shown_as_lost(settled: Serve) -> None:
    row = page_of(settled, "many").rows("GPUs")[7]
    assert row["Model"].endswith("lost")
    assert row["Temperature"] == "–"


def test_a_stuck_collector_is_named_and_what_is_not_known_is_not_reported_as_none(
    serve: Serve,
) -> None:
    agent = serve("stuck", interval=0.05)

    def troubles() -> str:
        return Page(agent.get("/").text).said["Collectors"]

    wait_for(lambda: troubles().count("stuck") == 2, "the collectors are called stuck")
    assert "past its deadline" in troubles()
    assert "0 of 3 answer" in troubles()
    page = Page(agent.get("/").text)
    assert page.said["Ranks"] == "Nothing is known: the collector ranks is stuck."
    assert page.said["GPUs"] == "Nothing is known: the collector gpu is stuck."


def test_an_empty_node_says_so_in_words(settled: Serve) -> None:
    page = page_of(settled, "nothing", record_dir=Path("/run/stagewatch/ranks"))
    assert page.said["Ranks"] == (
        "No ranks on this node: no stage record in /run/stagewatch/ranks "
        "and no process with RANK or SLURM_PROCID."
    )
    assert page.said["GPUs"] == "No GPU on this node."


@pytest.mark.parametrize("scene", ["hang", "jobs", "failed", "recorded", "many", "nothing"])
def test_every_scene_is_well_formed_and_loads_nothing(settled: Serve, scene: str) -> None:
    reply = settled(scene).get("/")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    page = Page(reply.text)
    for tag, attributes in page.elements:
        assert tag not in {"img", "iframe", "object", "form"}
        assert tag != "script" or attributes == {"src": "/live.js", "defer": None}
        assert not {name for name in attributes if name.startswith("on")}
        assert "style" not in attributes
        assert attributes.get("src") is None or tag == "script"
        href = attributes.get("href")
        assert href is None or href == "data:," or href.startswith("/")


def test_hostile_names_stay_text(settled: Serve) -> None:
    text = settled("hostile").get("/live").text
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\0" not in text
    page = Page(text)
    row = page.rows("Ranks")[0]
    assert row["Role"].startswith("<script>alert(1)</s")
    assert len(row["Role"]) == 20
    (line,) = [line for line in page.folded if line.startswith("Job ")]
    assert line.startswith("Job <script>alert(1)</scrip… 3 ranks")


def test_the_policy_admits_the_pages_own_style_and_nothing_else(settled: Serve) -> None:
    reply = settled("hang").get("/")
    style = re.search(r"<style>(.*?)</style>", reply.text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = dict(
        part.strip().split(" ", 1) for part in reply.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["style-src"] == f"'sha256-{digest}'"
    assert policy["frame-ancestors"] == "'none'"


def finding(
    headline: str = "Job 540 has hung since 08:03 UTC: rank 3 left the loop early.",
) -> Finding:
    return Finding("540", "train", headline, "job 540: 7 ranks spin", (("540", "train", "3"),))


def judged(*findings: Finding) -> Judged:
    return lambda: findings


PARTS = {"ranks": hang, "incidents": nothing}


def test_the_verdict_comes_first_and_the_culprits_row_is_the_first_and_red(settled: Serve) -> None:
    page = page_of(settled, PARTS, judged=judged(finding()))
    assert page.banners == [("banner bad", finding().headline)]
    first = next(tag for tag, _ in page.elements if tag in ("section", "h2", "dl", "table"))
    assert first == "section"
    assert page.rows("Ranks")[0]["Rank"] == "3 at fault"
    assert page.row_classes["Ranks"] == ["culprit"] + [""] * 7
    assert ("main", {"data-title": "▲ gpu-node-17 · stagewatch"}) in page.elements


def test_the_verdict_says_what_to_do_next(settled: Serve) -> None:
    text = settled(PARTS, judged=judged(finding())).get("/").text
    for command in ("stagewatch inspect --evidence 540", "scontrol requeue 540", "scancel 540"):
        assert f"<code><bdi>{command}</bdi></code>" in text
    assert "runbooks/JobStalled.md" in text


def test_the_runbook_is_shown_to_whoever_has_the_package_alone(tmp_path: Path) -> None:
    (_, command) = next_steps("540")[-1]
    export, _, show = command.partition(" && ")
    assert (export.split()[0], show.split()[0]) == ("stagewatch", "less")
    done = run_stagewatch(*export.split()[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / show.split()[1]).read_text().startswith("# JobStalled")


def test_what_to_do_next_is_safe_to_paste() -> None:
    ((_, stacks), _) = next_steps("run; rm -rf /")
    assert stacks == "stagewatch inspect --evidence 'run; rm -rf /'"


def test_a_healthy_node_says_that_no_job_hangs(settled: Serve) -> None:
    parts = {"ranks": ranks, "incidents": nothing}
    page = page_of(settled, parts, judged=judged())
    assert page.banners == [
        ("banner good", "No job hangs: 8 ranks of 1 job, all with progress in the last 1.1 s.")
    ]
    assert set(page.row_classes["Ranks"]) == {""}


def test_without_a_judgement_the_page_does_not_say_that_all_is_well(settled: Serve) -> None:
    page = page_of(settled, PARTS, judged=lambda: None)
    assert [kind for kind, _ in page.banners] == ["banner warn"]
    assert "not known" in page.banners[0][1]
    assert page_of(settled, {"ranks": ranks}, judged=judged()).banners == []


def test_hostile_verdicts_stay_text(settled: Serve) -> None:
    page_text = settled(PARTS, judged=judged(finding(HOSTILE * 3))).get("/live").text
    assert "<script" not in page_text
    assert "\u202e" not in page_text
    assert len(Page(page_text).banners[0][1]) == 400


def test_the_live_part_is_the_pages_main_and_the_script_a_file(settled: Serve) -> None:
    agent = settled("hang")
    live, page, script = (agent.get(path) for path in ("/live", "/", "/live.js"))
    assert live.text.strip().startswith("<main")
    assert live.text.strip() in page.text
    assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert 'fetch("/live"' in script.text
    assert live.headers["Content-Security-Policy"] == page.headers["Content-Security-Policy"]
    assert '<noscript><meta http-equiv="refresh"' in page.text
