"""Eight real processes call the plugin as NCCL does; its files say what each of them has open."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch.ranks.nccl.layout import SIZE, Transfer, parse
from tests.nccl.ring import SANITIZERS, Fault, Ring, built
from tests.waiting import wait_for

AT = 7
SIZE_IN_BYTES = 2 << 20

Rings = Callable[..., Ring]


def states(ring: Ring) -> list[tuple[str, int]]:
    return [(one.state, one.sequence) for one in ring.still() if one]


@pytest.mark.parametrize("version", [4, 5, 6])
def test_ranks_that_end_leave_no_file_with_each_version_of_the_interface(
    ring: Rings, version: int
) -> None:
    eight = ring()
    eight.start(AT, version=version)
    assert eight.finish() == [0] * 8
    assert not list(eight.directory.iterdir())


@pytest.mark.parametrize("version", [3, 7])
def test_any_other_version_finds_no_plugin(ring: Rings, version: int) -> None:
    one = ring(ranks=1)
    one.start(AT, version=version, network=False)
    assert one.finish() == [0]
    assert one.logs[0].read_text() == "no profiler\n"
    assert not list(one.directory.iterdir())


def test_a_rank_that_never_calls_has_the_operation_before_and_the_others_wait_in_this_one(
    ring: Rings,
) -> None:
    eight = ring()
    eight.start(AT, Fault.NOT_CALLED, victim=5, at=AT)
    assert states(eight) == [("idle", AT - 1) if rank == 5 else ("begun", AT) for rank in range(8)]
    told = eight.still()[0]
    assert (told.op, told.size, told.name, told.members) == (
        "all_reduce",
        SIZE_IN_BYTES,
        "world",
        8,
    )


def test_a_rank_that_launches_nothing_is_inside_of_the_call(ring: Rings) -> None:
    eight = ring()
    eight.start(AT, Fault.NOT_LAUNCHED, victim=5, at=AT)
    assert states(eight)[5] == ("called", AT - 1)


def test_a_kernel_that_never_begins_is_launched(ring: Rings) -> None:
    eight = ring()
    eight.start(AT, Fault.NOT_BEGUN, victim=2, at=AT, network=False)
    assert states(eight) == [("launched" if rank == 2 else "begun", AT) for rank in range(8)]


def test_the_proxy_waits_for_bytes_of_the_rank_before_whose_network_keeps_them(ring: Rings) -> None:
    eight = ring()
    eight.start(AT, Fault.LOST, victim=3, at=AT, environ={"NCCL_IB_HCA": "mlx5_2:1"})
    found = eight.still()
    three, four = found[3], found[4]
    assert three and Transfer("network", 4, "mlx5_2") in three.transfers
    assert four and Transfer("receive", 3, "mlx5_2") in four.transfers
    assert not [
        one
        for rank, told in enumerate(found)
        if told and rank != 3
        for one in told.transfers
        if one.waits == "network"
    ]


def test_a_gpu_that_takes_nothing_more_waits_for_no_peer(ring: Rings) -> None:
    eight = ring()
    eight.start(AT, Fault.GPU_STUCK, victim=6, at=AT)
    found = eight.still()
    assert [one.transfers for one in found if one and one.member == 6] == [()]
    assert found[7] and [one.peer for one in found[7].transfers if one.waits == "receive"] == [6]


def test_a_proxy_waits_for_a_buffer_of_the_rank_after_it(ring: Rings) -> None:
    eight = ring()
    eight.start(AT, Fault.NO_BUFFER, victim=6, at=AT)
    found = eight.still()
    assert found[5] and Transfer("credit", 6) in found[5].transfers
    assert [one.transfers for one in found if one and one.member == 6] == [()]


@pytest.mark.parametrize("sanitizer", [name for name in SANITIZERS if name != "plain"])
def test_nothing_is_found_by_a_sanitizer(ring: Rings, tmp_path: Path, sanitizer: str) -> None:
    programs = built(tmp_path, *SANITIZERS[sanitizer])
    eight = ring(programs)
    eight.start(AT, version=6)
    assert eight.finish() == [0] * 8, [log.read_text() for log in eight.logs]
    hung = ring(programs)
    hung.start(AT, Fault.LOST, victim=3, at=AT)
    hung.still()
    for done, logs in ((AT, eight.logs), (AT - 1, hung.logs)):
        whole = [str(number + 1) for number in range(done)]
        assert [log.read_text().split() for log in logs] == [whole] * 8


def test_whoever_is_killed_at_any_moment_leaves_a_file_that_can_be_read(ring: Rings) -> None:
    dice = random.Random(36)
    for _ in range(3):
        four = ring(ranks=4)
        four.start(100_000)
        pids = [process.pid for process in four.processes]
        wait_for(lambda pids=pids, four=four: len(four.files.read(pids)) == 4, "four files")
        time.sleep(dice.uniform(0.0, 0.2))
        victim = dice.choice(four.processes)
        victim.kill()
        victim.wait()
        assert victim.pid not in four.files.read(pids)
        (file,) = four.directory.glob(f"{victim.pid}-*.nccl")
        (left,) = parse(file.read_bytes())
        assert (left.name, left.members) == ("world", 4)
        four.close()


def test_whoever_is_killed_while_it_starts_leaves_nothing_that_cannot_be_told(ring: Rings) -> None:
    dice = random.Random(36)
    for _ in range(12):
        four = ring(ranks=4)
        four.start(100_000)
        time.sleep(dice.uniform(0.0, 0.01))
        four.close()
        for file in four.directory.glob("*.nccl"):
            content = file.read_bytes()
            if any(content[:8]):  # else it is not complete
                assert {one.name for one in parse(content)} <= {"world"}


def test_a_rank_without_a_directory_goes_on_without_a_file(
    plain: tuple[Path, Path], tmp_path: Path
) -> None:
    plugin, harness = plain
    words = [harness, plugin, 5, "", 0, 1, 3]
    environ = {"STAGEWATCH_DIR": str(tmp_path / "missing")}
    done = subprocess.run(list(map(str, words)), env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n2\n3\n")


def test_files_of_killed_processes_go_after_a_while_and_those_of_living_ones_stay(
    ring: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = ring(ranks=2)
    two.start(AT, Fault.NOT_CALLED, victim=1, at=2)
    two.still()
    two.processes[0].kill()
    two.processes[0].wait()
    (two.directory / f"{two.processes[0].pid}-00000000.nccl").touch()  # killed in the midst of init
    two.files.tidy()
    assert len(list(two.directory.iterdir())) == 3
    monkeypatch.setattr("stagewatch.ranks.nccl.files.GRACE_SECONDS", -1.0)
    two.files.tidy()
    (left,) = two.directory.iterdir()
    assert left.name.startswith(f"{two.processes[1].pid}-")
    assert left.stat().st_size == SIZE
