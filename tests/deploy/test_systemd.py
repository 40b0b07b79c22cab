"""The units and install.sh: judged by systemd-analyze, and run by a real systemd."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagewatch.incidents import libraries_child
from stagewatch.ranks import stacks_child
from stagewatch.ranks.waits import child as waits_child
from stagewatch.record import DEFAULT_DIRECTORY
from tests.as_installed import need_users, unit
from tests.deploy.debian import Debian
from tests.deploy.engine import CERTIFICATES, ROOT, need
from tests.running import output
from tests.waiting import wait_for

EXPOSURE = {"node": 20, "keeper": 26, "slurm": 20, "judge": 14}
"""Tenths of the most that `systemd-analyze security` may find, out of 100.  Only the keeper, which
has no socket that others reach, has capabilities."""
PORTS = {"node": 9947, "slurm": 9948, "judge": 9949}
SOURCES = ("alerts", "dashboards", "deploy", "exporters", "pyproject.toml", "README.md", "LICENSE")


@pytest.mark.parametrize("name", EXPOSURE)
def test_the_unit_exposes_little(name: str) -> None:
    need("systemd-analyze")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE[name]}",
         "--no-pager", str(ROOT / "deploy" / "systemd" / f"stagewatch-{name}.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unrecognized option" in done.stderr:
        pytest.skip("needs systemd 250 or newer: systemd-analyze has no --offline")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_with_the_port_has_no_capability_and_keeps_its_devices() -> None:
    held = unit("stagewatch-node.service")
    assert held["CapabilityBoundingSet"] == "" and "AmbientCapabilities" not in held
    # ProtectClock= implies DeviceAllow=char-rtc, which alone would take GPUs away.
    assert held["DeviceAllow"] == "char-* rw"


def test_the_judge_sees_no_process_of_others_and_writes_case_files_alone() -> None:
    held = unit("stagewatch-judge.service")
    assert held["CapabilityBoundingSet"] == "" and "AmbientCapabilities" not in held
    assert (held["ProtectProc"], held["LimitCORE"]) == ("invisible", "0")
    assert held["StateDirectory"] == "stagewatch/cases" and "ReadWritePaths" not in held
    assert held["UMask"] == "0077"


FILLS = """
set -eu
mount -t tmpfs -o size=512M none "$1"
mkdir "$1/ranks"
mount -t "$2" -o "$3" none "$1/ranks"
dd if=/dev/zero of="$1/ranks/file" bs=1M count=400 2>/dev/null && echo filled
seq --format="$1/ranks/%.0f" 5000 | xargs touch 2>/dev/null || true
[ "$(ls "$1/ranks" | wc -l)" -lt 5000 ] && echo limited
df --output=used -BM "$1" | tail -1
"""


def test_who_fills_the_directory_of_records_fills_nothing_else(tmp_path: Path) -> None:
    """Every user may write there, and /run is the machine's."""
    need_users()
    told = unit("run-stagewatch-ranks.mount")
    assert told["Where"] == DEFAULT_DIRECTORY
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", FILLS, "sh", tmp_path, told["Type"], told["Options"]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["limited", "0M"], done.stderr


@pytest.mark.parametrize(
    ("name", "children"), [("node", (libraries_child,)), ("keeper", (stacks_child, waits_child))]
)
def test_no_child_may_take_more_than_its_unit_has(name: str, children: tuple[Any, ...]) -> None:
    held = unit(f"stagewatch-{name}.service")
    for child in children:
        assert int(held["MemoryMax"].removesuffix("M")) << 20 > child.MEMORY_BYTES
    assert held["OOMPolicy"] == "continue"


@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_leaves_neither_memory_nor_mounts_behind(name: str) -> None:
    held = unit(f"stagewatch-{name}.service")
    assert (held["LimitCORE"], held["RemoveIPC"], held["PrivateMounts"]) == ("0", "yes", "yes")


