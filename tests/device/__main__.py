"""Runs once for real what made-up GPUs have shown so far, and writes what was seen.

  PYTHONPATH=exporters:. python3 -m tests.device [DIRECTORY]

It needs PyTorch for CUDA, nvidia-ml-py and a C compiler; several ranks share one GPU.  Writes
DIRECTORY/CARD.md; what cannot be run here is told with the reason.  It takes some minutes, changes
no setting of a GPU, and leaves no process.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.gpu.directory import GpuDirectory
from stagewatch.gpu.reader import GpuReader
from stagewatch.gpu.readings import METRICS, parse
from stagewatch.inspect.gpu_dump import dump
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.nccl.layout import FLIGHT_RECORDER, PLUGIN, RAS
from stagewatch.run.command import INSPECTOR
from stagewatch_nccl import build
from tests.device import GPU_BUSY, NEVER_CALLS, NOTHING, VICTIM
from tests.device.jobs import RANKS, ROOT, Job
from tests.device.smi import asked, compared

INSPECTOR_LIBRARY = "INSPECTOR"
"""A variable with the file of NCCL Inspector, where there is one."""
TIERS = ("fast", "medium", "slow")
STEPS = 300
"""Of a job that is timed."""
LOADS = {
    "idle": "torch.zeros(1, device='cuda'); time.sleep(SECONDS)",
    "works": "a = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
    "while time.time() < end: a @ a; torch.cuda.synchronize()",
    "spins": "while time.time() < end: torch.cuda._sleep(1 << 30); torch.cuda.synchronize()",
    "moves": "a = torch.empty(1 << 28); b = torch.empty(1 << 28, device='cuda')\n"
    "a = a.pin_memory()\nwhile time.time() < end: b.copy_(a, non_blocking=True); "
    "torch.cuda.synchronize()",
}
"""Programs that do each with a GPU."""
LOAD_SECONDS = 20
WAITS = """
import time, torch, stagewatch
stagewatch.init("train")
a = torch.randn(8192, 8192, device="cuda"); (a @ a).sum().item()
waited = 0.0
with stagewatch.stage("train", step=1):
    time.sleep(1.0)
    for _ in range(200):
        a = a @ a
    begun = time.perf_counter(); torch.cuda.synchronize(); waited += time.perf_counter() - begun
    scalar = torch.zeros((), device="cuda")
from stagewatch.client import _api
from stagewatch.ranks.records import parse
times = {}
for name in ("with", "without"):
    if name == "without": _api.close()
    scalar.item(); begun = time.perf_counter()
    for _ in range(20000): scalar.item()
    times[name] = (time.perf_counter() - begun) / 20000 * 1e6
