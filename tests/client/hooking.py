"""What the tests of the hooks share: a record of this process, and made-up frameworks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import stagewatch
from stagewatch.client import _harmless
from stagewatch.client.hooks import span
from stagewatch.core.processes import Children
from stagewatch.ranks.records import CorruptRecord, RankRecord, parse
from tests.running import clean_environ

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = os.environ.get("STAGEWATCH_FRAMEWORKS", "")
"""Where those of tests/frameworks.txt are.  Where it is set, nothing may be missing."""
Write = Callable[[str, str], None]
"""`write("package.module", source)`: a module of a made-up framework."""
IDENTITY = (
    *("STAGEWATCH_", "SLURM_", "RAY_", "OMPI_", "PMI", "HYDI_", "MASTER_", "TORCHELASTIC_"),
    "KUBERNETES_",
)


def records(directory: Path) -> list[RankRecord]:
    """Every complete record in the directory."""
    found = []
    for path in sorted(directory.glob("*.rank")):
        with suppress(CorruptRecord, FileNotFoundError):  # being made, or just closed
            found.append(parse(path.read_bytes()))
    return found


def record(directory: Path) -> RankRecord:
    """The only record in the directory."""
    (found,) = records(directory)
    return found


def open_frame(directory: Path) -> tuple[str, str, int | None] | None:
    """Stage, part and step that the only record in the directory shows now."""
    frame = record(directory).open
    return None if frame is None else (frame.stage, frame.substage, frame.step)


def completed(found: RankRecord) -> dict[str, int]:
    """How many passes of each stage were counted."""
    counts = {stage: sum(totals.durations) for stage, totals in found.totals.items()}
    return {stage: count for stage, count in counts.items() if count}


@contextmanager
def fresh_client(directory: Path) -> Iterator[Path]:
    """A client as in a process that has just begun, whose record will be in `directory`."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in list(os.environ):
            if variable.startswith(IDENTITY) or variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
                patch.delenv(variable)
        patch.setenv("STAGEWATCH_DIR", str(directory))
        patch.setattr(span, "_began", False)
        span._innermost.set(None)
        patch.setattr(_harmless, "_warned", set())
        stagewatch.close()
        try:
            yield directory
        finally:
            stagewatch.close()


def run_job(module: str, directory: Path, *arguments: str, path: str = "", **env: str) -> Any:
    """Run one of the jobs beside this file as a process of its own; returns what it reports."""
    given = {
        "STAGEWATCH_DIR": str(directory),
        # Ours first: some frameworks' distributions bring a top-level `tests` of their own.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "exporters"), str(ROOT), path])),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        **env,
    }
    job = subprocess.run(
        [sys.executable, "-m", f"tests.client.jobs.{module}", *arguments],
        env=clean_environ(given),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert job.returncode == 0, job.stderr[-4000:]
    return json.loads(job.stdout.splitlines()[-1])


def start_ranks(
    children: Children, size: int, job: str, directory: Path, *arguments: object
) -> list[subprocess.Popen[bytes]]:
    """Start one of the jobs beside this file with so many ranks; they print to `RANK.log`."""
    environ = clean_environ(
        {
            "STAGEWATCH_DIR": str(directory),
            "PYTHONPATH": f"{ROOT / 'exporters'}{os.pathsep}{ROOT}",
            "WORLD_SIZE": str(size),
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",
        }
    )
    command = [sys.executable, "-m", f"tests.client.jobs.{job}", *map(str, arguments)]
    return [
        children.start(
            command, environ=environ | {"RANK": str(rank)}, log=directory / f"{rank}.log"
        )
        for rank in range(size)
    ]


def needs(module: str) -> None:
    """Skip what needs a framework that is not installed; `make test-frameworks` installs all."""
    if importlib.util.find_spec(module) is None:
        reason = f"{module} is not installed: make test-frameworks"
        if FRAMEWORKS:
            raise ModuleNotFoundError(reason)
        pytest.skip(reason, allow_module_level=True)


def frameworks_path(distribution: str) -> str:
    """Where a framework is installed that cannot be installed with its dependencies."""
    if not FRAMEWORKS:
        pytest.skip(f"{distribution} is not installed: make test-frameworks")
    found = any(Path(FRAMEWORKS).glob(f"{distribution}-*.dist-info"))
    assert found, f"{distribution} is not in STAGEWATCH_FRAMEWORKS ({FRAMEWORKS})"
    return FRAMEWORKS
