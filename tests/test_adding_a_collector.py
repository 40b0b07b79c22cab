"""Carries docs/adding-a-collector.md out: what the page writes works as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/adding-a-collector.md").read_text()
FILES = dict(re.findall(r"^`([\w/.]+)`:\n\n```\w*\n(.*?)^```$", PAGE, re.M | re.S))
NODE = "exporters/stagewatch/node.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository in which somebody has followed the page."""
    root = tmp_path_factory.mktemp("repository")
    unwanted = shutil.ignore_patterns("__pycache__", "build")
    for part in ("exporters", "tests", "docs", "alerts", "deploy"):
        shutil.copytree(ROOT / part, root / part, ignore=unwanted)
    for part in ("pyproject.toml", "Makefile"):
        shutil.copy(ROOT / part, root)
    for name, content in FILES.items():
        (root / name).write_text(content)
    imported, listed = re.findall(r"^\+(.*)$", PAGE, re.M)
    node = root / NODE
    text = node.read_text()
    first = re.search(r"^from stagewatch", text, re.M)
    assert first
    text = f"{text[: first.start()]}{imported}\n{text[first.start() :]}"
    node.write_text(text.replace("        gpu.SPEC.built(", f"{listed}\n        gpu.SPEC.built("))
    return root


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": f"{copy / 'exporters'}:{copy}"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_page_has_the_files_it_says() -> None:
    assert list(FILES) == [
        "exporters/stagewatch/kernel_log/taint.py",
        "tests/kernel_log/test_taint.py",
        "tests/fixtures/taint.prom",
    ]


def test_the_pages_own_test_passes(copy: Path) -> None:
    done = run(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernel_log/test_taint.py"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_agent_offers_the_collector(copy: Path) -> None:
    shown = run(copy, "-m", "stagewatch", "node", "--help")
    assert "--collector.kernel-taint.interval" in shown.stdout, shown.stderr


def test_the_page_of_metrics_gets_the_new_one(copy: Path) -> None:
    done = run(copy, "docs/generate.py")
    assert done.returncode == 0, done.stderr
    assert "`kernel_tainted`" in (copy / "docs/metrics.md").read_text()


def test_the_style_is_the_projects(copy: Path) -> None:
    files = [name for name in FILES if name.endswith(".py")]
    for check in (["format", "--check"], ["check"]):
        done = run(copy, "-m", "ruff", *check, *files)
        assert done.returncode == 0, done.stdout + done.stderr
