"""What the pages say exists: links lead somewhere, metrics and recording rules are real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

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
RECORDED = re.compile(r"`([a-z_]+:[a-z_0-9]+:[a-z_]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert not [link for link in local if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_metric_named_is_exported_or_recorded(page: Path) -> None:
    known = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs/metrics.md").read_text()))
    text = page.read_text()
    assert not [name for name in METRIC.findall(text) if name not in known]
    assert not [name for name in RECORDED.findall(text) if name not in _recorded()]


def _recorded() -> set[str]:
    groups = (
        group
        for path in ROOT.glob("alerts/*.rules.yaml")
        for group in yaml.safe_load(path.read_text())["groups"]
    )
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
