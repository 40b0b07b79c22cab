"""What the pages say exists: links lead somewhere, metrics and recording rules are real."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

from stagewatch.record import FILE_SIZE, RECORD_SIZE
from tests.running import clean_environ

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert not [link for link in local if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_metric_named_is_exported_or_recorded_or_a_limit(page: Path) -> None:
    known = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs/metrics.md").read_text()))
    known |= set(re.findall(r"{limit: (\w+)}", (ROOT / "alerts/limits.rules.yaml").read_text()))
    text = page.read_text()
    if page.name == "CHANGELOG.md":  # tells of names that are no more
        return
    assert not [name for name in METRIC.findall(text) if name not in known]
    assert not [name for name in RECORDED.findall(text) if name not in _recorded() | _of_a_site()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_named_exists(page: Path) -> None:
    named = re.findall(r"(?:ARGS=|pytest )\"?((?:tests/[\w/.]+ ?)+)", page.read_text())
    assert not [path for paths in named for path in paths.split() if not (ROOT / path).exists()]


@pytest.mark.parametrize("text", TOML)
def test_every_file_of_options_is_accepted(text: str, tmp_path: Path) -> None:
    (file := tmp_path / "stagewatch.toml").write_text(text)
    agents = [agent for agent in ("node", "slurm") if f"[{agent}" in text]
    for agent in agents:
        command = [sys.executable, "-m", "stagewatch.cli", "check-config", "--agent", agent]
        done = subprocess.run(
            [*command, "--config", str(file)],
            capture_output=True,
            text=True,
            env=clean_environ({}),
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout != "all defaults\n"


@cache
def _of_a_site() -> set[str]:
    """Series that the rules read where a site records them."""
    rules = "".join(path.read_text() for path in (ROOT / "alerts").glob("*.rules.yaml"))
    return set(re.findall(r"\bsite:[a-z_0-9]+:[a-z_]+", re.sub(r"#.*", "", rules)))


@cache
def _recorded() -> set[str]:
    groups = (
        group
        for path in ROOT.glob("alerts/*.rules.yaml")
        for group in yaml.load(path.read_text(), yaml.CSafeLoader)["groups"]
    )
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def test_the_size_of_a_record_is_stated() -> None:
    sizes = f"{FILE_SIZE:,} bytes ({FILE_SIZE / 1024:.0f} KiB, {RECORD_SIZE / 1024:.0f} KiB of them"
    assert sizes in (ROOT / "docs/design.md").read_text()
    assert f"takes {FILE_SIZE / 1024:.0f} KiB of memory" in (ROOT / "docs/trace.md").read_text()
