"""What the pages say exists: links lead somewhere, metrics and recording rules are real."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from stagewatch.cli import main
from stagewatch.record import FILE_SIZE, RECORD_SIZE
from tests.alerts.rule_files import every_rule

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "alerts/**/*.md", "deploy/**/*.md")
    for path in ROOT.glob(pattern)
)
METRIC = re.compile(
    r"`((?:gpu|rl|slurm|nfs|io|net|clock|fault|log|stagewatch)_[a-z0-9_]+"
    r"_(?:total|seconds|bytes|ratio|info|celsius|watts|up|active))`"
)
TOML = [
    pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S))
]
RECORDED = re.compile(r"`([a-z_]+:[a-z_0-9]+:[a-z_]+)`")


def test_every_link_leads_somewhere() -> None:
    dead = [
        (page.name, link)
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())
        if "://" not in link and not link.startswith("mailto:")
        if not (page.parent / link).exists()
    ]
    assert not dead


def test_every_metric_named_is_exported_or_recorded_or_a_limit() -> None:
    known = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs/metrics.md").read_text()))
    known |= set(re.findall(r"{limit: (\w+)}", (ROOT / "alerts/limits.rules.yaml").read_text()))
    known |= _recorded() | _of_a_site()
    unknown = [
        (page.name, name)
        for page in PAGES
        if page.name != "CHANGELOG.md"  # tells of names that are no more
        for name in [*METRIC.findall(page.read_text()), *RECORDED.findall(page.read_text())]
        if name not in known
    ]
    assert not unknown


def test_every_test_named_exists() -> None:
    named = [
        (page.name, path)
        for page in PAGES
        for paths in re.findall(r"(?:ARGS=|pytest )\"?((?:tests/[\w/.]+ ?)+)", page.read_text())
        for path in paths.split()
    ]
    assert not [(page, path) for page, path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("text", TOML)
def test_every_file_of_options_is_accepted(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "stagewatch.toml").write_text(text)
    for agent in ("node", "slurm"):
        if f"[{agent}" in text:
            status = main(["check-config", "--agent", agent, "--config", str(file)])
            said = capsys.readouterr()
            assert status == 0, said.err
            assert said.out != "all defaults\n"


@cache
def _of_a_site() -> set[str]:
    """Series that the rules read where a site records them."""
    rules = "".join(path.read_text() for path in (ROOT / "alerts").glob("*.rules.yaml"))
    return set(re.findall(r"\bsite:[a-z_0-9]+:[a-z_]+", re.sub(r"#.*", "", rules)))


@cache
def _recorded() -> set[str]:
    return {rule.name for rule in every_rule() if rule.records}


def test_the_size_of_a_record_is_stated() -> None:
    sizes = f"{FILE_SIZE:,} bytes ({FILE_SIZE / 1024:.0f} KiB, {RECORD_SIZE / 1024:.0f} KiB of them"
    assert sizes in (ROOT / "docs/design.md").read_text()
    assert f"takes {FILE_SIZE / 1024:.0f} KiB of memory" in (ROOT / "docs/trace.md").read_text()
