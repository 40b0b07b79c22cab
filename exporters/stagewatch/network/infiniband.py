"""RDMA ports (InfiniBand, RoCE, EFA): bytes, errors, state, rate, flaps and congestion.

See Documentation/ABI/stable/sysfs-class-infiniband.  `counters` are those of the InfiniBand
specification; `hw_counters` are the driver's own, of a port or, with EFA, also of the device.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.host.procfs import number, read_bytes

_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) Gb/sec", re.ASCII)
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
    driver: str
    counters: dict[str, int] = field(default_factory=dict)
    hardware_counters: dict[str, int] = field(default_factory=dict)


def read_ports(sys: Path) -> Iterator[RdmaPort]:
    """Every port of every RDMA device."""
    for device in _entries(sys / "class" / "infiniband"):
        ports = _entries(device / "ports")
        # Some drivers count for the device, or for both; of a single port, those are its counts.
        shared = _read_counters(device / "hw_counters") if len(ports) == 1 else {}
        for port in ports:
            yield _port(device, port, shared)


def _port(device: Path, port: Path, shared: dict[str, int]) -> RdmaPort:
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
        driver=driver,
        counters=_read_counters(port / "counters"),
        hardware_counters=shared | _read_counters(port / "hw_counters"),
    )


def _read_counters(directory: Path) -> dict[str, int]:
    """Numbers by file name; `N/A (no PMA)` and the like are left out."""
    found = {}
    for path in _entries(directory):
        text = _text(path)
        if text.isdecimal():
            with contextlib.suppress(ValueError):
                found[path.name] = number(text)
    return found


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    return (read_bytes(str(path), 4096) or b"").decode("ascii", "replace").strip()


_PORT = ("device", "port")

STATE = gauge(
    "net_infiniband_state",
    "1 for the logical state in force (active, down, init, armed ...).",
    (*_PORT, "state"),
)
CHANGES = counter(
    "net_infiniband_state_changes_total",
    "Changes of either state that the agent has seen.",
    _PORT,
)
RATE = gauge("net_infiniband_rate_bytes_per_second", "Speed the link runs at now.", _PORT)
EXPECTED = gauge(
    "net_infiniband_expected_rate_bytes_per_second",
    "Speed the link should have: the highest that a port of the same model and board on this node "
    "has had since the agent began.",
    _PORT,
)
BYTES = counter("net_infiniband_bytes_total", "Bytes by direction.", (*_PORT, "direction"))
DOWNS = counter("net_infiniband_link_downs_total", "Times the link went down (link_downed).", _PORT)
ERRORS = counter(
    "net_infiniband_errors_total",
    "Errors, drops, retransmissions and timeouts, by the name of the kernel's counter.",
    (*_PORT, "error"),
)
CONGESTION = counter(
    "net_infiniband_congestion_total",
    "Signs of congestion, by the name of the kernel's counter: port_xmit_wait in ticks with data "
    "and no credit, others in packets.",
    (*_PORT, "kind"),
)

_WORD = 4
"""port_xmit_data and port_rcv_data count words of four bytes."""
_CONGESTION = re.compile(r"port_xmit_wait|(?!num_|.*err).*(cnp|ecn|congest).*", re.IGNORECASE)
_ERROR = re.compile(
    r".*(err|drop|discard|timeout|retrans|retry|retries|exceed|out_of_|overrun|oflow|overflow|"
    r"unresponsive|impaired|link_error_recovery|integrity|slow_restart|dup|nak|oos|icrc|invalid|"
    r"malformed|mismatch|missing|fatal|no_perm|unsup|unaligned|trunc|noroutes).*",
    re.IGNORECASE,
)
"""Names of mlx5, bnxt_re, mana, irdma, efa, hns and rxe in drivers/infiniband."""


class InfinibandCollector(Collector):
    """Every RDMA port of the node."""

    def __init__(self, sys: Path) -> None:
        self._sys = sys
        self._best: dict[tuple[str, str, str], float] = {}
        self._states: dict[tuple[str, str], tuple[str, str]] = {}
        self._changes: dict[tuple[str, str], int] = {}

    def collect(self) -> Samples:
        ports = list(read_ports(self._sys))
        if not ports:
            raise NoData("no RDMA device")
        out = Samples()
        for port in ports:
            kind = (port.model or port.driver, port.board, port.link_layer)
            self._best[kind] = max(self._best.get(kind, 0.0), port.rate or 0.0)
        for port in ports:
            self._port(out, port)
        return out

    def _port(self, out: Samples, port: RdmaPort) -> None:
        labels = (port.device, port.port)
        if port.state:
            out.add(STATE, 1, *labels, port.state)
        states = (port.state, port.physical_state)
        changed = self._states.setdefault(labels, states) != states
        self._states[labels] = states
        self._changes[labels] = self._changes.get(labels, 0) + changed
        out.add(CHANGES, self._changes[labels], *labels)
        out.add(RATE, port.rate, *labels)
        best = self._best[port.model or port.driver, port.board, port.link_layer] or None
        out.add(EXPECTED, best, *labels)
        _counters(out, port, labels)


def _counters(out: Samples, port: RdmaPort, labels: tuple[str, str]) -> None:
    for direction, amount in _bytes(port).items():
        out.add(BYTES, amount, *labels, direction)
    for name, value in (port.hardware_counters | port.counters).items():
        if name == "link_downed":
            out.add(DOWNS, value, *labels)
        elif _CONGESTION.fullmatch(name):
            out.add(CONGESTION, value, *labels, name)
        elif _ERROR.fullmatch(name):
            out.add(ERRORS, value, *labels, name)


def _bytes(port: RdmaPort) -> dict[str, int]:
    """Bytes by direction; EFA has none of the specification's counters."""
    found = {}
    sent, received = port.counters.get("port_xmit_data"), port.counters.get("port_rcv_data")
    hardware = port.hardware_counters
    if sent is not None:
        found["sent"] = sent * _WORD
    elif "tx_bytes" in hardware:
        found["sent"] = hardware["tx_bytes"]
    if received is not None:
        found["received"] = received * _WORD
    elif "rx_bytes" in hardware:
        found["received"] = hardware["rx_bytes"]
    return found


SPEC = Declaration(
    name="infiniband",
    help="InfiniBand, RoCE and EFA ports: bytes, errors, state, rate, congestion",
    interval=5.0,
    options=NoOptions,
)
