"""The node agent's GPU side beside nvitop-exporter, over the same fake driver, at the same time.

The driver's calls cost what they have been measured to cost elsewhere; `COSTS` says which and
where.  That work burns CPU in both exporters alike, since the real driver does it in the caller.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path

import psutil

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port, only, wait_for
from tests.bench.table import percentile, row
from tests.fakes.nvml import SOURCES, FakeNvml, build

PEER = "nvitop-exporter==1.7.2"
SETTLE_SECONDS = 15
WATCH_SECONDS = 60
SCRAPES = 400

COSTS: Mapping[str, int] = {
    # Microseconds, medians from https://github.com/flightlessmango/MangoHud/pull/2104
    "spin.nvmlDeviceGetComputeRunningProcesses_v3": 4500,
    "spin.nvmlDeviceGetGraphicsRunningProcesses_v3": 4500,
    "spin.nvmlDeviceGetFanSpeed": 137,
    "spin.nvmlDeviceGetMemoryInfo_v2": 12,
    "spin.nvmlDeviceGetUtilizationRates": 3,
    # 20 ms a direction, asleep, as reported of nvidia_gpu_exporter.
    "delay.nvmlDeviceGetPcieThroughput": 20000,
}
ASSUMED = 12
"""Microseconds for every other call of a device: nobody has published theirs."""


def main() -> None:
    """Run both and print their figures."""
    directory = Path(tempfile.mkdtemp(prefix="stagewatch-bench-"))
    try:
        with Children() as children:
            _measure(directory, children)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measure(directory: Path, children: Children) -> None:
    fake = FakeNvml(build(directory / "nvml"), directory)
    fake.replace({key: str(value) for key, value in {**_assumed(), **COSTS}.items()})
    environ = {**os.environ, **fake.environ}
    ours, theirs = free_port(), free_port()
    families = {
        "agent": children.start(
            [sys.executable, "-m", "stagewatch.cli", "node", "--listen", f"127.0.0.1:{ours}",
             "--collector.kmsg.state-file", str(directory / "kmsg.json"),
             *only(("gpu", "gpu_jobs", "kmsg"))],
            environ=environ, log=directory / "agent.log",
        ).pid
    }  # fmt: skip
    ports = {"agent": ours}
    peer = _peer()
    if peer is not None:
        families["nvitop"] = children.start(
            [str(peer), "--bind-address", "127.0.0.1", "--port", str(theirs)],
            environ=environ, log=directory / "nvitop.log",
        ).pid  # fmt: skip
        ports["nvitop"] = theirs
    for name, port in ports.items():
        if not wait_for(lambda port=port: b"GPU-fa4e" in _scrape(port), 60):
            raise SystemExit(f"{name} does not answer: {(directory / f'{name}.log').read_text()}")
    time.sleep(SETTLE_SECONDS)
    print(f"every call of a device {ASSUMED} us, processes 4500 us, PCIe throughput 20 ms")
    _resources(families)
    for name, port in ports.items():
        _latency(name, port)
        _content(name, port)
    _check(environ, ours)


def _assumed() -> dict[str, int]:
    text = "".join(file.read_text() for file in SOURCES.glob("*.c"))
    names = {part.split("(")[0] for part in text.split("EXPORT int ")[1:]}
    names |= {part.split(",")[0] for part in text.split("\nREADING(")[1:]}
    return {f"spin.{name}": ASSUMED for name in names if name.startswith("nvmlDeviceGet")}


def _peer() -> Path | None:
    """The other exporter, installed for the occasion where it is not there."""
    if (found := shutil.which("nvitop-exporter")) is not None:
        return Path(found)
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stagewatch-bench"
    command = home / "bin" / "nvitop-exporter"
    if not command.exists():
        venv.create(home, with_pip=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", PEER]
        if subprocess.run(pip, capture_output=True, check=False).returncode:
            print(f"{PEER} cannot be installed here: measured without it")
            return None
    return command


def _resources(pids: Mapping[str, int]) -> None:
    families = {
        name: [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for name, pid in pids.items()
    }
    before, began = {name: _cpu(family) for name, family in families.items()}, time.monotonic()
    time.sleep(WATCH_SECONDS)
    seconds = time.monotonic() - began
    for name, family in families.items():
        share = (_cpu(family) - before[name]) / seconds
        budget = 1.0 if name == "agent" else None
        row(f"{name}: CPU, {len(family)} processes", share * 100, "%core", budget)
        row(f"{name}: CPU per minute", share * 60, "s")
        memory = sum(process.memory_full_info().pss for process in family)
        row(f"{name}: memory (PSS)", memory / 2**20, "MiB", 60 if name == "agent" else None)
    if "agent" in pids:
        reader = families["agent"][-1]
        row(
            "agent: of which the reader process (PSS)", reader.memory_full_info().pss / 2**20, "MiB"
        )


def _latency(name: str, port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    times = []
    for _ in range(SCRAPES):
        began = time.perf_counter()
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        connection.getresponse().read()
        times.append(time.perf_counter() - began)
        time.sleep(0.01)
    connection.close()
    row(f"{name}: scrape p50", percentile(times, 0.5) * 1000, "ms")
    row(
        f"{name}: scrape p99",
        percentile(times, 0.99) * 1000,
        "ms",
        5.0 if name == "agent" else None,
    )


def _content(name: str, port: int) -> None:
    lines = _scrape(port).decode().splitlines()
    about = [line for line in lines if "GPU-fa4e" in line or 'uuid="MIG' in line]
    row(f"{name}: distinct metrics about GPUs", len({line.split("{")[0] for line in about}), "")
    row(f"{name}: series about GPUs", len(about), "")


def _check(environ: Mapping[str, str], port: int) -> None:
    """`stagewatch check`."""
    command = [sys.executable, "-m", "stagewatch.check.command", "--agent", f"127.0.0.1:{port}"]
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, env=dict(environ), capture_output=True, check=False)
        times.append(time.perf_counter() - began)
    row("check, asking the agent", max(times), "s", 2.0)


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _scrape(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    except OSError:
        return b""
    finally:
        connection.close()
