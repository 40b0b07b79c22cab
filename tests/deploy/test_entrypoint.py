"""deploy/docker/entrypoint.sh with the rights that compose.yaml gives the node agent's container.

No engine is needed: a mount namespace has the image's user and a node's NFS statistics, and the
capabilities are bounded as an engine bounds them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.deploy.engine import ROOT, need
from tests.node_agent import NodeAgent
from tests.running import clean_environ
from tests.waiting import wait_for

SERVICE = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["node"]
MOUNTSTATS = (ROOT / "tests" / "fixtures" / "nfs" / "mountstats").read_text()
LATER = """device nas:/later mounted on /later with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,proto=tcp,addr=10.0.0.1
\tage:\t100
\txprt:\ttcp 832 1 1 0 0 7 7 0 9 0 2 0 0
\tper-op statistics
\t       WRITE: 7 7 0 1 1 1 1 1 0
"""
CONTAINER = """
set -eu
for file in passwd group; do mount --bind "$1/$file" "/etc/$file"; done
mount --bind "$1/mountstats" /proc/1/mountstats
mount -t tmpfs -o mode=755 none /run
# What lies in a home directory that is closed to others, such as the interpreter, moves out of it.
mount --rbind "$2" "$1/interpreter"
mount --rbind "$3" "$1/checkout"
case $2$3 in */root/*) mount -t tmpfs -o mode=755 none /root ;; esac
mkdir -p "$2" "$3"
mount --rbind "$1/interpreter" "$2"
mount --rbind "$1/checkout" "$3"
exec setpriv "--bounding-set=$4" --no-new-privs "$3/deploy/docker/entrypoint.sh" node
"""


def test_nfs_statistics_of_the_node_are_read_though_root_alone_may_open_them(
    children: Children, tmp_path: Path
) -> None:
    """fs/proc/base.c: /proc/<pid>/mountstats has the mode 0400 and belongs to the process' user."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux: an engine starts the entry point as root")
    need("unshare", "setpriv")
    for name, line in {"passwd": "9947:9947::/:/bin/false", "group": "9947:"}.items():
        known = Path("/etc", name).read_text()
        (tmp_path / name).write_text(f"{known}\nstagewatch:x:{line}\n")
    (stats := tmp_path / "mountstats").write_text(MOUNTSTATS)
    stats.chmod(0o400)
    for directory in ("interpreter", "checkout"):
        (tmp_path / directory).mkdir()
    bounds = ",".join(["-all", *(f"+{name.lower()}" for name in SERVICE["cap_add"])])
    agent = NodeAgent(tmp_path)
    agent.port = free_port()
    environ = {name: value for name, value in SERVICE["environment"].items() if "NFS" in name}
    environ |= {
        "STAGEWATCH_LISTEN": f"127.0.0.1:{agent.port}",
        "STAGEWATCH_RANKS_BY_ENVIRONMENT": "false",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    agent.process = children.start(
        ["unshare", "--mount", "sh", "-c", CONTAINER, "sh",
         str(tmp_path), sys.base_prefix, str(ROOT), bounds],
        log=agent.log, environ=clean_environ(environ),
    )  # fmt: skip
    wait_for(agent.healthy, "the agent answers")

    def sent(mount: str) -> float | None:
        return agent.value("nfs_transport_requests_sent_total", mount=mount)

    wait_for(lambda: sent("/checkpoints"), "the statistics of a mount")
    stats.write_text(LATER)
    wait_for(lambda: sent("/later") == 7, "a mount that the node makes later")
    assert sent("/checkpoints") is None
    assert agent.value("stagewatch_collector_success", collector="nfs") == 1
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert fields["Uid"].split() == ["9947"] * 4
    assert int(fields["CapPrm"], 16) == 0  # a child has taken them over
