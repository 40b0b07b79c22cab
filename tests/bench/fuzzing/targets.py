"""Every parser of what others write: its seeds, and what it may say of an input."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from stagewatch.core import exposition
from stagewatch.core.errors import StagewatchError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.core.state_file import BROKEN, decode, encode, parse
from stagewatch.faults.journal import Journal
from stagewatch.faults.markers import parse_marker
from stagewatch.gpu.xids import XidLedger
from stagewatch.host.mounts import parse_mounts
from stagewatch.host.procfs import Procfs
from stagewatch.incidents import files as incidents
from stagewatch.kernel_log import collector as kernel_log
from stagewatch.kernel_log.reader import Kmsg
from stagewatch.network.infiniband import InfinibandCollector
from stagewatch.ranks.events import parse_events
from stagewatch.ranks.nccl.layout import CorruptFile
from stagewatch.ranks.nccl.layout import parse as parse_nccl
from stagewatch.ranks.records import CorruptRecord
from stagewatch.ranks.records import parse as parse_record
from stagewatch.record import RECORD_SIZE
from stagewatch.slurm import discovery
from stagewatch.slurm.events.jobs import JobLedger
from stagewatch.slurm.events.nodes import NodeLedger
from stagewatch.slurm.node_jobs import parse_slurm_cgroup
from stagewatch.storage.io import parse_diskstats
from stagewatch.storage.mountstats import parse_mountstats
from stagewatch.web.message import Refused, parse_head
from tests.bench.fuzzing import answers, slurm
from tests.bench.fuzzing.mutations import mutated_json
from tests.bench.fuzzing.target import Target, decoded, through
from tests.nccl import made
from tests.records import real_file

KERNEL_LOG = (
    b"4,1,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    b"4,2,5140900,-;NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08",
    b"4,3,5140900,-;NVRM: GPU at PCI:0000:3b:00: GPU-8f2a6c2e-1111-4222-8333-0123456789ab",
    b"4,4,5140900,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS",
    b"6,5,5140900,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
    b"oom_memcg=/slurm/uid_1/job_7,task_memcg=/slurm/uid_1/job_7/step_0,task=python,pid=42,uid=1",
    b"3,6,5140900,-;Memory cgroup out of memory: Killed process 42 (python) total-vm:9kB, UID:1",
    b"5,8,5140900,-;nfs: server fs1 not responding, still trying",
    b"5,9,5140900,-;nfs: server fs1 OK",
    b"4,10,5140900,-;NFS: __nfs4_reclaim_open_state: Lock reclaim failed!",
    b" SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0",
)
MOUNTSTATS = tuple(
    b"device rootfs mounted on / with fstype rootfs\n"
    b"device fs1:/a\\040b mounted on /mnt/data with fstype nfs4 statvers=1.1\n"
    b"\topts:\trw,vers=4.2,rsize=1048576,proto=tcp,timeo=600,hard,addr=10.0.0.1\n"
    b"\tage:\t12345\n\tbytes:\t1 2 3 4 5 6 7 8\n"
    b"\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n"
    b"\txprt:\t" + transport + b"\n\tper-op statistics\n"
    b"\t        READ: 10 11 0 1200 4096000 1 20 22 0\n"
    b"\t       WRITE: 5 5 0 9000 600 1 2 3\n\t      COMMIT: 0 0 0 0 0 0 0 0 0\n\n"
    for transport in (
        b"tcp 832 0 1 0 2 100 100 0 100 0 2 0 0",
        b"rdma 0 0 5 0 0 9 9 0 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        b"udp 832 0 10 10 0 12 0 2 0 0",
    )
)
DISKSTATS = (
    b" 259       0 nvme0n1 1 2 3 4 5 6 7 8 0 9 10 11 12 13 14 15 16\n",
    b"   8       1 sda1 1 2 3 4 5 6 7 8 9 10 11\n",
)
MOUNTS = (b"fs1:/export /mnt/data nfs4 rw,vers=4.2 0 0\n/dev/sda1 /mnt/a\\040b ext4 rw 0 0\n",)
STAT = (
    b"42 (python) R 1 42 42 0 -1 4194304 1 0 0 0 10 20 0 0 20 0 3 0 123456 1 2 18446744073709551615"
    b" 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    b"7 (a) b) D (c) S 1 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 5 1 2 3\n",
)
MARKER = (
    json.dumps(
        {
            "fault_type": "cpu_hog",
            "fault_injection_start": "2026-01-02T03:04:05.678Z",
            "fault_injection_end": None,
            "target_worker": "train/0",
            "expected_failure_stage": "train",
            "scenario": "s",
        }
    ).encode(),
)
INCIDENT = (
    json.dumps(
        {
            "version": incidents.VERSION,
            "job_id": "540",
            "time": 1767322800.5,
            "sentences": ["job 540: no progress"],
            "ranks": [
                {
                    "role": "train",
                    "rank": 3,
                    "pid": 4711,
                    "stack": {
                        "group": "0123abcd",
                        "still": True,
                        "frame": "train.py:25 in step",
                        "call": "all_reduce of torch.distributed",
                        "whom": "peers",
                        "threads": [["MainThread", ["step (train.py:25)"]]],
                        "problem": "",
                    },
                    "facts": {"step": 7},
                    "events": ["enters train"],
                    "waits": [],
                    "ends": [],
                    "nccl": [],
                }
            ],
            "kernel": ["2026-01-01T00:00:00Z NVRM: Xid"],
            "faults": ["cpu-1: cpu_contention"],
            "libraries": [],
        }
    ).encode(),
)
DISCOVERY = (
    json.dumps({"ada": [["n1", {"node": "n1", "__meta_slurm_flags": ",DRAIN,"}]]}).encode(),
)
CGROUPS = (
    b"/system.slice/slurmstepd.scope/job_42/step_0/user/task_0",
    b"/slurm/uid_1000/job_42/step_batch",
    b"0::/system.slice/node1_slurmstepd.scope/job_7/step_extern\n",
)
HTTP = (
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip;q=0\r\n"
    b"Authorization: Basic eDp5\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET http://x/%2e%2e/a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
)
JOURNAL = (
    json.dumps(
        {
            "id": "x",
            "fault_dir": "/run/stagewatch/faults",
            "boot_id": "b",
            "network_namespace": 1,
            "owner": {"pid": 7, "start_ticks": 9},
            "steps": [],
            "environ": {},
        }
    ).encode(),
)
LABEL = Metric("fuzz", "gauge", "A label that others write.", ("name",))


def _labels(data: bytes) -> None:
    """A label comes back from the exposition as one sample, whatever it holds."""
    samples = Samples()
    samples.add(LABEL, 1, data.decode("utf-8", "replace"))
    (family,) = text_string_to_metric_families(exposition.render(samples).decode("utf-8"))
    if [sample.value for sample in family.samples] != [1.0]:
        raise AssertionError(family.samples)


class _Log:
    """The kernel log with a single record, for the collector."""

    def __init__(self) -> None:
        self.reader = Kmsg()
        self.raw = b""
        self.last: int | None = None
        self.lost = 0

    def read(self) -> Iterator[Any]:
        if (record := self.reader._parse(self.raw)) is not None:
            yield record

    def close(self) -> None:
        """Nothing is open."""


@contextlib.contextmanager
def targets() -> Iterator[list[Target]]:
    """All of them; what reads files reads them below a directory in memory."""
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm") as directory:
        yield _targets(Path(directory))


def _targets(home: Path) -> list[Target]:
    log = _Log()

    def heed(data: bytes) -> None:
        log.raw = data
        kernel_log.KmsgCollector(log, XidLedger()).collect()  # type: ignore[arg-type]

    process = home / "proc" / "7"
    process.mkdir(parents=True)
    port = home / "sys/class/infiniband/mlx5_0/ports/1"
    for part in ("counters", "hw_counters"):
        (port / part).mkdir(parents=True)
    files = ("rate", "state", "counters/port_xmit_data", "hw_counters/out_of_sequence")
    rdma = InfinibandCollector(home / "sys")

    def ports(data: bytes) -> None:
        for name, content in zip(files, data.split(b"\n"), strict=False):
            (port / name).write_bytes(content)
        exposition.render(rdma.collect())

    (home / "ranks").mkdir()
    proc, journal, states = Procfs(home / "proc"), Journal(home, {}), state_files()
    stat = through(process / "stat", lambda: proc.stat(7))
    file = real_file(home / "ranks")
    record = file[:RECORD_SIZE]
    sources = (StagewatchError,)
    return [
        Target("kernel log", KERNEL_LOG, heed, 0.14),
        Target("stage record", (record,), parse_record, 0.10, (CorruptRecord,)),
        Target("NCCL's operations", made.SEEDS, parse_nccl, 0.10, (CorruptFile,), made.changed),
        Target("events", (file,), lambda data: parse_events(data, 2**62), 0.02),
        Target("mountstats", MOUNTSTATS, decoded(parse_mountstats), 0.10),
        Target("mounts", MOUNTS, decoded(parse_mounts), 0.05),
        Target("diskstats", DISKSTATS, decoded(lambda text: list(parse_diskstats(text))), 0.10),
        Target("/proc/PID/stat", STAT, stat, 0.08),
        Target("infiniband", (b"400 Gb/sec (4X NDR)\n4: ACTIVE\n123\n45\n",), ports, 0.02),
        Target("control groups", CGROUPS, decoded(parse_slurm_cgroup), 0.05),
        Target("HTTP head", HTTP, parse_head, 0.02, (Refused,)),
        Target("labels", (b"train", b'a"b\\c\nd'), _labels, 0.02),
        *(
            Target(name, seeds, run, share, allowed, mutated_json)
            for name, seeds, run, share, allowed in (
                ("marker", MARKER, lambda data: parse_marker("x", data), 0.05, sources),
                ("journal", JOURNAL, lambda data: journal._parse("x", data), 0.03, sources),
                (
                    "kmsg state",
                    states[0],
                    lambda data: decode(kernel_log.KmsgState, parse(data)),
                    0.04,
                    BROKEN,
                ),
                ("jobs ledger", states[1], lambda data: JobLedger.load(parse(data)), 0.03, BROKEN),
                (
                    "nodes ledger",
                    states[2],
                    lambda data: NodeLedger.load(parse(data)),
                    0.03,
                    BROKEN,
                ),
                ("incident", INCIDENT, lambda data: incidents._incident(parse(data)), 0.03, BROKEN),
                ("discovery", DISCOVERY, _targets_of_prometheus, 0.01, BROKEN),
            )
        ),
        *slurm.targets(),
        *answers.targets(home),
    ]


def _targets_of_prometheus(data: bytes) -> None:
    for saved in parse(data)["ada"]:
        discovery.read_place(*saved)


def state_files() -> tuple[tuple[bytes, ...], ...]:
    """What the agents save."""
    state = kernel_log.KmsgState("b", 7, nfs={"fs": 1.0})
    state.kills["cgroup", "7", "train", "0"] = kernel_log.Count(2, 1.5)
    jobs, nodes = JobLedger(1.0).dump(), NodeLedger(1.0).dump()
    contents = (encode(state), jobs, nodes)
    return tuple((json.dumps(content).encode(),) for content in contents)
