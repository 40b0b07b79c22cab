"""Runs once for real what made-up GPUs have shown so far, and writes what was seen.

  PYTHONPATH=exporters:. python3 -m tests.device [DIRECTORY [PART ...]]

It needs PyTorch for CUDA, nvidia-ml-py and a C compiler; several ranks share one GPU.  Writes
DIRECTORY/CARD.md, and beside it captures that tests read.  It says what cannot be run here, and
why.  All parts take eight minutes; they change no setting of a GPU, and leave no process.  The last
makes a GPU write where nothing is mapped, which ends that one process (XID 31).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from statistics import fmean, quantiles

import psutil

from stagewatch.core.errors import StagewatchError
from stagewatch.gpu.directory import GpuDirectory
from stagewatch.gpu.reader import GpuReader
from stagewatch.gpu.readings import METRICS, parse
from stagewatch.gpu.recording import anonymous, record
from stagewatch.inspect.gpu_dump import dump
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.nccl.layout import FLIGHT_RECORDER, PLUGIN, RAS
from stagewatch.run.command import INSPECTOR
from stagewatch_nccl import build
from tests.device import BAD_ADDRESS, GPU_BUSY, NEVER_CALLS, NO_MEMORY, NOTHING, VICTIM
from tests.device.jobs import RANKS, ROOT, Job
from tests.device.smi import asked, compared
from tests.node_agent import NodeAgent
from tests.waiting import wait_for

INSPECTOR_LIBRARY = "INSPECTOR"
"""A variable with the file of NCCL Inspector, where there is one."""
TIERS = ("fast", "medium", "slow")
STEPS = 300
"""Of a job that is timed."""
BUSY_STEPS, AGENT_SECONDS = 1 << 20, 30.0
"""Of a job that outlasts the agent's measurement, and for how long that takes."""
LOADS = {
    "idle": "a = torch.zeros(1, device='cuda'); go = lambda: time.sleep(0.1)",
    "works": "a = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16); go = lambda: a @ a",
    "spins": "go = lambda: torch.cuda._sleep(1 << 28)",
    "moves": "a = torch.empty(1 << 28).pin_memory(); b = torch.empty(1 << 28, device='cuda')\n"
    "go = lambda: b.copy_(a, non_blocking=True)",
}
"""Programs that do each with a GPU, again and again."""
GOES = """
import time, torch
{}
go()
torch.cuda.synchronize()
print("goes", flush=True)
while True:
    go()
    torch.cuda.synchronize()
"""
FRAMES = 13
"""Of each program in the capture, one a second."""
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
Part = Callable[[Path, Path], Lines]
"""Works in the first directory, and leaves captures in the second."""


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


def versions(directory: Path, into: Path) -> Lines:
    """The card, the driver, CUDA, PyTorch and NCCL."""
    needs_gpu()
    code = "import torch, platform; p = torch.cuda.get_device_properties(0); print(p.name, '|', "
    code += "torch.__version__, '|', torch.version.cuda, '|', torch.cuda.nccl.version(), '|', "
    code += "platform.python_version())"
    yield "| card | PyTorch | CUDA | NCCL | Python |\n| --- | --- | --- | --- | --- |"
    yield f"| {_python(code).strip()} |"
    with closing(GpuReader()) as reader:
        yield f"\nDriver {reader.read(TIERS)['driver']}."


def nvml(directory: Path, into: Path) -> Lines:
    """What the agent reads of the card, field by field beside nvidia-smi, and what it lacks."""
    if shutil.which("nvidia-smi") is None:
        raise NotHere("there is no nvidia-smi")
    with closing(GpuReader()) as reader:
        reader.read(TIERS)
        time.sleep(1.5)  # profiling compares two looks
        said, frame = asked(), reader.read(TIERS)
        full = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, check=False).stdout
    (into / "nvidia-smi.xml").write_bytes(full)
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


