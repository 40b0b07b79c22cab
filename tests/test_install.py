"""The wheel, built from the sdist and installed without any dependency."""

from __future__ import annotations

import email
import email.message
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import stagewatch
from stagewatch.core.processes import Children
from tests.waiting import wait_for

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
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip(
        "hatchling", reason="needs hatchling, of the extra `dev`, to build an sdist"
    )
    directory = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pip", reason="needs pip in this environment")
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    succeed(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, sdist)
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


def metadata_of(archive: zipfile.ZipFile) -> tuple[str, email.message.Message]:
    """The directory of the wheel's metadata, and the metadata."""
    info = next(name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name)
    return info, email.message_from_bytes(archive.read(f"{info}/METADATA"))


def test_the_wheel_carries_what_belongs_to_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info, told = metadata_of(archive)
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert wheel.name == f"stagewatch-{stagewatch.__version__}-py3-none-any.whl"
    assert "stagewatch/py.typed" in names
    sources = {
        f"stagewatch/{path.relative_to(ROOT / 'exporters/stagewatch').as_posix()}"
        for path in (ROOT / "exporters/stagewatch").rglob("*.py")
    }
    assert sources <= names
    alerts = {path.name for path in (ROOT / "alerts").glob("*.rules.yaml")}
    alerts -= {"dcgm.rules.yaml"}  # `assets export` makes it
    assert alerts <= {name.removeprefix("stagewatch/_assets/alerts/") for name in names}
    assert {name.split("/")[0] for name in names} == {"stagewatch", info}
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == ">=3.10"
    assert all("extra ==" in line for line in told.get_all("Requires-Dist", []))


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


def test_inspect_works_from_the_bare_wheel(bare: Path, tmp_path: Path) -> None:
    """What an operator can do who could only log in: no agent, no dependency."""
    command = [bare / "stagewatch", "inspect", "--job", "none", "--record-dir", tmp_path]
    done = run(*command)
    assert done.stdout.startswith("No rank of job none on this node")
    assert done.returncode == 1


@pytest.mark.parametrize(("command", "extra"), [("node", "node"), ("demo", "demo"), ("top", "top")])
def test_a_command_that_needs_more_says_what_to_install(
    command: str, extra: str, bare: Path
) -> None:
    done = run(bare / "stagewatch", command)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("stagewatch: ")
    assert done.stderr.endswith(f"pip install 'stagewatch[{extra}]'\n")
    assert len(done.stderr.splitlines()) == 1


def test_rules_and_dashboards_come_out_of_the_wheel_as_they_are_in_the_checkout(
    bare: Path, tmp_path: Path
) -> None:
    export = (bare / "stagewatch", "assets", "export", tmp_path / "out")
    succeed(*export)
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
    succeed(*export)
    assert site.read_text() == "groups: []  # of the site\n"


def test_a_directory_that_cannot_be_written_is_named(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(bare / "stagewatch", "assets", "export", tmp_path / "file")
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr


EXTRAS = ("node", "slurm", "report", "demo", "top")
NOWHERE = "http://127.0.0.1:9"
BARE: dict[tuple[str, ...], int] = {
    ("fault", "list", "--fault-dir", "{tmp}", "--undo-dir", "{tmp}/undo"): 0,
    (
        *("fault", "inject", "cpu", "--target", "all", "--for", "1s", "--dry-run"),
        *("--fault-dir", "{tmp}", "--undo-dir", "{tmp}/undo"),
    ): 0,
    ("check", "--list"): 0,
    ("check-config",): 0,
    ("check-config", "--agent", "slurm"): 0,
    ("died", "/proc/version"): 3,  # which tells of no death
}
"""Commands that need no extra, and their exit status."""
COMMANDS: dict[tuple[str, ...], tuple[frozenset[str], int]] = {
    ("inspect", "--job", "1", "--prometheus", NOWHERE): (
        frozenset({"slurm", "report", "demo", "top"}),
        1,
    ),
    ("top", "--record-dir", "{tmp}"): (frozenset({"top"}), 2),  # there is no terminal
    ("demo", "--scenario", "list"): (frozenset({"slurm", "report", "demo", "top"}), 0),
    ("report", "recovery", "--prometheus", NOWHERE, "--output", "{tmp}/report"): (
        frozenset({"slurm", "report", "demo"}),
        1,
    ),
    (
        *("report", "experiment", "--prometheus", NOWHERE, "--fault", "cpu-1"),
        *("--output", "{tmp}/report"),
    ): (frozenset({"report"}), 1),
}
"""Commands, the extras with any of which each works, and its exit status then."""


def test_a_command_that_needs_no_extra_works_from_the_bare_wheel(
    bare: Path, tmp_path: Path
) -> None:
    for words, status in BARE.items():
        done = run(bare / "stagewatch", *(word.format(tmp=tmp_path) for word in words))
        assert (done.returncode, done.stderr) == (status, ""), words


def needed(wheel: Path, extra: str) -> dict[str, metadata.Distribution]:
    """What pip installs for an extra, by name, as this environment has it."""
    with zipfile.ZipFile(wheel) as archive:
        _, told = metadata_of(archive)
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(told, extra)]
    while waiting:
        content, wanted = waiting.pop()
        for text in content.get_all("Requires-Dist", []):
            one = Requirement(text)
            if one.marker and not one.marker.evaluate({"extra": wanted}):
                continue
            try:
                package = metadata.distribution(one.name)
            except metadata.PackageNotFoundError:
                pytest.skip(f"needs {one.name}, of the extra {extra}")
            assert one.specifier.contains(package.version, prereleases=True), text
            own = one.name == "stagewatch"  # one extra may ask for another
            for more in ("", *one.extras):
                if (one.name, more) not in seen:
                    seen.add((one.name, more))
                    waiting.append((told if own else package.metadata, more))  # type: ignore[arg-type]
            found |= {} if own else {one.name: package}
    return found