print(waited, times["with"], times["without"])
"""

Lines = Iterator[str]


class NotHere(StagewatchError):
    """A part cannot be run on this machine, for the reason given."""


def needs_gpu() -> None:
    """Raises `NotHere` without PyTorch and a GPU for it."""
    if device() != "cuda":
        raise NotHere("PyTorch sees no GPU")


@lru_cache
def device() -> str:
    """The device of PyTorch.  Raises `NotHere` without PyTorch."""
    try:
        return _python(
            "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"
        ).strip()
    except OSError as error:
        raise NotHere("there is no PyTorch") from error


def versions(directory: Path) -> Lines:
    """The card, the driver, CUDA, PyTorch and NCCL."""
    needs_gpu()
    code = "import torch, platform; p = torch.cuda.get_device_properties(0); print(p.name, '|', "
    code += "torch.__version__, '|', torch.version.cuda, '|', torch.cuda.nccl.version(), '|', "
    code += "platform.python_version())"
    yield "| card | PyTorch | CUDA | NCCL | Python |\n| --- | --- | --- | --- | --- |"
    yield f"| {_python(code).strip()} |"
    with closing(GpuReader()) as reader:
        yield f"\nDriver {reader.read(TIERS)['driver']}."


def nvml(directory: Path) -> Lines:
    """What the agent reads of the card, field by field beside nvidia-smi, and what it lacks."""
    if shutil.which("nvidia-smi") is None:
        raise NotHere("there is no nvidia-smi")
    with closing(GpuReader()) as reader:
        reader.read(TIERS)
        time.sleep(1.5)  # profiling compares two looks
        said, frame = asked(), reader.read(TIERS)
    read = {
        key: v for tier in TIERS for key, v in frame["tiers"][tier]["gpus"][0]["values"].items()
    }
    yield "| field | nvidia-smi | agent | |\n| --- | --- | --- | --- |"
    for row in compared(said, read):
        yield f"| {' | '.join(row)} |"
    there = {parse(key)[0].metric.name for key in read}
    yield f"\n{len(read)} readings of {len(there)} metrics; none of: "
    yield ", ".join(f"`{name}`" for name in sorted(METRICS.keys() - there))
    took = (f"{tier} {1000 * frame['tiers'][tier]['seconds']:.1f} ms" for tier in TIERS)
    yield f"\nThe driver took: {', '.join(took)}."
    yield (
        "\nAll of it:\n\n```\n" + "\n".join(f"{k} {v:g}" for k, v in sorted(read.items())) + "\n```"
    )


def states(directory: Path) -> Lines:
    """What the agent says that a GPU does, beside what a program does with it."""
    needs_gpu()
    yield "| a program | the agent says, from the tenth second on | power, SM, tensor, DRAM |"
    yield "| --- | --- | --- |"
    for name, program in LOADS.items():
        code = (
            f"import time, torch\nSECONDS = {LOAD_SECONDS}\nend = time.time() + SECONDS\n{program}"
        )
        gpus, told, last = GpuDirectory(), [], {}
        with _process([sys.executable, "-c", code]) as process, closing(GpuReader()) as reader:
            begun = time.monotonic()
            while process.poll() is None and time.monotonic() - begun < 2 * LOAD_SECONDS:
                for tier, rows in reader.read(TIERS)["tiers"].items():
                    gpus.update(tier, rows["gpus"])
                    last |= rows["gpus"][0]["values"] if tier == "fast" else {}
                if time.monotonic() - begun > LOAD_SECONDS / 2 + 5:
                    told.append(gpus.state(gpus.gpus()[0].uuid))
                time.sleep(1.0)
            held = gpus.of_process(process.pid)
        names = ("power_watts", "sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")
        shown = ", ".join(f"{last.get('gpu_' + one, float('nan')):.3g}" for one in names)
        yield f"| {name} | {', '.join(dict.fromkeys(told[:-3]))} | {shown} |"
        yield f"\nThe process's GPU by NVML: {held or 'none'}.\n" if name == "moves" else ""


def waits(directory: Path) -> Lines:
    """Waits for the device, as the client counts them, and what counting costs."""
    needs_gpu()
    record = directory / "waits"
    record.mkdir()
    waited, hooked, plain = map(float, _python(WAITS, STAGEWATCH_DIR=str(record)).split())
    yield f"A program measured {waited:.3f} s in `torch.cuda.synchronize()`."
    yield f"`item()` takes {hooked:.2f} us with a record, {plain:.2f} us without one."


def hang(what: str, witnesses: set[str]) -> Callable[[Path], Lines]:
    """A job of ranks that share the GPU, one of which holds up the others."""

    def part(directory: Path) -> Lines:
        on = device()
        if on == "cpu" and what == GPU_BUSY:
            raise NotHere("PyTorch sees no GPU")
        plugin = build(directory / "libnccl-profiler-stagewatch.so")
        environ = {
            "NCCL_PROFILER_PLUGIN": str(plugin),
            "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
            "CUDA_COREDUMP_GENERATION_FLAGS": "skip_global_memory,skip_shared_memory,"
            "skip_local_memory,skip_abort",
            "CUDA_COREDUMP_PIPE": str(directory / "core.%p.pipe"),
            "CUDA_COREDUMP_FILE": str(directory / "core.%p"),
        }
        asked = witnesses if on == "cuda" else set()
        with closing(Job(directory, what, on, **environ)) as job:
            job.start(50, what, 12)
            told, verdict = job.hangs(asked)
            if on == "cpu":
                yield "PyTorch sees no GPU: on gloo, where only the program tells of its calls."
            else:
                yield f"Of {', '.join(sorted(asked))} told: {', '.join(sorted(told)) or 'none'}."
            if verdict is None:
                yield f"No verdict. Rank 0 wrote:\n\n```\n{job.said(0)}\n```"
                return
            right = {rank.rank for rank in verdict.culprits} == {VICTIM}
            yield f"\n> {sentence(verdict)}\n\nThat is {'right' if right else 'NOT right'}."
            if what == GPU_BUSY:
                dumped = list(map(str, dump([verdict]))) or ["nobody was at fault"]
                yield "\nThe core dump: " + "; ".join(dumped)

    return part


def costs(directory: Path) -> Lines:
    """A step with one all_reduce of 1 MiB over the loopback network, with each plugin."""
    needs_gpu()
    plugins = {"none": {}, "stagewatch": {}}
    ours = build(directory / "libnccl-profiler-stagewatch.so")
    plugins["stagewatch"] = {"NCCL_PROFILER_PLUGIN": str(ours)}
    if inspector := os.environ.get(INSPECTOR_LIBRARY):
        into = {"NCCL_INSPECTOR_DUMP_DIR": str(directory / "inspector")}
        plugins["inspector"] = {"NCCL_PROFILER_PLUGIN": inspector, **INSPECTOR, **into}
    else:
        yield f"NCCL Inspector was not run: {INSPECTOR_LIBRARY} names no file of it.\n"
    yield "| plugin | a step, in rank 0, of three runs |\n| --- | --- |"
    for name, environ in plugins.items():
        times = []
        for run in range(3):
            with closing(Job(directory, f"cost-{name}-{run}", "cuda", **environ)) as job:
                job.start(STEPS, NOTHING, 0)
                for process in job.processes:
                    process.wait(180)
                times.append(next(iter(re.findall(r"([\d.]+ us) a step", job.said(0))), "failed"))
        yield f"| {name} | {', '.join(times)} |"


PARTS: dict[str, Callable[[Path], Lines]] = {
    "The machine": versions,
    "NVML beside nvidia-smi": nvml,
    "What a GPU does": states,
    "Waits for the device": waits,
    "A rank that never calls": hang(NEVER_CALLS, {PLUGIN, FLIGHT_RECORDER, RAS}),
    "A GPU that is busy before the collective": hang(GPU_BUSY, {PLUGIN, FLIGHT_RECORDER, RAS}),
    "What the plugin costs": costs,
}


def main(arguments: Sequence[str]) -> None:
    """Run all parts."""
    into = Path(arguments[0]) if arguments else Path("build/device")
    into.mkdir(parents=True, exist_ok=True)
    text = [f"# Seen on {_card()}\n\n`python3 -m tests.device`, {RANKS} ranks on one GPU.\n"]
    file = into / f"{re.sub(r'[^A-Za-z0-9]+', '-', _card())}.md"
    for name, part in PARTS.items():
        text.append(f"## {name}\n")
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="stagewatch-device-", dir="/tmp") as directory:
            try:
                text += part(Path(directory))
            except NotHere as reason:
                text.append(f"Not run: {reason}.")
            except Exception as error:
                text.append(f"FAILED: {type(error).__name__}: {error}")
        text.append(f"\n({time.monotonic() - begun:.0f} s)\n")
        file.write_text("\n".join(text))
        print("\n".join(text[-40:][text[-40:].index(f"## {name}\n") :]), flush=True)
    print(f"written to {file}")


def _card() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no card"
    command = ["nvidia-smi", "--id=0", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no card"


def _python(code: str, **environ: str) -> str:
    """What a program prints."""
    path = {"PYTHONPATH": f"{ROOT / 'exporters'}:{ROOT}"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=os.environ | path | environ, capture_output=True, text=True, timeout=180
    )
    if done.returncode:
        raise OSError(done.stderr[-800:])
    return done.stdout


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
