"""Gathers what the checks judge: what the agent knows, the PCI bus and the mounts."""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import re
import stat
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.core.access import Access
from stagewatch.core.agent_page import fetch
from stagewatch.core.errors import ConfigError, SourceError
from stagewatch.lemons.notice import Reader
from stagewatch.record import DEFAULT_DIRECTORY

MAX_TEXT = 64 << 20
_DISPLAY_CLASSES = ("0x0300", "0x0302")
_NVIDIA = "0x10de"


_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True, slots=True)
class Sample:
    """The labels and the value of one series."""

    labels: dict[str, str]
    value: float

    @property
    def uuid(self) -> str:
        """The GPU's UUID."""
        return self.labels.get("uuid", "")

    def label(self, name: str) -> str:
        """The value of a label; empty for none."""
        return self.labels.get(name, "")

    @property
    def gpu(self) -> str:
        """The GPU of the series, as an operator would call it."""
        mig = f" instance {self.labels['mig']}" if self.labels.get("mig") else ""
        return f"GPU {self.labels.get('gpu') or self.labels.get('pci_bus_id') or '?'}{mig}"


class Series:
    """All series by metric name."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Sample]] = {}

    def add(self, name: str, sample: Sample) -> None:
        """Add a series of a metric."""
        self._by_name.setdefault(name, []).append(sample)

    def __call__(self, name: str, **labels: str) -> list[Sample]:
        """The series of a metric whose labels include these."""
        return [
            sample
            for sample in self._by_name.get(name, ())
            if labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the first such series."""
        return next((sample.value for sample in self(name, **labels)), None)

    def nonzero(self, name: str, **labels: str) -> list[Sample]:
        """The series whose value is not 0."""
        return [sample for sample in self(name, **labels) if sample.value]


def parse(text: str) -> Series:
    """Read Prometheus' text format; other lines and numbers that are not finite are passed over."""
    series = Series()
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        labels = {
            name: re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), value)
            for name, value in _LABEL.findall(match[2] or "")
        }
        with contextlib.suppress(ValueError):
            if math.isfinite(value := float(match[3])):
                series.add(match[1], Sample(labels, value))
    return series


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the checks judge."""

    series: Series
    now: float
    """Unix time, seconds."""
    on_bus: int
    """NVIDIA GPUs on the PCI bus."""
    mounts: dict[str, str] = field(default_factory=dict)
    """The problem of each directory that must be mounted; empty where there is none."""
    lemon: str = ""
    """Why this node is a lemon, or why that is unknown; empty if it is none."""
    problem: str = ""
    """Why the agent gave no facts, where it did not."""


def gather(
    agent: str,
    access: Access,
    mounts: Iterable[str],
    timeout: float,
    sys: Path = Path("/sys"),
    *,
    user: str = "",
    lemons: str = "",
    node: str = "",
) -> Facts:
    """Gather the facts within `timeout` seconds; `agent` is the URL of this node's agent, which
    `user` runs, and `lemons` a file that may name this `node`.

    Raises `ConfigError` where a file that `access` names is of no use, or there is no such user.
    """
    users = agent_users(user)
    limit = time.monotonic() + timeout
    probes = {path: _probe(path) for path in mounts}
    reader = Reader(Path(lemons)) if lemons else None
    problem, series = "", Series()
    try:
        left = max(0.05, (limit - time.monotonic()) / 2)
        page = fetch(
            agent, "/metrics", access, left, MAX_TEXT, accept="text/plain",
            users=users, in_all=True,
        )  # fmt: skip
        series = parse(page.decode("utf-8", "replace"))
    except SourceError as error:
        problem = str(error)
    outcomes = {path: _outcome(path, probe, limit) for path, probe in probes.items()}
    lemon = _lemon(reader, node, limit) if reader else ""
    for probe in probes.values():
        probe.kill()
    return Facts(series, time.time(), gpus_on_bus(sys), outcomes, lemon, problem)


def _lemon(reader: Reader, node: str, limit: float) -> str:
    """What a file of lemons says about this node."""
    name = node or os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    try:
        reason = reader.reason(name, limit)
    except SourceError as error:
        return str(error)
    finally:
        reader.close()
    return f"{name} is a lemon: {reason}" if reason else ""


def agent_users(name: str, records: Path = Path(DEFAULT_DIRECTORY)) -> set[int]:
    """Users who may run this node's agent: root, the caller, and `name`.

    If none is given, that is the user to whom root has given the directory of records, as the
    installer and the image's entry point do.  Raises `ConfigError` where there is no such user.
    """
    users = {0, os.geteuid()}
    if name:
        try:
            users.add(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except KeyError as error:
            raise ConfigError(f"--agent-user = {name!r}: there is no such user") from error
    else:
        with contextlib.suppress(OSError):
            above, here = records.parent.lstat(), records.lstat()
            if above.st_uid == 0 and not above.st_mode & 0o022 and stat.S_ISDIR(here.st_mode):
                users.add(here.st_uid)
    return users


def gpus_on_bus(sys: Path) -> int:
    """The number of NVIDIA's display and 3D controllers."""
    count = 0
    for device in (sys / "bus/pci/devices").glob("*"):
        with contextlib.suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
            count += vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASSES)
    return count


def _probe(path: str) -> subprocess.Popen[bytes]:
    """Look at a filesystem in another process: where it hangs, that can only be left behind."""
    return subprocess.Popen(
        ["stat", "--file-system", "--format=%T", "--", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _outcome(path: str, probe: subprocess.Popen[bytes], limit: float) -> str:
    if path not in mount_points():
        return f"{path} is not mounted"
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = probe.wait(max(0.05, limit - time.monotonic()))
        return f"{path} cannot be read" if status else ""
    return f"{path} does not answer"


def mount_points(table: Path = Path("/proc/self/mounts")) -> frozenset[str]:
    """Every mount point; reading the table never touches a filesystem."""
    lines = table.read_text("utf-8", "surrogateescape").splitlines()
    return frozenset(
        re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), line.split(" ")[1])
        for line in lines
        if line.count(" ") >= 2
    )
