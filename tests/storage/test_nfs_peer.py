"""The NFS collector beside node_exporter's, both over the same kernel file."""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from stagewatch.core.exposition import Metric, Samples
from stagewatch.storage import nfs
from stagewatch.storage.mountstats import parse_mountstats
from stagewatch.storage.nfs import NfsCollector
from tests.waiting import wait_for

FIXTURES = Path(__file__).parent.parent / "fixtures" / "nfs"
OPERATION = "node_mountstats_nfs_operations_"
NODE_EXPORTER = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")

Theirs = dict[str, dict[tuple[str, str], float]]


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A process file system of one process, which has the mounts of the fixture."""
    process = tmp_path / "1"
    process.mkdir()
    text = (FIXTURES / "mountstats").read_text()
    (process / "mountstats").write_text(text)
    mounts = re.findall(r"^device (\S+) mounted on (\S+) with fstype (nfs4?)", text, re.MULTILINE)
    (process / "mountinfo").write_text(
        "".join(
            f"{number} 1 0:{number} / {mount} rw - {kind} {device} rw,addr=10.0.0.{number}\n"
            for number, (device, mount, kind) in enumerate(mounts, 30)
        )
    )
    (tmp_path / "self").symlink_to("1")
    return tmp_path


@pytest.fixture
def theirs(proc: Path) -> Iterator[Theirs]:
    """node_exporter's values by metric, then by export and operation ("" without one)."""
    if NODE_EXPORTER is None:
        pytest.skip("needs node_exporter (Debian package prometheus-node-exporter)")
    command = [NODE_EXPORTER, f"--path.procfs={proc}", "--web.listen-address=127.0.0.1:0"]
    server = subprocess.Popen(
        [*command, "--collector.disable-defaults", "--collector.mountstats"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    try:
        assert server.stderr is not None
        address = next(filter(None, map(listens_on, server.stderr)))
        text = wait_for(lambda: requests.get(f"http://{address}/metrics", timeout=30).text, "text")
    finally:
        server.kill()
        server.communicate()
    values: Theirs = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("node_mountstats"):
                key = (sample.labels["export"], sample.labels.get("operation", ""))
                values[sample.name][key] = sample.value
    yield values


def listens_on(line: str) -> str | None:
    found = re.search(r'Listening on" address=(\S+)', line)
    return found[1] if found else None


def ours_by_export(proc: Path, out: Samples, metric: Metric) -> dict[tuple[str, str], float]:
    exports = {
        mount.mount: mount.export.replace(" ", "\\040")
        for mount in parse_mountstats((proc / "self" / "mountstats").read_text())
    }
    return {
        (exports[mount], op): value
        for (mount, op), value in out.families[metric].items()
        if isinstance(value, (int, float)) and op != nfs.OTHER
    }


COMPARED: list[tuple[Metric, Callable[[Theirs, tuple[str, str]], float]]] = [
    (nfs.OPERATIONS_TOTAL, lambda them, key: them[OPERATION + "requests_total"][key]),
    (nfs.TIMEOUTS, lambda them, key: them[OPERATION + "major_timeouts_total"][key]),
    (nfs.RTT, lambda them, key: them[OPERATION + "response_time_seconds_total"][key]),
    (nfs.EXECUTE, lambda them, key: them[OPERATION + "request_time_seconds_total"][key]),
    (
        nfs.BYTES,
        lambda them, key: (
            them[OPERATION + "sent_bytes_total"][key]
            + them[OPERATION + "received_bytes_total"][key]
        ),
    ),
]


def test_values_equal_those_of_node_exporter_in_fewer_series(proc: Path, theirs: Theirs) -> None:
    out = NfsCollector(proc / "self" / "mountstats").collect()
    for metric, expected in COMPARED:
        ours = ours_by_export(proc, out, metric)
        assert len(ours) == 6 * 6 - 2, "six operations on six mounts; NFSv3 has no OPEN"
        for key, value in ours.items():
            assert value == pytest.approx(expected(theirs, key)), (metric.name, key)
    exports = {labels[0]: labels[2].replace(" ", "\\040") for labels in out.families[nfs.INFO]}
    for mount, export in exports.items():
        sums = [
            sum(value for (where, _), value in theirs[OPERATION + name].items() if where == export)
            for name in ("requests_total", "transmissions_total")
        ]
        assert out.value(nfs.REQUESTS, mount) == sums[0]
        assert out.value(nfs.RETRANSMISSIONS, mount) == sums[1] - sums[0]
        if mount != "/checkpoints":  # of its four connections, node_exporter 1.5 shows the last
            sent = theirs["node_mountstats_nfs_transport_sends_total"][export, ""]
            assert out.value(nfs.SENDS, mount) == sent
    series = sum(map(len, out.families.values()))
    assert series < sum(map(len, theirs.values())) / 4
