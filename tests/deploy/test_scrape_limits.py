"""Every scrape configuration that we ship or show bounds what it takes of an agent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.engine import ROOT

LARGEST_PAGE = 8_000_000
"""Bytes of a node agent's page, with more than the records of three users who do what they can."""


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Jobs that scrape agents, each with where it stands; monitors by Prometheus' own keys."""
    files = [ROOT / "deploy" / "prometheus" / "prometheus.yml"]
    texts = [
        (file.name, file.read_text()) for file in (*files, *(ROOT / "deploy/scale").glob("*.yml"))
    ]
    for page in (ROOT / "docs").glob("*.md"):
        shown = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        texts += [(page.name, text) for text in shown if "scrape_configs" in text]
    for name, text in texts:
        for job in yaml.safe_load(text)["scrape_configs"]:
            if str(job["job_name"]).startswith("stagewatch"):
                yield f"{name} {job['job_name']}", job
    for file in sorted((ROOT / "deploy" / "kubernetes").rglob("monitor*.yaml")):
        for monitor in yaml.safe_load_all(file.read_text()):
            spec = monitor["spec"]
            limits = {
                "sample_limit": spec.get("sampleLimit"),
                "body_size_limit": spec.get("bodySizeLimit"),
            }
            yield f"{file.name} {monitor['metadata']['name']}", limits


def test_a_page_that_no_agent_would_serve_is_not_taken() -> None:
    found = set()
    for name, job in jobs():
        found.add(name.split()[0])
        size = re.fullmatch(r"(\d+)MB", str(job["body_size_limit"]))
        assert size and LARGEST_PAGE < int(size[1]) * 1_000_000 < 200_000_000, name
        assert 30_000 < int(job["sample_limit"]) < 1_000_000, name
    assert {"prometheus.yml", "operating.md", "slurm.md", "monitors.yaml", "monitor.yaml"} <= found
    assert any(Path(name).suffix == ".yml" for name in found)
