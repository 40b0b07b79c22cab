"""Lines of the kernel log as drivers and kernels of several years write them."""

from __future__ import annotations

import pytest

from stagewatch.kernel_log import lines

BUS = "0000:3b:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off "
            "the bus.",
            lines.XidLine(BUS, 79),
        ),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, Contained", lines.XidLine(BUS, 94)),
        (
            "NVRM: Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link -1 (0x004505c6)",
            lines.XidLine(BUS, 145, nonfatal=True),
        ),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", lines.XidLine(BUS, 79, plain=True)),
        (
            "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:2335) installed in this system "
            "has\nNVRM: fallen off the bus and is not responding to commands.",
            lines.XidLine(BUS, 79, plain=True),
        ),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15", None),
        ("usb 1-1: Xid (PCI:0000:3b:00): 79", None),
        ("NVRM: Xid (PCI:0000:3b:00): lots", None),
    ],
)
def test_gpu_errors(text: str, expected: lines.XidLine | None) -> None:
    assert lines.parse_xid(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"
            "oom_memcg=/slurm/uid_1000/job_540,"
            "task_memcg=/slurm/uid_1000/job_540/step_0/task_3,task=python,pid=4242,uid=1000",
            lines.OomCause(4242, "/slurm/uid_1000/job_540/step_0/task_3"),
        ),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,"
            "global_oom,task_memcg=/user.slice,task=a,b,pid=7,uid=0",
            lines.OomCause(7, "/user.slice"),
        ),
        (
            "Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB",
            lines.OomKill(4242, "cgroup"),
        ),
        ("Out of memory: Killed process 99 (stress) total-vm:1kB", lines.OomKill(99, "system")),
        (
            "Out of memory (oom_kill_allocating_task): Killed process 5 (x)",
            lines.OomKill(5, "system"),
        ),
        ("oom_reaper: reaped process 4242 (python), now anon-rss:0kB", None),
    ],
)
def test_out_of_memory_kills(text: str, expected: object) -> None:
    assert lines.parse_oom(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nfs: server nas1 not responding, still trying", lines.NfsLine("nas1", False)),
        ("nfs: server nas1 OK", lines.NfsLine("nas1", True)),
        ("lockd: server nas1 not responding, still trying", lines.NfsLine("nas1", False)),
        ("nfs: server nas1 is tired", None),
    ],
)
def test_nfs_servers(text: str, expected: lines.NfsLine | None) -> None:
    assert lines.parse_nfs(text) == expected
