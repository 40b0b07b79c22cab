"""Gathers what the checks judge: from the agent, or without one from the node itself."""

from __future__ import annotations

import contextlib
import http.client
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.check.options import CheckOptions
from stagewatch.check.series import One, Series, from_samples, parse
from stagewatch.core.collector import Collector
from stagewatch.core.errors import NoData, StagewatchError

MAX_TEXT = 64 << 20
_DISPLAY_CLASSES = ("0x0300", "0x0302")
_NVIDIA = "0x10de"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the checks judge."""

    series: Series
    agent: bool
    """Whether an agent gave them; otherwise they are of this moment alone."""
    now: float
    """Unix time, seconds."""
    on_bus: int
    """NVIDIA GPUs on the PCI bus."""
    errors: dict[str, str] = field(default_factory=dict)
    """Why a part could not be read, by collector."""
    mounts: dict[str, str] = field(default_factory=dict)
    """What is wrong with each directory that must be mounted; empty where nothing is."""


def gather(options: CheckOptions, sys: Path = Path("/sys")) -> Facts:
    """Everything, within the options' time-out."""
    limit = time.monotonic() + options.timeout
    wanted = () if "mounts" in options.skip else options.mounts
    probes = {path: _probe(path) for path in wanted}
    errors: dict[str, str] = {}
    text = _ask_agent(options.agent, limit)
    series = Series(_ask_node(limit, errors)) if text is None else parse(text)
    return Facts(
        series,
        text is not None,
        time.time(),
        gpus_on_bus(sys),
        errors,
        {path: _outcome(path, probe, limit) for path, probe in probes.items()},
    )


def gpus_on_bus(sys: Path) -> int:
    """NVIDIA's display and 3D controllers."""
    count = 0
    for device in (sys / "bus/pci/devices").glob("*"):
        with contextlib.suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
            count += vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASSES)
    return count


def _ask_agent(address: tuple[str, int], limit: float) -> str | None:
    host, port = address
    left = max(0.05, (limit - time.monotonic()) / 2)
    connection = http.client.HTTPConnection(host or "127.0.0.1", port, timeout=left)
    try:
        connection.request("GET", "/metrics", headers={"Accept": "text/plain"})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            return None
        return answer.read(MAX_TEXT).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _ask_node(limit: float, errors: dict[str, str]) -> Iterator[tuple[str, One]]:
    """The same collectors as the agent's, once each."""
    from stagewatch.clock.collector import ClockCollector
    from stagewatch.gpu.collector import GpuCollector
    from stagewatch.gpu.reader import GpuReader
    from stagewatch.gpu.xids import XidLedger
    from stagewatch.kernel_log.collector import KmsgCollector
    from stagewatch.kernel_log.reader import Kmsg

    xids = XidLedger()
    left = max(0.1, limit - time.monotonic() - 0.3)
    tiers = dict.fromkeys(("fast", "medium", "slow"), 1.0)
    collectors: dict[str, Collector] = {
        "gpu": GpuCollector(
            GpuReader(timeout=left, start_timeout=left), source="nvml", intervals=tiers, xids=xids
        ),
        "kmsg": KmsgCollector(Kmsg(), xids),
        "clock": ClockCollector(),
    }
    for name, collector in collectors.items():
        try:
            yield from from_samples(collector.collect())
        except NoData:
            pass
        except StagewatchError as error:
            errors[name] = str(error)
        finally:
            collector.close()


def _probe(path: str) -> subprocess.Popen[bytes]:
    """Look at the filesystem in another process: one that hangs can only be left behind."""
    return subprocess.Popen(
        ["stat", "--file-system", "--format=%T", "--", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _outcome(path: str, probe: subprocess.Popen[bytes], limit: float) -> str:
    if path not in mount_points():
        probe.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            probe.wait(0.1)
        return f"{path} is not mounted"
    try:
        status = probe.wait(max(0.05, limit - time.monotonic()))
    except subprocess.TimeoutExpired:
        probe.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            probe.wait(0.1)
        return f"{path} does not answer"
    return f"{path} cannot be read" if status else ""


def mount_points(table: Path = Path("/proc/self/mounts")) -> frozenset[str]:
    """Every mount point; reading the table never touches a filesystem."""
    lines = table.read_text("utf-8", "surrogateescape").splitlines()
    return frozenset(
        re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), line.split(" ")[1])
        for line in lines
        if line.count(" ") >= 2
    )
