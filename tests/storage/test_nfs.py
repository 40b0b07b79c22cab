"""The NFS collector: what a node with these mounts would show."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.storage import nfs
from stagewatch.storage.nfs import NfsCollector

FIXTURES = Path(__file__).parent.parent / "fixtures" / "nfs"
DEAD = """device nas:/ckpt mounted on /ckpt with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,proto=tcp,addr=10.0.0.1
\tage:\t100
\txprt:\ttcp 832 1 1 0 0 {sent} 500 0 9 0 2 0 0
\tper-op statistics
\t       WRITE: 500 500 0 1 1 1 1 1 0
"""


def test_operations_are_shown_one_by_one_and_the_rest_in_other() -> None:
    out = NfsCollector(FIXTURES / "mountstats").collect()
    shown = {labels for labels in out.families[nfs.OPERATIONS_TOTAL] if labels[0] == "/home"}
    assert {op for _, op in shown} == {"READ", "WRITE", "COMMIT", "GETATTR", "LOOKUP", "other"}


def test_a_mount_shows_the_sums_over_its_operations() -> None:
    out = NfsCollector(FIXTURES / "mountstats").collect()
    by_operation = out.families[nfs.OPERATIONS_TOTAL]
    for (mount,), requests in out.families[nfs.REQUESTS].items():
        assert requests == sum(n or 0 for (where, _), n in by_operation.items() if where == mount)


def test_repeats_are_those_of_all_operations(tmp_path: Path) -> None:
    path = tmp_path / "mountstats"
    path.write_text(
        DEAD.format(sent=1)
        + "\t        READ: 7 9 0 1 1 1 1 1 0\n\t      FSINFO: 2 3 0 1 1 1 1 1 0\n"
    )
    out = NfsCollector(path).collect()
    assert out.value(nfs.REQUESTS, "/ckpt") == 509
    assert out.value(nfs.RETRANSMISSIONS, "/ckpt") == 3


def test_a_dead_server_shows_as_requests_without_replies(tmp_path: Path) -> None:
    path = tmp_path / "mountstats"
    path.write_text(DEAD.format(sent=509))
    out = NfsCollector(path).collect()
    assert out.value(nfs.SENDS, "/ckpt") == 509
    assert out.value(nfs.RECEIVES, "/ckpt") == 500


def test_a_mount_that_vanishes_takes_its_series_along(tmp_path: Path) -> None:
    path = tmp_path / "mountstats"
    collector = NfsCollector(path)
    path.write_text(DEAD.format(sent=1) + DEAD.format(sent=2).replace("/ckpt", "/more"))
    assert set(collector.collect().families[nfs.SENDS]) == {("/ckpt",), ("/more",)}
    path.write_text(DEAD.format(sent=3))
    assert set(collector.collect().families[nfs.SENDS]) == {("/ckpt",)}
    path.write_text("")
    with pytest.raises(NoData):
        collector.collect()
