"""The wheel and the sdist: installed elsewhere, they work without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.deploy.engine import ROOT
from tests.waiting import wait_for


def build(kind: str, directory: Path, source: Path = ROOT) -> Path:
    """Build a `wheel` or an `sdist`, by the backend and with no network."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(directory)],
        cwd=source, check=True, capture_output=True,
    )  # fmt: skip
    [file] = directory.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return file


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="needs hatchling")
    return build("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as an installer does."""
    directory = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory)
    [source] = (path for path in directory.iterdir() if path.is_dir())
    return build("wheel", directory / "dist", source)


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it, whose dependencies are those of the tests."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False, symlinks=True)
    [packages] = directory.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    own = [path for path in sys.path if path.endswith("-packages")]
    (packages / "dependencies.pth").write_text("\n".join(own) + "\n")
    return directory


def run(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`stagewatch ARGUMENTS` of that environment, far from the checkout."""
    return subprocess.run(
        [str(environment / "bin" / "python"), "-m", "stagewatch.cli", *arguments],
        cwd=environment, env=clean(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def clean() -> dict[str, str]:
    """This environment without the way to the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_the_package_that_runs_is_the_wheels(elsewhere: Path) -> None:
    code = "import stagewatch; print(stagewatch.__file__, stagewatch.__version__)"
    found = subprocess.run(
        [str(elsewhere / "bin" / "python"), "-c", code],
        cwd=elsewhere, env=clean(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    file, version = found.stdout.split()
    assert Path(file).is_relative_to(elsewhere)
    assert version == run(elsewhere, "--version").stdout.strip()


def test_rules_and_dashboards_come_out_of_the_wheel_as_they_are_in_the_checkout(
    elsewhere: Path, tmp_path: Path
) -> None:
    done = run(elsewhere, "assets", "export", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    ours = {
        **{f"alerts/{file.name}": file for file in (ROOT / "alerts").glob("*.rules.yaml")},
        **{
            f"alerts/runbooks/{file.name}": file for file in (ROOT / "alerts/runbooks").glob("*.md")
        },
        **{f"dashboards/{file.name}": file for file in (ROOT / "dashboards/generated").glob("*")},
        "kubernetes/rules.yaml": ROOT / "deploy/kubernetes/rules.yaml",
    }
    out = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    site = tmp_path / "out" / "alerts" / "site.rules.yaml"
    assert yaml.safe_load(out.pop("alerts/site.rules.yaml"))["groups"][0]["rules"] is None
    assert out == {name: file.read_bytes() for name, file in ours.items()}
    site.write_text("groups: []  # of the site\n")
    again = run(elsewhere, "assets", "export", str(tmp_path / "out"))
    assert again.returncode == 0, again.stderr
    assert site.read_text() == "groups: []  # of the site\n"


def test_a_directory_that_cannot_be_written_is_named(elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(elsewhere, "assets", "export", str(tmp_path / "file"))
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr


def test_the_agent_of_the_wheel_serves_metrics(
    elsewhere: Path, children: Children, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    command = [str(elsewhere / "bin" / "python"), "-m", "stagewatch.cli", "node"]
    command += ["--listen", address, "--record-dir", str(tmp_path)]
    children.start(command, log=tmp_path / "log", environ=clean())

    def serves() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                return b"stagewatch_collector_success" in answer.read()
        except OSError:
            return False

    wait_for(serves, "the agent serves its metrics")


def test_the_sdist_holds_what_the_tests_and_the_deployment_need(sdist: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("needs a git checkout, to know what belongs to the project")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        name for name in tracked.stdout.splitlines() if not name.startswith(".")
    } - held == set()


def test_the_scenarios_of_the_repository_are_told_of_and_not_carried(elsewhere: Path) -> None:
    asked = run(elsewhere, "demo", "--scenario", "starved-rollout")
    assert asked.returncode == 2
    assert "a clone of the repository" in asked.stderr
    listed = run(elsewhere, "demo", "--scenario", "list")
    assert listed.returncode == 0
    assert listed.stdout.split()[0] == "sync-stall"
    assert len(listed.stdout.splitlines()) == 1
