"""The command that replays a site's captures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagewatch.slurm.model import Records
from stagewatch.slurm.transport import text
from tests.alerts.promtool import needs_promtool
from tests.compatibility import node
from tests.compatibility.__main__ import main

NODE = "NodeName=h1 CPUTot=8 Gres=gpu:h200:8 State=IDLE+DRAIN Partitions=a BootTime=7\n"


def test_capture_is_counted_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the parsers read stands beside what a plain count of the same bytes gives."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "scontrol_show_node.txt").write_text(NODE * 3)
    (tmp_path / "notes.md").write_text("what we run")
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "notes.md: no reader takes a file of this name" in printed
    assert "site/scontrol_show_node.txt (slurm)" in printed
    assert "1 captures, 0 of them wrong" in printed


FIXTURES = Path(__file__).parent / "fixtures"
KERNEL_LOG = """\
[12.678901] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off \
the bus.
[12.678902] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
[Fri Nov 27 10:00:00 2026] NVRM: Xid (PCI:0000:5e:00): 94, pid=77, name=python, Contained: SM
kern  :err   : [  100.000000] nvidia-nvswitch3: SXid (PCI:0000:c6:00.0): 12028, Non-fatal, Link 32
Nov 27 10:00:00 n1 kernel: nvidia-nvswitch3: SXid (PCI:0000:c6:00.0): 20034, Fatal, Link 30 LTSSM
6,339,5140900,-;nfs: server filer1 not responding, still trying
[  300.1] Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB
"""
SYSFS = """\
/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)
/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:1000
/sys/class/infiniband/mlx5_0/ports/1/counters/VL15_dropped:N/A (no PMA)
/sys/class/infiniband/mlx5_1/ports/1/state:1: DOWN
/sys/class/infiniband/mlx5_1/ports/1/counters/link_downed:2
"""


@pytest.mark.parametrize(
    ("name", "content", "figures"),
    [
        ("dmesg.txt", KERNEL_LOG, ["XID 94 +1", "fatal errors of NVSwitches +1", "memory +1"]),
        ("sysfs.txt", SYSFS, ["active ports +1", "went down +2", "bytes sent +4000"]),
        ("mountstats", FIXTURES / "nfs" / "mountstats", ["NFS mounts +6", "retries +24"]),
        pytest.param(
            *("dcgm.prom", FIXTURES / "dcgm" / "exposition.prom", ["GPUs +3", "with an XID +1"]),
            marks=needs_promtool,
        ),
    ],
)
def test_captures_of_a_node_are_counted_twice(
    name: str,
    content: str | Path,
    figures: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text_ = content.read_text() if isinstance(content, Path) else content
    (tmp_path / name).write_text(text_)
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert all(re.search(rf"{figure} ", printed) for figure in figures), printed


def test_an_error_that_a_parser_of_the_kernel_log_loses_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dmesg.txt").write_text(KERNEL_LOG)
    monkeypatch.setattr(node, "parse_xid", lambda _: None)
    assert main([str(tmp_path)]) == 1
    assert re.search(r"XID 94 +0 +1   DIFFERS", capsys.readouterr().out)


def test_an_error_of_slurms_own_is_told_and_not_called_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    (tmp_path / "squeue.txt").write_text(f"{error}\n")
    assert main([str(tmp_path)]) == 0
    assert f"the program's own error: {error}" in capsys.readouterr().out


CAPTURES = FIXTURES / "slurm" / "captures"


def test_our_own_captures_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """Tasks, reasons and users among them that were read wrongly before, of Slurm 22.05.8."""
    assert main([str(CAPTURES)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"jobs and tasks PENDING +62 +62\n", printed)
    assert "no reader" not in printed


def test_wrong_reading_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser that loses a node is found out."""
    parse = text.parse_nodes
    monkeypatch.setattr(text, "parse_nodes", lambda output: Records(parse(output).items[1:]))
    (tmp_path / "scontrol_show_node.txt").write_text(NODE * 3)
    assert main([str(tmp_path)]) == 1
    assert re.search(r"nodes DRAIN +2 +3   DIFFERS", capsys.readouterr().out)
