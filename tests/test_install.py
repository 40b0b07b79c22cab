"""The wheel, installed without any dependency into a fresh environment."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import stagewatch

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command that sees nothing of this checkout."""
    clean = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        list(command), capture_output=True, text=True, env=clean | environ, cwd="/", timeout=280
    )


def succeed(*command: str | Path, **environ: str) -> str:
    done = run(*command, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="needs hatchling, of the extra `dev`, to build a wheel")
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if run(*pip, "--version").returncode:
        pytest.skip("needs pip in this environment")
    succeed(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, ROOT)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds nothing but the wheel."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    python = directory / "bin" / "python"
    succeed(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
    return directory / "bin"


def test_the_wheel_carries_what_belongs_to_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert wheel.name == f"stagewatch-{stagewatch.__version__}-py3-none-any.whl"
    assert "stagewatch/py.typed" in names
    sources = {
        f"stagewatch/{path.relative_to(ROOT / 'exporters/stagewatch').as_posix()}"
        for path in (ROOT / "exporters/stagewatch").rglob("*.py")
    }
    assert sources <= names
    alerts = {path.name for path in (ROOT / "alerts").glob("*.rules.yaml")}
    assert alerts <= {name.removeprefix("stagewatch/_assets/alerts/") for name in names}
    assert {name.split("/")[0] for name in names} == {"stagewatch", info}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert all("extra ==" in line for line in metadata.get_all("Requires-Dist", []))


def test_a_trainer_needs_nothing_but_the_wheel(bare: Path, tmp_path: Path) -> None:
    code = """
import os, sys
import stagewatch
stagewatch.init("train", job_id=540, rank=3, directory=sys.argv[1])
with stagewatch.stage("rollout", step=1):
    stagewatch.heartbeat(2)
    stagewatch.scalar("reward", 0.5)
    stagewatch.collective("world")
    (name,) = os.listdir(sys.argv[1])
print(stagewatch.__file__, name.endswith(".rank"))
stagewatch.close()
print(os.listdir(sys.argv[1]))
"""
    lines = succeed(bare / "python", "-I", "-c", code, tmp_path).splitlines()
    file, _, recorded = lines[0].rpartition(" ")
    assert Path(file).is_relative_to(bare.parent)
    assert (recorded, lines[1]) == ("True", "[]")


def test_the_environment_is_really_bare(bare: Path) -> None:
    for module in ("prometheus_client", "requests", "psutil", "pynvml"):
        done = run(bare / "python", "-I", "-c", f"import {module}")
        assert "ModuleNotFoundError" in done.stderr


def test_inspect_works_from_the_bare_wheel(bare: Path, tmp_path: Path) -> None:
    """What an operator can do who could only log in: no agent, no dependency."""
    command = [bare / "stagewatch", "inspect", "--job", "none", "--record-dir", tmp_path]
    assert succeed(*command).startswith("No rank of job none on this node")


def test_help_and_version_work_from_the_bare_wheel(bare: Path) -> None:
    assert succeed(bare / "stagewatch", "--version") == f"{stagewatch.__version__}\n"
    shown = succeed(bare / "stagewatch", "--help")
    for command in ("node", "inspect", "check-config", "demo"):
        assert f"\n    {command}" in shown


@pytest.mark.parametrize(("command", "extra"), [("node", "node"), ("demo", "demo")])
def test_a_command_that_needs_more_says_what_to_install(
    command: str, extra: str, bare: Path
) -> None:
    done = run(bare / "stagewatch", command)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("stagewatch: ")
    assert done.stderr.endswith(f"pip install 'stagewatch[{extra}]'\n")
    assert len(done.stderr.splitlines()) == 1


def test_the_rules_are_found_in_the_wheel(bare: Path) -> None:
    code = "from stagewatch.assets import assets; print(assets('alerts'))"
    directory = Path(succeed(bare / "python", "-I", "-c", code).strip())
    assert directory.is_relative_to(bare.parent)
    assert (directory / "stalls.rules.yaml").read_bytes() == (
        ROOT / "alerts" / "stalls.rules.yaml"
    ).read_bytes()