def capture(directory: Path, into: Path) -> Lines:
    """What the agent says that a GPU does, beside what a program does with it, and all readings."""
    needs_gpu()
    comment = f"{_card()}: {FRAMES} frames of each of {', '.join(LOADS)}"
    lines: list[str] = []
    yield "| a program | the agent says | power, SM, tensor, DRAM |\n| --- | --- | --- |"
    for name, program in LOADS.items():
        gpus = GpuDirectory()
        with _goes(program) as process, closing(GpuReader()) as reader:
            reader.read(TIERS)
            for line in record(reader, FRAMES, 1.0, comment):
                lines += [line] if "tiers" in line or not lines else []
                for tier, rows in json.loads(line).get("tiers", {}).items():
                    gpus.update(tier, rows["gpus"])
            said, held = gpus.state(gpus.gpus()[0].uuid), gpus.of_process(process.pid)
        last = json.loads(lines[-1])["tiers"]["fast"]["gpus"][0]["values"]
        names = ("power_watts", "sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")
        shown = ", ".join(f"{last.get('gpu_' + one, float('nan')):.3g}" for one in names)
        yield f"| {name} | {said} | {shown} |"
    (into / "capture.jsonl").write_text("\n".join(lines) + "\n")
    yield f"\nThe last process's GPU by NVML: {held or 'none'}."


def waits(directory: Path, into: Path) -> Lines:
    """Waits for the device, as the client counts them, and what counting costs."""
    needs_gpu()
    record = directory / "waits"
    record.mkdir()
    waited, hooked, plain = map(float, _python(WAITS, STAGEWATCH_DIR=str(record)).split())
    yield f"A program measured {waited:.3f} s in `torch.cuda.synchronize()`."
    yield f"`item()` takes {hooked:.2f} us with a record, {plain:.2f} us without one."


def hang(what: str, witnesses: set[str]) -> Part:
    """A job of ranks that share the GPU, one of which holds up the others."""

    def part(directory: Path, into: Path) -> Lines:
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
            job.keep(into)
            if on == "cpu":
                yield "PyTorch sees no GPU: on gloo, where only the program tells of its calls."
            else:
                yield f"Of {', '.join(sorted(asked))} told: {', '.join(sorted(told)) or 'none'}."
            if verdict is None:
                yield f"No verdict. Rank 0 wrote:\n\n```\n{job.said(0)}\n```"
                return
            yield from _readings() if on == "cuda" else ()
            right = {rank.rank for rank in verdict.culprits} == {VICTIM}
            yield f"\n> {sentence(verdict)}\n\nThat is {'right' if right else 'NOT right'}."
            if what == GPU_BUSY:
                dumped = list(map(str, dump([verdict]))) or ["nobody was at fault"]
                yield "\nThe core dump: " + "; ".join(dumped)

    return part


def costs(directory: Path, into: Path) -> Lines:
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
    for file in sorted(directory.glob("inspector/*")):
        (into / f"inspector-{len(file.name)}-{file.name[-40:]}").write_bytes(file.read_bytes())
        break


def qualifies(directory: Path, into: Path) -> Lines:
    """`stagewatch qualify`, twice: beside no past, and with a GPU too few."""
    needs_gpu()
    for gpus in ("1", "2"):
        more = ("--history", str(directory / "history.json"), "--storage", str(directory))
        yield from _said("qualify", "--python", sys.executable, "--gpus", gpus, *more)


def agent(directory: Path, into: Path) -> Lines:
    """The node agent beside ranks that train: what it costs, and its page."""
    needs_gpu()
    agent = NodeAgent(
        directory,
        *("--collector.kmsg.state-file", str(directory / "kmsg.json")),
        *("--collector.incidents.dir", str(directory / "agent-incidents")),
    )
    with closing(Job(directory, "trains", "cuda", STAGEWATCH_DIR=str(agent.ranks))) as job:
        job.start(BUSY_STEPS, NOTHING, 0)
        agent.start()
        try:
            wait_for(lambda: agent.value("rl_rank_step", rank="0"), "rank 0 trains", 60)
            family = [psutil.Process(agent.process.pid)]
            family += family[0].children(recursive=True)
            before, began, took = _cpu(family), time.monotonic(), []
            while time.monotonic() - began < AGENT_SECONDS:
                asked = time.perf_counter()
                agent.get("/metrics")
                took.append(1000 * (time.perf_counter() - asked))
                time.sleep(0.2)
            share = (_cpu(family) - before) / (time.monotonic() - began)
            memory = sum(one.memory_full_info().pss for one in family) / (1 << 20)
            yield (
                f"{100 * share:.2f} % of a core and {memory:.0f} MiB in {len(family)} processes; "
                f"a scrape took {quantiles(took, n=100)[49]:.1f} ms, p99 "
                f"{quantiles(took, n=100)[98]:.1f} ms, of {len(took)}."
            )
            (into / "page.prom").write_text(anonymous(agent.get("/metrics")[1]))
        finally:
            agent.stop()
        yield f"\nRank 0 wrote last: `{job.said(0).split()[-1:]}`."