@pytest.fixture(scope="module", params=EXTRAS)
def installed(
    request: pytest.FixtureRequest,
    wheel: Path,
    bare: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    """An extra, and the `bin` of an environment that holds the wheel and what the extra needs.

    Links lead to the packages of this environment: pip has put these there for all extras.
    """
    extra: str = request.param
    directory = tmp_path_factory.mktemp(extra)
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    (own,) = bare.parent.glob("lib/python*/site-packages")
    tops = {path.name: path for path in own.glob("stagewatch*")}
    for package in needed(wheel, extra).values():
        names = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
        tops |= {name: Path(str(package.locate_file(name))) for name in names}
    for name, path in tops.items():
        (site / name).symlink_to(path)
    script = directory / "bin" / "stagewatch"
    script.write_text(
        f"#!{directory}/bin/python\nimport sys\nfrom stagewatch.cli import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    return extra, directory / "bin"


def test_no_command_advises_to_install_what_is_installed(
    installed: tuple[str, Path], tmp_path: Path
) -> None:
    """Each works, or says in one line which other extra it needs."""
    extra, binaries = installed
    for words, (extras, status) in COMMANDS.items():
        command = [word.format(tmp=tmp_path) for word in words]
        done = run(binaries / "stagewatch", *command)
        said = f"{extra}: {command}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, said
        advice = re.search(r"pip install 'stagewatch\[([\w-]+)\]'", done.stderr)
        if extra in extras:
            assert (done.returncode, advice) == (status, None), said
        else:
            assert advice, said
            assert advice[1] in extras, said


@pytest.mark.parametrize("installed", ["demo"], indirect=True)
def test_the_scenarios_of_the_repository_are_told_of_and_not_carried(
    installed: tuple[str, Path],
) -> None:
    demo = (installed[1] / "stagewatch", "demo", "--scenario")
    asked = run(*demo, "starved-rollout")
    assert asked.returncode == 2
    assert "a clone of the repository" in asked.stderr
    (listed,) = succeed(*demo, "list").splitlines()
    assert listed.split()[0] == "sync-stall"


@pytest.mark.parametrize("installed", ["node", "slurm"], indirect=True)
def test_an_agent_starts_with_its_own_extra(installed: tuple[str, Path], tmp_path: Path) -> None:
    extra, binaries = installed
    state = ["--state-dir", tmp_path] if extra == "slurm" else ["--record-dir", tmp_path]
    command = [binaries / "stagewatch", extra, "--listen", "127.0.0.1:0", *state]
    with Children() as children:
        agent = children.start([str(word) for word in command], log=tmp_path / "log")
        told = wait_for(
            lambda: re.search(r" agent on (http://[\d.:]+)", (tmp_path / "log").read_text()),
            "it listens",
        )

        def scraped() -> bytes:
            with urllib.request.urlopen(f"{told[1]}/metrics") as answer:
                return bytes(answer.read())

        wait_for(lambda: b"stagewatch_collector_success" in scraped(), "a collector's answer")
        agent.terminate()
        assert agent.wait(timeout=60) == 0, (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()
