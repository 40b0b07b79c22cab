"""The documentation site, as `make docs` builds it; it needs what that installs."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.running import output
from tests.test_docs import ROOT

MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"

pytestmark = [
    pytest.mark.xdist_group("docs-site"),
    pytest.mark.skipif(not MKDOCS.exists(), reason="needs mkdocs-material: make docs"),
]


class Read(HTMLParser):
    """What a page asks for."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "src" in given or (tag == "link" and given.get("rel") in ("stylesheet", "icon")):
            self.fetched.append(given.get("src") or given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    quietly = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    output(MKDOCS, "build", "--strict", "--quiet", "--site-dir", directory, cwd=ROOT, env=quietly)
    return directory


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Read]:
    return {page: Read(page) for page in site.rglob("*.html") if page.name != "404.html"}


def test_every_page_and_runbook_is_there(pages: dict[Path, Read], site: Path) -> None:
    names = {page.relative_to(site).as_posix() for page in pages}
    runbooks = {f"runbooks/{file.stem}.html" for file in (ROOT / "alerts/runbooks").glob("*.md")}
    written = {f"{file.stem}.html" for file in (ROOT / "docs").glob("*.md")}
    others = {"alerts", "changes", "contributing", "hangbench", "scale", "slurm-prolog"}
    assert names == runbooks | written | {f"{name}.html" for name in others}


def test_nothing_is_fetched_from_elsewhere(pages: dict[Path, Read]) -> None:
    for page, read in pages.items():
        outside = [link for link in read.fetched if re.match(r"[a-z]*:?//", link)]
        assert not outside, page
        missing = [link for link in read.fetched if not (page.parent / link).exists()]
        assert not missing, page


def test_the_search_knows_runbooks_and_metrics(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert found >= {"runbooks/JobStalled.html", "metrics.html", "slurm-prolog.html"}
