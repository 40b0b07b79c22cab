"""RDMA ports (InfiniBand, RoCE, EFA): bytes, errors, state, rate, flaps and congestion.

See Documentation/ABI/stable/sysfs-class-infiniband.  `counters` are those of the InfiniBand
specification; `hw_counters` are the driver's own, of a port or, with EFA, also of the device.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.host.procfs import number, read_bytes

_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) Gb/sec", re.ASCII)
_STATE = re.compile(r"\d+: *(\w+)")


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
        self._best: dict[tuple[str, ...], float] = {}
        self._states: dict[Path, tuple[str, str]] = {}
        self._changes: Counter[Path] = Counter()

    def collect(self) -> Samples:
        devices = _entries(self._sys / "class" / "infiniband")
        ports = [(device, port) for device in devices for port in _entries(device / "ports")]
        if not ports:
            raise NoData("no RDMA device")
        out = Samples()
        rates = {port: _rate(port) for _, port in ports}
        for device, port in ports:
            kind = _kind(device, port)
            self._best[kind] = max(self._best.get(kind, 0.0), rates[port] or 0.0)
        for device, port in ports:
            labels = device.name, port.name
            self._state(out, port, labels)
            out.add(RATE, rates[port], *labels)
            out.add(EXPECTED, self._best[_kind(device, port)] or None, *labels)
            # Some drivers count for the device, or for both: of a single port, its own counts.
            alone = len(_entries(device / "ports")) == 1
            hardware = _read_counters(device / "hw_counters") if alone else {}
            hardware |= _read_counters(port / "hw_counters")
            _counters(out, _read_counters(port / "counters"), hardware, labels)
        return out

    def _state(self, out: Samples, port: Path, labels: tuple[str, str]) -> None:
        states = _state(port / "state"), _state(port / "phys_state")
        if states[0]:
            out.add(STATE, 1, *labels, states[0])
        self._changes[port] += self._states.setdefault(port, states) != states
        self._states[port] = states
        out.add(CHANGES, self._changes[port], *labels)


def _state(file: Path) -> str:
    """DOWN, ACTIVE, LinkUp, Polling ..., in lower case; empty where it cannot be read."""
    found = _STATE.match(_text(file))
    return found[1].lower() if found else ""


def _rate(port: Path) -> float | None:
    """The present rate of the link in bytes per second."""
    found = _RATE.match(_text(port / "rate"))
    return float(found[1]) * 1e9 / 8 if found else None


def _kind(device: Path, port: Path) -> tuple[str, ...]:
    """A key that ports of equal speed share."""
    model = _text(device / "hca_type")
    if not model:
        with contextlib.suppress(OSError):
            model = (device / "device" / "driver").readlink().name
    return model, _text(device / "board_id"), _text(port / "link_layer")


def _counters(
    out: Samples, counters: dict[str, int], hardware: dict[str, int], labels: tuple[str, str]
) -> None:
    for direction, words, count in (
        ("sent", "port_xmit_data", "tx_bytes"),
        ("received", "port_rcv_data", "rx_bytes"),
    ):
        if words in counters:
            out.add(BYTES, counters[words] * _WORD, *labels, direction)
        else:  # EFA has none of the specification's counters
            out.add(BYTES, hardware.get(count), *labels, direction)
    for name, value in (hardware | counters).items():
        if name == "link_downed":
            out.add(DOWNS, value, *labels)
        elif _CONGESTION.fullmatch(name):
            out.add(CONGESTION, value, *labels, name)
        elif _ERROR.fullmatch(name):
            out.add(ERRORS, value, *labels, name)


SPEC = Declaration(
    name="infiniband",
    help="InfiniBand, RoCE and EFA ports: bytes, errors, state, rate, congestion",
    interval=5.0,
    options=NoOptions,
)