def deaths(directory: Path, into: Path) -> Lines:
    """What `stagewatch run` says of a rank that dies of its GPU, beside the kernel log."""
    on = device()
    agent = NodeAgent(directory, "--collector.kmsg.state-file", str(directory / "kmsg.json"))
    agent.start()
    try:
        for what in (NO_MEMORY, BAD_ADDRESS) if on == "cuda" else (NOTHING,):
            launch = ("-m", "torch.distributed.run", "--nproc-per-node", str(RANKS))
            command = (sys.executable, *launch, "-m", "tests.device.rank", "20", what, "12")
            yield f"{what}:\n"
            plugin = str(build(directory / "libnccl-profiler-stagewatch.so"))
            given = {
                "DEVICE": on,
                "NCCL_PROFILER_PLUGIN": plugin,
                "STAGEWATCH_DIR": str(agent.ranks),
            }
            yield from _said("run", "--", *command, last=12, **given)
        yield "The agent's XIDs:\n\n```"
        with contextlib.suppress(TimeoutError, AssertionError):
            wait_for(lambda: agent.value("gpu_xid_errors_total"), "an XID", 10)
        page = agent.get("/metrics")[1]
        yield "\n".join(line for line in page.splitlines() if line.startswith("gpu_xid")) + "\n```"
    finally:
        agent.stop()


PARTS: dict[str, Part] = {
    "The machine": versions,
    "NVML beside nvidia-smi": nvml,
    "A rank that never calls": hang(NEVER_CALLS, {PLUGIN, FLIGHT_RECORDER, RAS}),
    "A GPU that is busy before the collective": hang(GPU_BUSY, {PLUGIN, FLIGHT_RECORDER, RAS}),
    "Waits for the device": waits,
    "What a GPU does": capture,
    "The agent": agent,
    "Qualification": qualifies,
    "What the plugin costs": costs,
    "Deaths": deaths,
}


def main(arguments: Sequence[str]) -> None:
    """Run all parts, or those that are named."""
    into = Path(arguments[0]) if arguments else Path("build/device")
    into.mkdir(parents=True, exist_ok=True)
    text = [f"# Seen on {_card()}\n\n`python3 -m tests.device`, {RANKS} ranks on one GPU.\n"]
    file = into / f"{re.sub(r'[^A-Za-z0-9]+', '-', _card())}.md"
    for name, part in PARTS.items():
        if arguments[1:] and name not in arguments[1:]:
            continue
        at = len(text)
        text.append(f"## {name}\n")
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="stagewatch-device-", dir="/tmp") as directory:
            try:
                text.extend(part(Path(directory), into))
            except NotHere as reason:
                text.append(f"Not run: {reason}.")
            except Exception as error:
                text.append(f"FAILED: {type(error).__name__}: {error}")
                traceback.print_exc()
        text.append(f"\n({time.monotonic() - begun:.0f} s)\n")
        file.write_text("\n".join(text))
        print("\n".join(text[at:]), flush=True)
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
def _goes(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of `LOADS`, once its GPU does what it asks for."""
    command = [sys.executable, "-c", GOES.format(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def _readings() -> Lines:
    """What the GPU shows now, in the mean of some seconds."""
    shown: dict[str, list[float]] = {}
    with closing(GpuReader()) as reader:
        for _ in range(6):
            time.sleep(1.0)
            values = reader.read(("fast",))["tiers"]["fast"]["gpus"][0]["values"]
            for key in values:
                shown.setdefault(key, []).append(values[key])
    yield "\nMeanwhile the GPU showed (mean of 6 s): " + ", ".join(
        f"{key} {fmean(those):.4g}" for key, those in shown.items() if not key.endswith("total")
    )


def _said(*arguments: str, last: int = 40, **environ: str) -> Lines:
    """The last lines of what a command of ours prints, and its exit status."""
    path = {"PYTHONPATH": f"{ROOT / 'exporters'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "stagewatch.cli", *arguments],
        env=os.environ | path | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    yield f"`stagewatch {' '.join(arguments[:3])} …`: exit status {done.returncode}\n\n```"
    yield "\n".join(done.stdout.splitlines()[-last:]) + "\n```\n"


def _cpu(family: Sequence[psutil.Process]) -> float:
    """CPU seconds."""
    return sum(sum(one.cpu_times()[:2]) for one in family)


if __name__ == "__main__":
    main(sys.argv[1:])
