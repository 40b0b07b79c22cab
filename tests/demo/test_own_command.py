"""What the demo tells people to type runs the same stagewatch again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAY = "from stagewatch.demo.scenario import own_command; print(own_command())"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A `stagewatch` in an environment of its own that says how it is called."""
    file = tmp_path / "my checkout" / ".venv" / "bin" / "stagewatch"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!{sys.executable}\n{SAY}\n")
    file.chmod(0o755)
    return file


def said(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    more = f"{path}:" if path else ""
    environ = os.environ | {"PATH": f"{more}/usr/bin:/bin"}
    return subprocess.run(
        [*command], cwd=cwd, env=environ, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_an_environment_that_is_not_active_is_named_by_its_path(script: Path) -> None:
    checkout = script.parents[2]
    assert said(script, cwd=checkout) == ".venv/bin/stagewatch"
    assert said("sh", "-c", said(script, cwd=checkout), cwd=checkout) == ".venv/bin/stagewatch"
    assert said("./stagewatch", cwd=script.parent) == "./stagewatch"


def test_elsewhere_the_whole_path_is_given_as_a_shell_wants_it(script: Path) -> None:
    command = said(script, cwd=Path("/usr"))
    assert command == f"'{script}'"
    assert said("sh", "-c", command, cwd=Path("/usr")) == command


def test_what_the_path_leads_to_has_its_plain_name(script: Path, tmp_path: Path) -> None:
    link = tmp_path / "bin" / "stagewatch"
    link.parent.mkdir()
    link.symlink_to(script)
    assert said(script, cwd=tmp_path, path=link.parent) == "stagewatch"
    assert said("sh", "-c", "stagewatch", cwd=tmp_path, path=link.parent) == "stagewatch"


def test_another_installation_on_the_path_is_not_meant(script: Path, tmp_path: Path) -> None:
    other = tmp_path / "bin" / "stagewatch"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    checkout = script.parents[2]
    assert said(script, cwd=checkout, path=other.parent) == ".venv/bin/stagewatch"


def test_a_module_is_run_as_one(tmp_path: Path) -> None:
    command = said(sys.executable, "-c", SAY, cwd=tmp_path)
    assert said("sh", "-c", f"{command} --version", cwd=tmp_path)
    assert command.endswith(" -m stagewatch")
