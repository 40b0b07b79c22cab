"""Captures of a node: the kernel's log, its counters of NFS and RDMA, the page of dcgm-exporter.

The counts beside the product's come from regular expressions over the raw text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

from stagewatch.kernel_log.lines import parse_nfs, parse_oom, parse_sxid, parse_xid
from stagewatch.network import infiniband
from stagewatch.storage.mountstats import parse_mountstats
from tests.alerts.promtool import failures_of, write
from tests.compatibility.reader import Reader, Value
from tests.exposition import samples

_HEAD = re.compile(r"(?:.*? kernel: |\w+ *:\w+ *: |\d+,\d+,\d+,[^;]*;|<\d+>)?(?:\[[^]]*\] )?")
"""What dmesg, `dmesg --decode`, journalctl and /dev/kmsg put before a message."""


def _kernel_log(shown: str) -> Iterator[Value]:
    texts = [line[_HEAD.match(line).end() :] for line in shown.split("\n")]  # type: ignore[union-attr]
    xids = [error for error in map(parse_xid, texts) if error]
    read = Counter(error.xid for error in xids if not error.plain)
    counted = Counter(map(int, re.findall(r"NVRM: Xid [^\n]*?\): *(\d+)", shown)))
    for xid in sorted(read | counted):
        yield Value(f"XID {xid}", read[xid], counted[xid])
    switches = Counter(error.fatal for error in map(parse_sxid, texts) if error)
    oom = [one for one in map(parse_oom, texts) if one and hasattr(one, "scope")]
    nfs = Counter(line.answers for line in map(parse_nfs, texts) if line)
    for name, found, pattern in (
        ("lines on a GPU off the bus", sum(error.plain for error in xids), "fallen off the bus"),
        ("fatal errors of NVSwitches", switches[True], r"SXid .*: \d+, Fatal"),
        ("other errors of NVSwitches", switches[False], r"SXid .*: \d+, Non-fatal"),
        ("processes killed for memory", len(oom), r"Killed process \d"),
        ("NFS servers that do not respond", nfs[False], "server .* not responding"),
        ("NFS servers that answer again", nfs[True], r"(nfs|lockd): server \S+ OK"),
    ):
        lines = [line for line in shown.split("\n") if re.search(pattern, line)]
        yield Value(name, found, len([line for line in lines if "NVRM: Xid" not in line]))


def _mountstats(shown: str) -> Iterator[Value]:
    mounts = parse_mountstats(shown)
    parts = [part.partition("\n") for part in re.split(r"^device ", shown, flags=re.M)[1:]]
    nfs = {head.split(" mounted on ")[1]: rest for head, _, rest in parts if "fstype nfs" in head}
    calls = [one for mount in mounts for one in (mount.operations or {}).values()]
    rows = [
        [int(number) for number in row.split()]
        for rest in nfs.values()
        for row in re.findall(r"^\s+\w+: ((?:\d+ ?){8,})$", rest, re.M)
    ]
    yield Value("NFS mounts", len(mounts), len(nfs))
    yield Value("operations", sum(one.operations for one in calls), sum(row[0] for row in rows))
    yield Value("retries", sum(one.timeouts for one in calls), sum(row[2] for row in rows))
    yield Value("bytes sent", sum(one.bytes_sent for one in calls), sum(row[3] for row in rows))


def _sysfs(shown: str) -> Iterator[Value]:
    values = dict(re.findall(r"^/sys/(class/infiniband/[\w./-]+):(.*)$", shown, re.M))
    with TemporaryDirectory() as directory:
        for name, value in values.items():
            path = Path(directory, name)
            if ".." not in path.parts:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(value)
        found = infiniband.InfinibandCollector(Path(directory)).collect().families

    def total(what: infiniband.Metric, *last: str) -> float:
        return sum(
            value
            for labels, value in found.get(what, {}).items()
            if labels[2:] == last and isinstance(value, int | float)
        )

    def summed(file: str) -> int:
        return sum(int(value) for value in re.findall(rf"/{file}:(\d+)$", shown, re.M))

    ports = set(re.findall(r"infiniband/([^/]+/ports/\d+)/", shown))
    yield Value("ports", len(found.get(infiniband.CHANGES, ())), len(ports))
    active = len(re.findall(r"/state:\d+: ACTIVE", shown))
    yield Value("active ports", total(infiniband.STATE, "active"), active)
    downs = summed("counters/link_downed")
    yield Value("times that links went down", total(infiniband.DOWNS), downs)
    sent = 4 * summed("counters/port_xmit_data") or summed("hw_counters/tx_bytes")
    yield Value("bytes sent", total(infiniband.BYTES, "sent"), sent)


def _dcgm(shown: str) -> Iterator[Value]:
    """Through the rules that give the exporter's metrics our names: `make rules` writes them."""
    given = {}
    for name, labels, value in samples(shown):
        pairs = ", ".join(f'{key}="{text}"' for key, text in [*labels, ("cluster", "c")])
        if isfinite(value):
            given[f"{name}{{{pairs}}}"] = f"{value!r}x15"
    for name, expression, fields in (
        ("GPUs", "count(count by (uuid) (gpu_info))", r"\w+"),
        ("with a temperature", "count(gpu_temperature_celsius > 0)", r"GPU_TEMP(?:_CELSIUS)?"),
        ("with a power draw", "count(gpu_power_watts > 0)", r"POWER_USAGE|BOARD_POWER_WATTS"),
        ("with an XID", "count(count by (uuid) (gpu_xid_last_timestamp_seconds))", "XID_ERRORS?"),
    ):
        row = rf'^DCGM_FI_DEV_(?:{fields})\{{.*?\bUUID="([^"]+)".*\}} (?!0(?:\.0*)?$)(?!.*e)'
        counted = len(set(re.findall(row, shown, re.M)))
        expected = {"{}": float(counted)} if counted else {}
        with TemporaryDirectory() as directory:
            test = [(expression, "1m", expected)]
            wrong = failures_of(
                write(Path(directory), ["dcgm.rules.yaml"], given, test, interval="5s")
            )
        yield Value(name, " ".join(wrong[0].split()) if wrong else counted, counted)


def _text(read: Callable[[str], Iterator[Value]]) -> Callable[[bytes], Iterator[Value]]:
    return lambda content: read(content.decode(errors="replace"))


READERS = (
    Reader("kernel log", ("dmesg*.txt", "journal*.txt", "kmsg*.txt"), _text(_kernel_log)),
    Reader("nfs", ("mountstats*",), _text(_mountstats)),
    Reader("rdma", ("sysfs*.txt",), _text(_sysfs)),
    Reader("dcgm", ("dcgm*.prom", "dcgm*.txt"), _text(_dcgm)),
)
