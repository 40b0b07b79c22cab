"""What the Slurm agent has counted outlives it, or is said not to."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.slurm.events.state import ClusterEvents
from tests.slurm.ledger_scene import T, node, record


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"version": 99}',
        b'{"version": 1, "jobs": {"watermark": "x"}, "nodes": 7}',
        b"\xff\xfe" * 50,
        b"[" * 100_000,
    ],
)
def test_state_file_that_cannot_be_used_is_put_aside(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counting begins anew, it is said once, and the next save works."""
    path = tmp_path / "slurm.json"
    path.write_bytes(content)
    events = ClusterEvents(path, wall=lambda: float(T))
    assert not events.jobs.ended
    assert (tmp_path / "slurm.json.corrupt").read_bytes() == content
    assert len([line for line in caplog.messages if "not usable" in line]) == 1
    assert events.kept is False
    events.save(now=True)
    assert events.kept is True
    assert ClusterEvents(path).kept is True


def test_state_is_kept_and_written_whole(tmp_path: Path) -> None:
    """What was counted is there after a restart, and no temporary file is left."""
    path = tmp_path / "deep" / "slurm.json"
    events = ClusterEvents(path, wall=lambda: float(T))
    events.jobs.observe_accounting([record(), record(2, "FAILED")], asked=T + 200, complete=True)
    events.nodes.observe_nodes([node()], T + 1.0)
    events.nodes.observe_nodes([node(state="DOWN")], T + 31.0)
    events.save(now=True)
    assert [each.name for each in path.parent.iterdir()] == ["slurm.json"]
    again = ClusterEvents(path)
    assert again.jobs.ended == events.jobs.ended
    assert again.nodes.failures == events.nodes.failures
