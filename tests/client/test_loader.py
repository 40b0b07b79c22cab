"""The `sitecustomize` that watches a program without a line in it, and harms none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stagewatch.client._flight_recorder import BUFFER, PIPE

ROOT = Path(__file__).resolve().parents[2]
LOADER = ROOT / "exporters/stagewatch/client/loader"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory of modules: a made-up torch, which the hooks say that they do not know."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "torch.py").write_text("")
    return site


def python(code: str, *path: Path, **environ: str) -> str:
    """What a program prints that runs with this PYTHONPATH; of errors only those of our hooks."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": os.pathsep.join(map(str, path)), "PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    others = [line for line in done.stderr.splitlines() if "could not hook torch" not in line]
    assert (done.returncode, others) == (0, []), done.stderr
    return done.stdout


WATCHED = "import torch, sys; print('stagewatch' in sys.modules)"


def test_a_program_that_imports_torch_is_watched(site: Path) -> None:
    assert python(WATCHED, LOADER, site) == "True\n"


@pytest.mark.parametrize(
    ("version", "environ", "kept"),
    [
        ("2.8.0+cu128", {PIPE: "/tmp/x-"}, "2000"),
        ("2.13.0", {PIPE: "/tmp/x-"}, "None"),
        ("a git build", {PIPE: "/tmp/x-"}, "None"),
        ("2.8.0", {}, "None"),
        ("2.8.0", {PIPE: "/tmp/x-", BUFFER: "0"}, "0"),
    ],
)
def test_a_pytorch_that_makes_no_pipe_by_itself_is_told_to(
    site: Path, version: str, environ: dict[str, str], kept: str
) -> None:
    (site / "torch.py").write_text(f"__version__ = {version!r}")
    code = f"import torch, os; print(os.environ.get({BUFFER!r}))"
    assert python(code, LOADER, site, **environ) == f"{kept}\n"


def test_another_program_or_user_does_not_even_import_the_client(site: Path) -> None:
    client = "import sys; print('stagewatch.client' in sys.modules)"
    assert python(client, LOADER) == "False\n"
    assert python(f"import torch; {client}", LOADER, site, STAGEWATCH_OFF="1") == "False\n"


def test_it_finds_its_own_package_and_nothing_beside_it(tmp_path: Path, site: Path) -> None:
    """The client may live in another environment, whose packages the job must not see."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(ROOT / "exporters/stagewatch", elsewhere / "stagewatch")
    (elsewhere / "intruder.py").write_text("")
    code = (
        "import torch, stagewatch, importlib.util\n"
        "print(stagewatch.__file__, importlib.util.find_spec('intruder'))"
    )
    found = python(code, elsewhere / "stagewatch/client/loader", site)
    assert found == f"{elsewhere}/stagewatch/__init__.py None\n"


def test_the_sitecustomize_that_was_there_runs(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("value = 540\nprint('theirs')\n")
    code = "import sitecustomize; print(sitecustomize.value, sitecustomize.__file__)"
    assert python(code, LOADER, theirs) == f"theirs\n540 {theirs}/sitecustomize.py\n"


@pytest.mark.parametrize("broken", ["raise RuntimeError", "not python"])
def test_a_client_that_cannot_be_imported_costs_the_program_nothing(
    broken: str, tmp_path: Path, site: Path
) -> None:
    package = tmp_path / "broken/stagewatch"
    shutil.copytree(LOADER, package / "client/loader")
    (package / "__init__.py").write_text(broken)
    code = "import torch, sys; print(torch.__file__, 'stagewatch' in sys.modules)"
    found = python(code, package / "client/loader", site)
    assert found == f"{site}/torch.py False\n"