class Machine(Debian):
    """One that install.sh was run in, from a copy of this checkout."""

    def install(self, *arguments: str) -> str:
        """Run it."""
        return self(f"/root/src/deploy/install.sh {' '.join(arguments)} 2>&1")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Everything installed."""
    with Machine.made(tmp_path_factory.mktemp("machine")) as machine:
        source = machine.root / "root" / "src"
        source.mkdir()
        output("cp", "-r", *(ROOT / name for name in SOURCES), source)
        shutil.copy(CERTIFICATES, machine.root / "root" / "certificates.crt")
        (machine.root / "etc/pip.conf").write_text("[global]\ncert = /root/certificates.crt\n")
        machine("apt-get -qq update && apt-get -qq install -y --no-install-recommends "
                "systemd python3-venv")  # fmt: skip
        with machine.booted():
            machine.install(*PORTS)
            yield machine


@pytest.mark.timeout(900)
@pytest.mark.xdist_group("systemd")
@pytest.mark.skipif(
    not os.environ.get("STAGEWATCH_DIST"), reason="takes minutes: make test-release"
)
class TestInstalled:
    """One machine from installation to removal: the order matters."""

    @pytest.mark.parametrize("agent", PORTS)
    def test_the_agent_serves(self, machine: Machine, agent: str) -> None:
        wait_for(lambda: "stagewatch_collector_success" in machine.metrics(PORTS[agent]), "metrics")

    def test_no_collector_of_the_node_agent_is_kept_from_its_data(self, machine: Machine) -> None:
        wait_for(
            lambda: 'collector_success{collector="kmsg"}' in machine.metrics(PORTS["node"]), "kmsg"
        )
        lines = machine.metrics(PORTS["node"]).splitlines()
        found = [line for line in lines if line.startswith("stagewatch_collector_success")]
        assert [line for line in found if not line.endswith(" 1")] == []

    @pytest.mark.parametrize(
        ("agent", "directories"),
        [
            ("node", {"/run/stagewatch/ranks", "/var/lib/stagewatch"}),
            ("slurm", {"/var/lib/stagewatch"}),
            ("judge", {"/var/lib/stagewatch/cases"}),
        ],
    )
    def test_the_agent_can_write_its_own_directories_only(
        self, machine: Machine, agent: str, directories: set[str]
    ) -> None:
        mounts = machine(f"cat /proc/{machine.pid(agent)}/mountinfo").splitlines()
        root = [line.split() for line in mounts if line.split()[4] == "/"][-1]
        assert "ro" in root[5].split(",")
        writable = {place for *_, place, options in (line.split()[:6] for line in mounts)
                    if "rw" in options.split(",")}  # fmt: skip
        assert {place for place in writable if "stagewatch" in place} == directories
        assert "/run" not in writable

    def test_a_killed_agent_comes_back(self, machine: Machine) -> None:
        before = machine.pid("node")
        machine("systemctl kill --signal=KILL stagewatch-node")
        wait_for(lambda: machine.pid("node") not in (0, before), "another process")

    def test_the_keeper_comes_back_when_the_agent_asks(self, machine: Machine) -> None:
        before = machine.pid("keeper")
        machine("systemctl kill --signal=KILL stagewatch-keeper")
        wait_for(lambda: machine.pid("keeper") not in (0, before), "another process")
        wait_for(
            lambda: "stagewatch_processes_denied 0" in machine.metrics(PORTS["node"]), "it reads"
        )

    def test_installing_again_keeps_the_options_and_the_state(self, machine: Machine) -> None:
        state = "cat /etc/stagewatch/*.env; stat --format=%i /var/lib/stagewatch"
        before = machine(state)
        machine.install(*PORTS)
        assert machine(state) == before
        wait_for(lambda: machine.metrics(PORTS["node"]), "the agent serves again")

    def test_stopping_is_clean(self, machine: Machine) -> None:
        machine("systemctl stop stagewatch-node")
        assert machine("systemctl show --property=Result --value stagewatch-node") == "success"

    def test_without_systemd_it_says_that_nothing_runs_and_how_to_start_it(
        self, machine: Machine
    ) -> None:
        hidden = "unshare --mount sh -euc 'mount -t tmpfs none /run/systemd; %s' 2>&1"
        said = machine(hidden % "/root/src/deploy/install.sh node")
        assert "systemd does not run here.\nNothing was started." in said
        assert machine.pid("node") == 0
        by_hand = said.splitlines()[-1].strip()
        machine(f"(echo 'echo $$ > /tmp/agent'; echo \"exec {by_hand}\") > /tmp/by-hand")
        machine("nsenter --net=/proc/1/ns/net sh /tmp/by-hand > /tmp/by-hand.log 2>&1 &")
        wait_for(lambda: machine.metrics(PORTS["node"]), "the agent serves")
        status = machine("cat /proc/$(cat /tmp/agent)/status")
        assert int(status.partition("CapPrm:\t")[2].split()[0], 16) == 0
        assert "stagewatch_processes_denied 0" in machine.metrics(PORTS["node"])
        assert "0" not in status.partition("Uid:\t")[2].partition("\n")[0].split()
        machine("kill $(cat /tmp/agent)")
        wait_for(lambda: not machine.metrics(PORTS["node"]), "its end")

    def test_nothing_is_removed_while_a_fault_is_in_force(self, machine: Machine) -> None:
        """In the journal, as somebody finds it whose machine has crashed in an experiment."""
        machine("mkdir -p -m 700 /var/lib/stagewatch-faults")
        machine("touch /var/lib/stagewatch-faults/cpu-1.undo")
        said = machine("/root/src/deploy/install.sh --uninstall --purge 2>&1 || echo status $?")
        assert "stagewatch fault clear --all" in said and said.endswith("status 1")
        assert machine("stagewatch --version")
        machine("rm /var/lib/stagewatch-faults/cpu-1.undo")

    def test_removing_leaves_the_options_and_the_state(self, machine: Machine) -> None:
        machine.install("--uninstall")
        kept = {"/etc/stagewatch", "/var/lib/stagewatch", "/var/lib/stagewatch-faults"}
        assert machine.left() <= kept
        assert machine("ls /etc/stagewatch").split() == ["judge.env", "node.env", "slurm.env"]
        assert machine("ls /run") and "stagewatch" not in machine("ls /run")

    def test_purging_leaves_nothing(self, machine: Machine) -> None:
        machine.install("--uninstall", "--purge")
        assert machine.left() == set()
        assert machine("id -un stagewatch") == "stagewatch", "as --help says"
