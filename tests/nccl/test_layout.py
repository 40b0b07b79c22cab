"""What is read out of the plugin's file, whatever stands in it."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.nccl.files import NcclFiles
from stagewatch.ranks.nccl.layout import CorruptFile, Transfer, parse
from tests.bench.bench_fuzz import fuzz
from tests.bench.fuzzing.target import Target
from tests.nccl.made import HEADER, RING_AT, SEEDS, changed, made


def test_the_open_operation_is_the_first_that_has_not_ended() -> None:
    (one,) = parse(made())
    assert (one.id, one.name, one.member, one.members) == ("0000000000005eed", "world", 3, 8)
    assert (one.op, one.sequence, one.size, one.state) == ("all_reduce", 300, 2 << 20, "begun")
    assert one.transfers == (Transfer("network", 4, "mlx5_2"), Transfer("receive", 2, "mlx5_2"))


@pytest.mark.parametrize(
    ("begun", "done", "state", "sequence"),
    [(300, 300, "idle", 300), (299, 299, "launched", 300), (298, 298, "launched", 299)],
)
def test_what_has_ended_and_what_has_not_begun(
    begun: int, done: int, state: str, sequence: int
) -> None:
    (one,) = parse(made(begun=begun, done=done))
    assert (one.state, one.sequence, one.transfers) == (state, sequence, ())


def test_an_operation_that_the_ring_has_overwritten_is_not_guessed() -> None:
    assert parse(made(begun=10, done=10)) == ()


def test_a_communicator_that_is_gone_is_not_told() -> None:
    assert parse(made(open_=0)) == ()


def test_an_operation_whose_words_do_not_belong_together_is_left_out() -> None:
    """Its writer was killed between the two: this is how far it had come before."""
    file = bytearray(made(300, begun=299, done=299))
    at = HEADER + RING_AT + 16 * (300 % 256)
    struct.pack_into("<Q", file, at, 44 << 32 | 44)
    (one,) = parse(bytes(file))
    assert (one.state, one.sequence) == ("idle", 299)


@pytest.mark.parametrize(
    ("at", "value"), [(0, b"x"), (8, b"\2"), (HEADER + 8, b"\x09"), (HEADER + 20, b"\2")]
)
def test_a_file_that_no_plugin_of_this_version_writes_is_refused(at: int, value: bytes) -> None:
    file = bytearray(made())
    file[at : at + 1] = value
    with pytest.raises(CorruptFile):
        parse(bytes(file))


def test_thousands_of_changed_files_crash_nothing() -> None:
    target = Target("NCCL's operations", SEEDS, parse, 1.0, (CorruptFile,), changed)
    outcome = fuzz(target, 4000)
    assert not outcome.crashes
    assert 0 < outcome.refused < outcome.inputs


def test_of_a_process_with_many_files_one_is_read(tmp_path: Path) -> None:
    code = """if True:
        import fcntl, os, pathlib, sys
        made, kept = pathlib.Path(sys.argv[1]).read_bytes(), []
        for number in range(3):
            file = open(f"{sys.argv[2]}/{os.getpid()}-{number:08x}.nccl", "xb", buffering=0)
            file.write(made)
            fcntl.lockf(file, fcntl.LOCK_EX)
            kept.append(file)
        print("made", flush=True)
        sys.stdin.read()
    """
    (tmp_path / "made").write_bytes(made())
    (tmp_path / "ranks").mkdir()
    command = [sys.executable, "-c", code, str(tmp_path / "made"), str(tmp_path / "ranks")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"made\n"
        found = NcclFiles(tmp_path / "ranks", Procfs()).read({process.pid})
        process.kill()
    assert [len(those) for those in found.values()] == [1]
