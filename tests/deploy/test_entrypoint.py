"""deploy/docker/entrypoint.sh with the rights that compose.yaml gives the node agent's container,
on a node that has NFS statistics."""

from __future__ import annotations

from pathlib import Path

from stagewatch.core.processes import Children
from tests.as_installed import compose, need_users, start, status
from tests.deploy.engine import ROOT
from tests.node_agent import NodeAgent
from tests.waiting import wait_for

MOUNTSTATS = (ROOT / "tests" / "fixtures" / "nfs" / "mountstats").read_text()
LATER = """device nas:/later mounted on /later with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,proto=tcp,addr=10.0.0.1
\tage:\t100
\txprt:\ttcp 832 1 1 0 0 7 7 0 9 0 2 0 0
\tper-op statistics
\t       WRITE: 7 7 0 1 1 1 1 1 0
"""
NODE = 'mount --bind "$0" /proc/1/mountstats; exec "$@"'


def test_nfs_statistics_of_the_node_are_read_though_root_alone_may_open_them(
    children: Children, tmp_path: Path
) -> None:
    """fs/proc/base.c: /proc/<pid>/mountstats has the mode 0400 and belongs to the process' user."""
    need_users()
    (stats := tmp_path / "mountstats").write_text(MOUNTSTATS)
    stats.chmod(0o400)
    agent = NodeAgent(tmp_path)
    around = ("unshare", "--mount", "sh", "-euc", NODE, str(stats))
    start(compose(), agent, children, 9947, *around, STAGEWATCH_RANKS_BY_ENVIRONMENT="false")

    def sent(mount: str) -> float | None:
        return agent.value("nfs_transport_requests_sent_total", mount=mount)

    wait_for(lambda: sent("/checkpoints"), "the statistics of a mount")
    stats.write_text(LATER)
    wait_for(lambda: sent("/later") == 7, "a mount that the node makes later")
    assert sent("/checkpoints") is None
    assert agent.value("stagewatch_collector_success", collector="nfs") == 1
    held = status(agent.process.pid)
    assert held["Uid"].split() == ["9947"] * 4
    assert int(held["CapPrm"], 16) == 0  # a child has taken them over
