"""NCCL Inspector's two forms, as its sources of NCCL 2.28 to 2.31 write them.

The fixtures were written by Inspector itself, built from the sources of that release, in four
processes that called it as NCCL does: rank 2 was in each all_reduce for 0.4 ms, the others for 1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stagewatch
from stagewatch.client import _api
from stagewatch.core.errors import NoData, SourceError
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.nccl import inspector
from stagewatch.ranks.nccl.collector import (
    BANDWIDTH,
    COMPARED,
    LACKING,
    LAST,
    SECONDS,
    InspectorCollector,
)
from stagewatch.ranks.record_directory import RecordDirectory

WRITTEN = Path(__file__).parents[1] / "fixtures" / "nccl_inspector"
LABELS = (
    'version="v5.1",slurm_job_id="540",node="nvl72004-T01",gpu="GPU0",comm_name="DP Group 0",'
    'n_nodes="1",nranks="4",{kind}="{op}",message_size="4-5GB",algo_proto="Ring_ll"'
)
COLLECTIVE = LABELS.format(kind="collective", op="AllReduce")
TEXT = f"""\
nccl_bus_bandwidth_gbs{{{COLLECTIVE}}} 678.263
nccl_collective_exec_time_microseconds{{{COLLECTIVE}}} 9498.47
nccl_p2p_exec_time_microseconds{{{LABELS.format(kind="p2p_operation", op="Send")}}} 1154.87
"""


def record(pid: int = 4711, rank: int = 2, **changes: Any) -> dict[str, Any]:
    done = {
        "coll": "AllReduce",
        "coll_sn": 1407,
        "coll_msg_size_bytes": 1 << 30,
        "coll_exec_time_us": 61974,
        "coll_algobw_gbs": 277.2,
        "coll_busbw_gbs": 485.1,
    }
    return {
        "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": 8, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "hostname": "n", "pid": pid},
        "coll_perf": done | changes,
    }


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


def head_of_dump(pid: int, member: int = 2) -> bytes:
    """Of format 4.3."""
    whole = record(pid, member)
    del whole["coll_perf"]
    return lines(whole | {"dump_stats": {"coll_records": 1, "coll_dropped_total": 0}})


def test_prometheus_text_gives_time_and_bandwidth_of_each_operation() -> None:
    report = inspector.read_text(TEXT)
    all_reduce = report.measured[inspector.Operations("DP Group 0", "AllReduce", "4-5GB")]
    assert all_reduce == inspector.Measured(pytest.approx(678.263e9), pytest.approx(9.49847e-3))
    assert report.measured[inspector.Operations("DP Group 0", "Send", "4-5GB")].seconds > 0
    assert not +report.lacks


@pytest.mark.parametrize(
    ("release", "all_reduce"),
    [
        ("2.29.7", inspector.Operations("0x5eed0000c0ffee", "AllReduce", "4.00MB")),
        ("2.30.7", inspector.Operations("DP Group 0", "AllReduce", "4-5MB")),
    ],
)
def test_the_text_that_a_release_has_written_is_read(
    release: str, all_reduce: inspector.Operations
) -> None:
    """That of 2.29 names communicators by their number alone."""
    report = inspector.read_text((WRITTEN / f"{release}.prom").read_text())
    assert report.measured[all_reduce] == inspector.Measured(
        pytest.approx(15.6504e9), pytest.approx(402e-6)
    )
    assert not +report.lacks


@pytest.mark.parametrize("release", ["2.28.3", "2.30.7"])
def test_the_lines_that_a_release_has_written_tell_who_came_last(release: str) -> None:
    report = inspector.read_lines((WRITTEN / f"{release}.log").read_bytes())
    arrivals = inspector.Arrivals()
    for one in report.ended:
        arrivals.add(one)
    members = {one.pid: one.member for one in report.ended}
    arrivals.compare(set(members))
    found = {members[pid]: (one.compared, one.last) for (pid, _), one in arrivals.ranks.items()}
    assert found == {0: (2, 0), 1: (2, 0), 2: (2, 2), 3: (2, 0)}
    assert not +report.lacks


def test_totals_that_an_option_of_inspector_adds_are_passed_over() -> None:
    assert not +inspector.read_text(f'{TEXT}nccl_collectives_dropped_total{{gpu="GPU0"}} 7\n').lacks


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ('nccl_bus_bandwidth_gbs{comm_name="x",collective="AllReduce"} 1', "message_size"),
        (f"nccl_bus_bandwidth_gbs{{{COLLECTIVE}}} -1", "value"),
        (f"nccl_of_a_later_version{{{COLLECTIVE}}} 1", "sample"),
    ],
)
def test_a_sample_that_lacks_something_is_counted_and_the_others_are_read(
    line: str, lacks: str
) -> None:
    report = inspector.read_text(f"{TEXT}{line}\n")
    assert +report.lacks == {lacks: 1}
    assert len(report.measured) == 2


def test_lines_of_json_give_each_collective_and_unknown_fields_are_skipped() -> None:
    later = record(coll_timing_source="kernel_gpu", of_a_later_version=[1])
    later["header"]["comm_name"] = "DP Group 0"
    report = inspector.read_lines(lines(record(), later, {"p2p_perf": {}}))
    assert [one.communicator for one in report.ended] == ["0x7f8c496ae9f661", "DP Group 0"]
    one = report.ended[0]
    assert (one.pid, one.member, one.members, one.op) == (4711, 2, 8, "AllReduce")
    assert (one.sequence, one.seconds, one.bandwidth) == (1407, 0.061974, 485.1e9)
    assert not +report.lacks


def test_lines_of_format_4_3_belong_to_the_head_of_their_dump() -> None:
    """Its README tells it: no release that could be built here writes it."""

    one = lines({"coll_perf": record()["coll_perf"]})
    first = inspector.read_lines(one + head_of_dump(4711, 2) + one + lines({"proxy_trace": {}}))
    assert [done.member for done in first.ended] == [2]
    assert first.lacks == {"header": 1}
    second = inspector.read_lines(one + head_of_dump(4711, 5) + one, first.reporter)
    assert [done.member for done in second.ended] == [2, 5]
    damaged = head_of_dump(4711, 5).replace(b'"pid"', b'"PID"') + one
    assert inspector.read_lines(damaged, second.reporter).lacks == {"pid": 1, "header": 1}


def test_a_line_that_lacks_a_field_is_counted_by_its_name() -> None:
    bad = record()
    del bad["coll_perf"]["coll_sn"]
    report = inspector.read_lines(
        lines(bad, record(coll_exec_time_us=-1), 7) + b"{\n" + b"[" * 9999
    )
    assert not report.ended
    assert report.lacks == {"coll_sn": 1, "line": 4}


def ended(pid: int, sequence: int, seconds: float) -> inspector.Ended:
    return inspector.Ended(pid, "world", pid, 4, "AllReduce", sequence, 1 << 20, seconds, 1e9)


def test_who_comes_last_is_in_the_collective_for_the_shortest_time() -> None:
    arrivals = inspector.Arrivals()
    for sequence in range(10):
        late = 2 if sequence < 8 else 3
        for pid in range(4):
            arrivals.add(ended(pid, sequence, 0.010 if pid == late else 0.030))
    for pid in range(4):  # all of them at once, but for a twentieth
        arrivals.add(ended(pid, 10, 0.030 - 0.0005 * pid))
    arrivals.add(ended(0, 11, 0.030))  # the others have not told yet
    arrivals.compare({0, 1, 2, 3})
    found = {pid: (one.compared, one.last) for (pid, _), one in arrivals.ranks.items()}
    assert found == {0: (11, 0), 1: (11, 0), 2: (11, 8), 3: (11, 2)}
    late = {pid: one.seconds for (pid, _), one in arrivals.ranks.items()}
    assert late == pytest.approx({0: 0, 1: 0, 2: 8 * 0.020, 3: 2 * 0.020})
    arrivals.compare({0, 1})
    assert {pid for pid, _ in arrivals.ranks} == {0, 1}


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[RankDirectory]:
    (tmp_path / "ranks").mkdir()
    mine = {"rank": 3, "world_size": 8, "gpu": "GPU-8f2a"}
    stagewatch.init("train", job_id=540, directory=tmp_path / "ranks", **mine)
    records = RecordDirectory(tmp_path / "ranks", Procfs())
    yield RankDirectory(records, fresh_for=0.0)
    records.close()
    _api.close()


@pytest.fixture
def dumps() -> Iterator[Path]:
    path = Path(f"/dev/shm/test-inspector-{os.getpid()}")
    path.mkdir()
    yield path
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def test_files_are_joined_to_the_rank_whose_gpu_or_process_they_name(
    ranks: RankDirectory, dumps: Path
) -> None:
    collector = InspectorCollector(dumps, ranks)
    with pytest.raises(NoData):
        collector.collect()
    (dumps / "nccl_inspector_metrics_8f2a.prom").write_text(TEXT)
    (dumps / "nccl_inspector_metrics_other.prom").write_text(TEXT + "nonsense\n")
    file = dumps / f"n-pid{os.getpid()}.log"
    file.write_bytes(lines(record(os.getpid()), record(os.getpid() + 1)) + b'{"half')
    out = collector.collect()
    key = "540", "train", "3"
    assert out.value(SECONDS, *key, "DP Group 0", "AllReduce", "4-5GB") == pytest.approx(
        9.498e-3, rel=1e-3
    )
    assert out.value(BANDWIDTH, *key, "DP Group 0", "AllReduce", "4-5GB") == pytest.approx(
        6.78e11, rel=1e-3
    )
    mine = *key, "0x7f8c496ae9f661", "AllReduce", f"{1 << 30}B"
    assert out.value(SECONDS, *mine) == pytest.approx(0.061974)
    assert out.value(LACKING, "sample") == 1
    assert len(out.families[SECONDS]) == 3
    assert COMPARED not in out.families and LAST not in out.families
    with file.open("ab") as more:  # the rest of the line
        more.write(lines(record(os.getpid(), coll_exec_time_us=1000))[6:])
    assert collector.collect().value(SECONDS, *mine) is None  # it was `{"half` and no line of JSON
    for part in (head_of_dump(os.getpid()), lines({"coll_perf": record()["coll_perf"]})):
        with file.open("ab") as more:
            more.write(part)
        out = collector.collect()
    assert out.value(SECONDS, *mine) == pytest.approx(0.061974)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_user_who_writes_much_is_read_little_by_little_and_a_stranger_not_at_all(
    ranks: RankDirectory, dumps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = lines(record(os.getpid()))
    monkeypatch.setattr("stagewatch.ranks.nccl.collector.MAX_USER_BYTES", 2 * len(one))
    collector = InspectorCollector(dumps, ranks)
    for number in range(5):
        (dumps / f"n{number}-pid{os.getpid()}.log").write_bytes(b"nonsense\n" + one)
    stranger = dumps / "nccl_inspector_metrics_8f2a.prom"
    stranger.write_text("nonsense\n")
    os.chown(stranger, 60_000, 60_000)
    told = [collector.collect().value(LACKING, "line") for _ in range(4)]
    assert told == [2, 2, 1, None]


def test_a_directory_that_is_not_in_memory_is_left_alone(ranks: RankDirectory) -> None:
    with pytest.raises(SourceError, match="is not in memory"):
        InspectorCollector(Path("/usr"), ranks).collect()
