"""The `kmsg` collector: GPU errors, out-of-memory kills and NFS servers on a scrape."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stagewatch.gpu.collector import GpuCollector
from stagewatch.gpu.reader import GpuReader
from stagewatch.gpu.xids import XidLedger
from stagewatch.host.procfs import TICKS_PER_SECOND
from stagewatch.kernel_log.collector import KmsgCollector
from stagewatch.kernel_log.reader import Kmsg
from tests.fake_clock import Clock
from tests.fakes.nvml import FakeNvml
from tests.gpu.gpu_scene import INTERVALS, UUID, labels_of, metrics, of

BOOT = "11111111-2222-3333-4444-555555555555"
BUS = "0000:3b:00"  # of GPU 2 of the fake driver


class Log:
    """A kernel log that a test writes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._sequence = 0
        file.touch()

    def say(self, text: str, facility: int = 0) -> None:
        self._sequence += 1
        microseconds = int(time.monotonic() * 1e6)
        with self.file.open("a") as out:
            out.write(f"{facility * 8 + 4},{self._sequence},{microseconds},-;{text}\n")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "kmsg")


def collector(log: Log, **arguments: object) -> KmsgCollector:
    ledger = arguments.pop("xids", None) or XidLedger()
    return KmsgCollector(Kmsg(log.file), ledger, boot_id=BOOT, **arguments)  # type: ignore[arg-type]


def kill(log: Log, pid: int) -> None:
    log.say(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"
        f"oom_memcg=/x,task_memcg=/x,task=python,pid={pid},uid=1000"
    )
    log.say(f"Memory cgroup out of memory: Killed process {pid} (python) total-vm:1kB")


