"""RDMA ports (InfiniBand, RoCE, EFA) out of `/sys/class/infiniband`.

See Documentation/ABI/stable/sysfs-class-infiniband.  `counters` are those of the InfiniBand
specification; `hw_counters` are the driver's own, of a port or, with EFA, also of the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.host.procfs import read_bytes

_RATE = re.compile(r"([\d.]+) Gb/sec")
_STATE = re.compile(r"\d+: *(\w+)")


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port; what cannot be read is empty, `None` or left out."""

    device: str
    port: str
    link_layer: str
    state: str
    """DOWN, INIT, ARMED, ACTIVE ..., in lower case."""
    physical_state: str
    """LinkUp, Polling, Disabled ..., in lower case."""
    rate: float | None
    """Bytes a second, as the link runs now."""
    model: str
    board: str
    firmware: str
    driver: str
    counters: dict[str, int] = field(default_factory=dict)
    hardware_counters: dict[str, int] = field(default_factory=dict)


def read_ports(sys: Path) -> Iterator[RdmaPort]:
    """Every port of every RDMA device."""
    for device in _entries(sys / "class" / "infiniband"):
        for port in _entries(device / "ports"):
            yield _port(device, port)


def _port(device: Path, port: Path) -> RdmaPort:
    rate = _RATE.match(_text(port / "rate"))
    state, physical = _STATE.match(_text(port / "state")), _STATE.match(_text(port / "phys_state"))
    try:
        driver = (device / "device" / "driver").readlink().name
    except OSError:
        driver = ""
    return RdmaPort(
        device=device.name,
        port=port.name,
        link_layer=_text(port / "link_layer"),
        state=state[1].lower() if state else "",
        physical_state=physical[1].lower() if physical else "",
        rate=float(rate[1]) * 1e9 / 8 if rate else None,
        model=_text(device / "hca_type"),
        board=_text(device / "board_id"),
        firmware=_text(device / "fw_ver"),
        driver=driver,
        counters=_counters(port / "counters"),
        hardware_counters=_counters(port / "hw_counters") or _counters(device / "hw_counters"),
    )


def _counters(directory: Path) -> dict[str, int]:
    """Numbers by file name; `N/A (no PMA)` and the like are left out."""
    found = {}
    for path in _entries(directory):
        text = _text(path)
        if text.isdecimal():
            found[path.name] = int(text)
    return found


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    return (read_bytes(str(path), 4096) or b"").decode("ascii", "replace").strip()
