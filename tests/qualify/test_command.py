"""`stagewatch qualify` on nodes whose GPUs are played, and on this machine as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stagewatch.qualify.peaks import peaks
from tests.qualify.conftest import Done, Qualify
from tests.qualify.gpus import healthy, python_with
from tests.running import run_stagewatch
from tests.waiting import wait_for

SKIP = "clock,storage"


@pytest.fixture
def played(tmp_path: Path, qualify: Qualify) -> Qualify:
    def run(figures: dict[str, Any], *arguments: str) -> Done:
        python = python_with(tmp_path / "gpus", figures)
        return qualify("--skip", SKIP, "--python", str(python), *arguments)

    return run


def test_a_healthy_node_passes_with_its_figures(played: Qualify) -> None:
    done = played(healthy(), "--gpus", "8")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 8 + 8 + 1 + 1
    assert lines[3] == "memory      GPU 3        pass    2.9 TB/s, 87% of its model's peak"
    assert lines[-2] == "all_reduce  8 GPUs       pass    360 GB/s"
    assert lines[-1] == "pass"


def test_a_gpu_behind_its_model_fails_and_is_named(played: Qualify) -> None:
    figures = healthy(count=3)
    figures["memory"][2] = {"value": 1.2e12, "same": True}
    figures["product"][1] = {"value": 4.5e14, "same": True}
    done = played(figures)
    assert done.returncode == 4
    assert done.stdout.splitlines()[-1] == "fail: memory GPU 2: 36% of its model's peak"
    figures["memory"][2] = {"value": 2.0e12, "same": True}
    done = played(figures)
    assert done.returncode == 3
    assert "warn: memory GPU 2: 60% of its model's peak; product GPU 1: 45%" in done.stdout


def test_a_gpu_behind_its_own_past_is_told_once_it_has_one(played: Qualify, tmp_path: Path) -> None:
    figures = healthy(count=1)
    slower = {**figures, "memory": [{"value": 2.5e12, "same": True}]}
    assert played(slower).returncode == 0, "86 % of what nobody knows yet"
    for _ in range(3):
        assert played(figures).returncode == 0
    done = played(slower)
    assert done.returncode == 3
    assert "86% of its past (4 runs)" in done.stdout
    history = json.loads((tmp_path / "state" / "history.json").read_text())["series"]
    assert history["memory GPU-0"] == [2.5e12, *[2.9e12] * 3], "what warned is no past"
    other = healthy(count=1)
    other["devices"][0]["gpus"][0]["uuid"] = "GPU-new"
    assert played({**slower, "devices": other["devices"]}).returncode == 0


@pytest.mark.parametrize(
    ("part", "found", "told"),
    [
        ("product", {"value": 6.7e14, "same": False}, "it gave a wrong result"),
        ("memory", {"error": "RuntimeError: CUDA error \x1b[2J"}, "RuntimeError: CUDA error ?[2J"),
        ("memory", {"value": -1.0, "same": True}, "it printed no figure, status 0"),
        ("memory", "no JSON", "it printed no figure, status 0"),
    ],
)
def test_a_wrong_result_fails(played: Qualify, part: str, found: Any, told: str) -> None:
    figures = healthy(count=2)
    figures[part][1] = found
    done = played(figures)
    assert done.returncode == 4
    assert done.stdout.splitlines()[-1] == f"fail: {part} GPU 1: {told}"


def test_a_rank_that_fails_is_told_before_those_that_wait_for_it(played: Qualify) -> None:
    figures = healthy(count=3)
    figures["all_reduce"] = ["hang", {"error": "DistBackendError: NCCL error"}, "hang"]
    done = played(figures, "--timeout", "6s", "--skip", f"{SKIP},memory,product")
    assert done.returncode == 4
    assert done.stdout.splitlines()[-1] == ("fail: all_reduce 3 GPUs: DistBackendError: NCCL error")


def test_what_hangs_fails_in_time_and_leaves_no_process(played: Qualify, tmp_path: Path) -> None:
    figures = healthy(count=2)
    figures["memory"][0] = "hang"
    done = played(figures, "--timeout", "6s", "--json")
    results = json.loads(done.stdout)["results"]
    told = {(one["part"], one["device"]): one["why"] for one in results if one["level"] == "fail"}
    assert told["memory", "GPU 0"] == "it did not end in time"
    assert done.returncode == 4
    assert not workers(tmp_path)


def workers(tmp_path: Path) -> str:
    found = subprocess.run(["pgrep", "-f", str(tmp_path / "gpus")], capture_output=True, text=True)
    return found.stdout


def test_workers_end_with_a_prolog_that_is_killed(tmp_path: Path) -> None:
    python = python_with(tmp_path / "gpus", {**healthy(count=2), "memory": ["hang", "hang"]})
    command = [sys.executable, "-m", "stagewatch.cli", "qualify", "--skip", SKIP,
               "--history", str(tmp_path / "history.json")]  # fmt: skip
    environ = {**os.environ, "STAGEWATCH_QUALIFY_PYTHON": str(python)}
    prolog = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(workers(tmp_path).split()) == 2, "both GPUs are measured")
    finally:
        prolog.kill()
        prolog.wait()
    wait_for(lambda: not workers(tmp_path), "the workers are gone")


def test_a_node_that_lacks_a_gpu_fails(played: Qualify) -> None:
    done = played(healthy(count=7), "--gpus", "8")
    assert done.returncode == 4
    assert "PyTorch reaches 7 of 8 GPUs" in done.stdout
    unreached = {"devices": [{"torch": "2.13.0", "cuda": "12.8", "gpus": [], "unreached": True}]}
    done = played(unreached)
    assert done.returncode == 4
    assert "the node has a GPU, but this PyTorch reaches none" in done.stdout


def test_without_pytorch_its_parts_are_skipped_with_the_reason(
    played: Qualify, qualify: Qualify
) -> None:
    done = played({"devices": [{"missing": "torch"}]})
    assert done.returncode == 1, "nothing was measured"
    assert done.stdout.splitlines()[-1] == "skipped"
    assert "torch is not installed: --python names a Python that has PyTorch" in done.stdout
    done = qualify("--skip", SKIP, "--python", "/nowhere/python")
    assert done.returncode == 4
    assert "/nowhere/python cannot be run" in done.stdout


def test_a_pass_says_what_it_is_not_of(played: Qualify) -> None:
    done = played(healthy(count=1))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "pass: all_reduce skipped")


def test_storage_is_written_and_read_back(qualify: Qualify, tmp_path: Path) -> None:
    (there := tmp_path / "there").mkdir()
    arguments = ("--skip", "clock,memory,product,all_reduce")
    done = qualify(*arguments, "--storage", f"{there},{tmp_path / 'none'}", "--json")
    good, bad = json.loads(done.stdout)["results"]
    assert (good["level"], good["value"] > 0) == ("pass", True)
    assert (bad["level"], bad["why"]) == ("fail", "statvfs: ENOENT")
    assert not list(there.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"series": {"memory GPU-0": [1e99, 1e99, 1e99]}}',
        b'{"series": {"memory GPU-0": [-1, 0, NaN]}}',
        json.dumps({"series": {str(at): [1.0] for at in range(300)}}).encode(),
        b"[" * 100_000,
    ],
    ids=["empty", "too large", "negative", "too many", "too deep"],
)
def test_a_past_that_somebody_spoilt_is_put_aside(
    played: Qualify, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (state := tmp_path / "state").mkdir()
    (state / "history.json").write_bytes(content)
    done = played(healthy(count=1))
    assert done.returncode == 0, done.stdout
    assert "its past begins anew" in caplog.text
    assert (state / "history.json.corrupt").exists()
    history = json.loads((state / "history.json").read_text())["series"]
    assert history["memory GPU-0"] == [2.9e12]


def test_a_past_that_is_no_file_holds_nothing_up(played: Qualify, tmp_path: Path) -> None:
    (state := tmp_path / "state").mkdir()
    os.mkfifo(state / "history.json")
    assert played(healthy(count=1)).returncode == 0


def test_options_that_cannot_be() -> None:
    for arguments in (["--skip", "all"], ["--storage", "here"]):
        assert run_stagewatch("qualify", *arguments).returncode == 2, arguments


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("NVIDIA H100 80GB HBM3", 3.35e12),
        ("NVIDIA H100 PCIe", 2.0e12),
        ("NVIDIA A100-SXM4-80GB", 1.555e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA T4", None),
    ],
)
def test_peaks_are_those_of_the_model(name: str, memory: float | None) -> None:
    assert peaks(name).get("memory") == memory