def test_xid_is_counted_by_severity_with_what_to_do(log: Log) -> None:
    log.say("NVRM: GPU at PCI:0000:3b:00: " + UUID + "2")
    log.say("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.")
    log.say("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
    log.say("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, Ch 1")
    shown = metrics(collector(log))
    gpu = {"uuid": UUID + "2", "pci_bus_id": BUS}
    assert of(shown, "gpu_xid_errors_total", xid="79", severity="critical", **gpu) == [1]
    assert of(shown, "gpu_xid_errors_total", xid="31", severity="application", **gpu) == [1]
    assert of(shown, "gpu_xid_last_timestamp_seconds", xid="79")[0] > 1e9
    assert of(shown, "gpu_xid_info", xid="79", action="reboot_node") == [1]
    assert of(shown, "stagewatch_kmsg_readable") == [1]


def test_event_of_the_driver_and_its_line_are_one_error(
    nvml: FakeNvml, log: Log, tmp_path: Path
) -> None:
    ledger = XidLedger()
    gpu = GpuCollector(GpuReader(), source="nvml", intervals=INTERVALS, xids=ledger, clock=Clock())
    kmsg = collector(log, xids=ledger)
    metrics(gpu)
    nvml.set("gpu.2.xid.0", 79)
    nvml.set("gpu.5.xid.0", 13)
    metrics(gpu)
    log.say("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    shown = metrics(kmsg)
    gpu.close()
    assert of(shown, "gpu_xid_errors_total", gpu="2", uuid=UUID + "2", xid="79") == [1]
    assert of(shown, "gpu_xid_errors_total", gpu="5", xid="13", severity="application") == [1]
    assert len(labels_of(shown, "gpu_xid_errors_total")) == 2


def test_log_that_may_not_be_read_leaves_the_events(nvml: FakeNvml, tmp_path: Path) -> None:
    ledger = XidLedger()
    gpu = GpuCollector(GpuReader(), source="nvml", intervals=INTERVALS, xids=ledger, clock=Clock())
    kmsg = KmsgCollector(Kmsg(tmp_path / "missing"), ledger)
    metrics(gpu)
    nvml.set("gpu.0.xid.0", 48)
    metrics(gpu)
    shown = metrics(kmsg)
    gpu.close()
    assert of(shown, "stagewatch_kmsg_readable") == [0]
    assert of(shown, "gpu_xid_errors_total", gpu="0", xid="48") == [1]


@pytest.mark.parametrize("lines", ["kept", "overwritten"])
def test_place_and_counters_survive_a_restart(log: Log, tmp_path: Path, lines: str) -> None:
    state = tmp_path / "kmsg.json"
    before = collector(log, state_file=state)
    log.say("NVRM: Xid (PCI:0000:3b:00): 48, DBE")
    log.say("nfs: server nas1 not responding, still trying")
    log.say("Out of memory: Killed process 7 (python)")
    metrics(before)
    before.close()
    if lines == "overwritten":
        log.file.write_text("")  # the ring has gone round
    log.say("NVRM: Xid (PCI:0000:3b:00): 48, DBE")
    shown = metrics(collector(log, state_file=state))
    assert of(shown, "gpu_xid_errors_total", xid="48") == [2]
    assert of(shown, "nfs_server_not_responding", server="nas1") == [1]
    assert of(shown, "log_oom_kills_total", scope="system") == [1]


def test_crash_before_saving_counts_nothing_twice(log: Log, tmp_path: Path) -> None:
    state = tmp_path / "kmsg.json"
    clock = Clock()
    killed = collector(log, state_file=state, clock=clock)
    log.say("NVRM: Xid (PCI:0000:3b:00): 48, DBE")
    metrics(killed)  # saved
    log.say("NVRM: Xid (PCI:0000:3b:00): 48, DBE")
    metrics(killed)  # counted, but killed before it is saved again
    shown = metrics(collector(log, state_file=state))
    assert of(shown, "gpu_xid_errors_total", xid="48") == [2]


def test_counters_begin_anew_after_a_reboot(log: Log, tmp_path: Path) -> None:
    state = tmp_path / "kmsg.json"
    before = collector(log, state_file=state)
    log.say("NVRM: Xid (PCI:0000:3b:00): 48, DBE")
    metrics(before)
    before.close()
    (rebooted := Log(tmp_path / "kmsg-after")).say("NVRM: Xid (PCI:0000:3b:00): 13, x")
    after = KmsgCollector(
        Kmsg(rebooted.file), XidLedger(), state_file=state, boot_id="another boot"
    )
    shown = metrics(after)
    assert of(shown, "gpu_xid_errors_total", xid="48") == []
    assert of(shown, "gpu_xid_errors_total", xid="13") == [1]


def test_killed_rank_is_named_by_its_process(log: Log) -> None:
    alive = {4242: (("540", "train", "5"), 0)}
    kmsg = collector(log, ranks=lambda: alive)
    metrics(kmsg)
    alive.clear()  # it is gone by the time the line is read
    kill(log, 4242)
    shown = metrics(kmsg)
    victim = {"scope": "cgroup", "job_id": "540", "role": "train", "rank": "5"}
    assert of(shown, "log_oom_kills_total", **victim) == [1]
    assert of(shown, "log_oom_kill_last_timestamp_seconds", **victim)[0] > 1e9


def test_a_rank_that_began_since_the_last_look_is_named_by_its_record(log: Log) -> None:
    ranks: dict[int, tuple[tuple[str, str, str], int]] = {}
    kmsg = collector(log, ranks=lambda: ranks, clock=(clock := Clock()))
    metrics(kmsg)
    clock.now += 1
    ranks[4242] = (("540", "train", "5"), 0)
    kill(log, 4242)
    assert of(metrics(kmsg), "log_oom_kills_total", job_id="540", rank="5") == [1]


def test_ranks_are_looked_at_once_for_all_unknown_victims(log: Log) -> None:
    looks: list[dict[int, tuple[tuple[str, str, str], int]]] = []
    kmsg = collector(log, ranks=lambda: looks.append({}) or {}, clock=(clock := Clock()))
    metrics(kmsg)
    clock.now += 1
    for pid in range(4242, 4272):
        kill(log, pid)
    assert of(metrics(kmsg), "log_oom_kills_total") == [30]
    assert len(looks) == 2


def test_a_rank_is_not_named_for_an_earlier_process_of_its_number(log: Log) -> None:
    kill(log, 4242)
    later = int((time.clock_gettime(time.CLOCK_BOOTTIME) + 60) * TICKS_PER_SECOND)
    shown = metrics(collector(log, ranks=lambda: {4242: (("540", "train", "5"), later)}))
    assert of(shown, "log_oom_kills_total", rank="5") == []
    assert of(shown, "log_oom_kills_total") == [1]


def test_nfs_server_is_down_until_it_is_ok_again(log: Log) -> None:
    kmsg = collector(log)
    for _ in range(3):  # one line for every mount of the server
        log.say("nfs: server nas1 not responding, still trying")
    shown = metrics(kmsg)
    assert of(shown, "nfs_server_not_responding", server="nas1") == [1]
    assert of(shown, "nfs_server_not_responding_since_timestamp_seconds")[0] > 1e9
    log.say("nfs: server nas1 OK")
    shown = metrics(kmsg)
    assert of(shown, "nfs_server_not_responding", server="nas1") == [0]
    assert of(shown, "nfs_server_not_responding_since_timestamp_seconds") == []


def test_flood_of_servers_and_victims_is_bounded(log: Log) -> None:
    for number in range(700):
        log.say(f"nfs: server host{number} not responding, still trying")
        log.say(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"
            f"oom_memcg=/slurm/job_{number},task_memcg=/slurm/job_{number},task=a,pid={number},"
            "uid=1"
        )
        log.say(f"Memory cgroup out of memory: Killed process {number} (a)")
    shown = metrics(collector(log))
    assert len(of(shown, "nfs_server_not_responding")) == 200
    assert len(of(shown, "log_oom_kills_total")) == 500
    assert of(shown, "log_oom_kills_total", job_id="699") == [1]


def test_errors_of_an_nvswitch_are_counted_once_with_their_severity(
    log: Log, tmp_path: Path
) -> None:
    """The lines are those of NVIDIA's Fabric Manager user guide, "SXid Errors"."""
    switch = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, "
    log.say(f"{switch}Non-fatal, Link 46 MC TS crumbstore MCTO (First)")
    log.say(f"{switch}Severity 0 Engine instance 46 Sub-engine instance 00")
    log.say(f"{switch}Data {{0x00140004, 0x00100000, 0x00140004, 0x00000000, 0x00000000}}")
    log.say("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 30 sourcetrack timeout")
    log.say("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal")
    state = tmp_path / "kmsg.json"
    before = collector(log, state_file=state)
    shown = metrics(before)
    before.close()
    for found in (shown, metrics(collector(log, state_file=state))):
        at = {"pci_bus_id": "0000:c1:00", "sxid": "28006", "severity": "nonfatal"}
        assert of(found, "gpu_nvswitch_errors_total", **at) == [1]
        at = {"pci_bus_id": "0000:c3:00", "sxid": "24007", "severity": "fatal"}
        assert of(found, "gpu_nvswitch_errors_total", **at) == [1]
        assert len(of(found, "gpu_nvswitch_errors_total")) == 2
        assert len(of(found, "gpu_nvswitch_error_last_timestamp_seconds")) == 2
