"""Whole checkpoints, and what is told of those that are not."""

from __future__ import annotations

import os
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.checkpoint.find import find
from stagewatch.checkpoint.formats import Fault
from stagewatch.checkpoint.inventory import inventory
from stagewatch.checkpoint.pickles import Unreadable, read
from stagewatch.checkpoint.verify import Report, TimeIsUp, verify
from tests.checkpoint import written
from tests.checkpoint.written import write


def verified(root: Path, before: Path | None = None) -> Report:
    earlier = inventory(before, [before], follow=False) if before else None
    return verify(inventory(root, [root], follow=False), earlier)


def faults(root: Path, before: Path | None = None) -> list[tuple[str, str]]:
    return [(fault.kind, fault.name) for fault in verified(root, before).faults]


def fault(root: Path) -> Fault:
    (found,) = verified(root).faults
    return found


WRITERS = [written.distributed, written.hugging_face, written.deepspeed, written.megatron]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_checkpoint_is_whole_as_it_was_written_and_not_with_any_file_cut_in_half(
    writer: Callable[[Path], Path], tmp_path: Path
) -> None:
    root = writer(tmp_path)
    report = verified(root)
    assert (report.faults, report.doubts) == ([], [])
    assert report.checked >= 4
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix != ".txt" and path.name != "latest":
            raw = path.read_bytes()
            path.write_bytes(raw[: len(raw) // 2])
            assert str(path.relative_to(root)) in [name for _, name in faults(root)], path
            path.write_bytes(raw)


@pytest.mark.parametrize(
    ("writer", "gone"),
    [
        (written.distributed, "__3_0.distcp"),
        (written.distributed, ".metadata"),
        (written.hugging_face, "model-00003-of-00003.safetensors"),
        (written.hugging_face, "rng_state_1.pth"),
        (written.deepspeed, "global_step10/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
        (written.megatron, "iter_0000120/mp_rank_01_001/model_optim_rng.pt"),
    ],
)
def test_a_file_that_is_missing_is_told_by_its_name(
    writer: Callable[[Path], Path], gone: str, tmp_path: Path
) -> None:
    root = writer(tmp_path)
    (root / gone).unlink()
    assert faults(root) == [("missing", gone)]


def test_ranks_that_are_missing_at_the_end_are_told_by_the_world_that_the_file_tells(
    tmp_path: Path,
) -> None:
    root = written.megatron(tmp_path, tensor=2, pipeline=2)
    for rank in ("mp_rank_01_000", "mp_rank_01_001"):
        (root / "iter_0000120" / rank / "model_optim_rng.pt").unlink()
    assert len(faults(root)) == 2


def test_names_that_tell_how_many_there_are_count_them(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        write(tmp_path / "actor" / f"model_world_size_4_rank_{rank}.pt", written.torch_zip())
    assert faults(tmp_path) == [("missing", "actor/model_world_size_4_rank_2.pt")]


def test_a_shard_without_a_tensor_that_the_index_names_is_told(tmp_path: Path) -> None:
    root = written.hugging_face(tmp_path)
    file = write(root / "model-00002-of-00003.safetensors", written.safetensors("a.2"))
    assert fault(root).name == file.name
    assert "b.2" in fault(root).why


def test_a_file_of_the_right_size_that_was_never_written_is_told(tmp_path: Path) -> None:
    root = written.distributed(tmp_path)
    shard = root / "__2_0.distcp"
    shard.write_bytes(bytes(shard.stat().st_size))
    assert "never written" in fault(root).why
    written.distributed(root)
    (root / "model.pt").write_bytes(bytes(1 << 20))
    assert fault(root).name == "model.pt"


def test_weights_must_be_there_where_the_trainer_left_its_state(tmp_path: Path) -> None:
    root = written.hugging_face(tmp_path, shards=1)
    (root / "model.safetensors.index.json").unlink()
    (root / "model-00001-of-00001.safetensors").unlink()
    assert faults(root) == [("missing", "model.safetensors")]


def test_a_checkpoint_is_held_against_the_one_before(tmp_path: Path) -> None:
    before, now = tmp_path / "step_1", tmp_path / "step_2"
    for root in (before, now):
        write(root / "step.pt", written.torch_zip(payload=100_000))
        write(root / "old.bin", b"raw" * 10_000)
        write(root / "optimizer.pt", written.torch_zip())
        write(root / "rank_0.pt", written.torch_zip())
        write(root / "rank_1.pt", written.torch_zip())
    assert not faults(now, before)
    write(now / "step.pt", written.torch_zip(payload=10))  # its header says that it is whole
    write(now / "old.bin", b"raw" * 5_000)
    (now / "optimizer.pt").unlink()
    (now / "rank_1.pt").unlink()
    assert faults(now, before) == [("missing", "optimizer.pt"), ("smaller", "old.bin")]
    write(now / "rank_0.pt.tmp", "x")
    begun, fewer = verified(now, before).doubts
    assert "rank_0.pt.tmp was begun" in begun
    assert "rank_1.pt" in fewer, "a job may have fewer ranks now"


def test_a_hundred_gigabytes_are_verified_by_their_headers(tmp_path: Path) -> None:
    """Sparse files of their full length; the bytes read are counted by the kernel."""
    length = 100 * 10**9
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (length, length)
    file = write(tmp_path / "model.safetensors", struct.pack("<Q", len(header)) + header)
    os.truncate(file, 8 + len(header) + length)
    zipped = write(tmp_path / "optimizer.pt", b"")
    big = written.torch_zip(payload=16)
    # A zip64 whose pickle stands first, and whose directory lies behind a hole of 100 GB.
    directory = _directory(big, length)
    with zipped.open("r+b") as out:
        out.write(big[: big.index(b"PK\x01\x02")])
        out.seek(length)
        out.write(directory)
    before = _bytes_read()
    report = verified(tmp_path)
    assert report.faults == []
    assert (report.checked, report.bytes > 2 * length) == (2, True)
    assert _bytes_read() - before < 1 << 20
    os.truncate(file, length)
    os.truncate(zipped, length)
    assert faults(tmp_path) == [("short", "model.safetensors"), ("short", "optimizer.pt")]


def _directory(small: bytes, start: int) -> bytes:
    """The directory of a small zip as it stands at `start`, with zip64's end."""
    at, end = small.index(b"PK\x01\x02"), small.index(b"PK\x05\x06")
    (count,) = struct.unpack_from("<H", small, end + 10)
    length = end - at
    end64 = struct.pack(
        "<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, start
    )
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, start + length, 1)
    wide = 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF
    return (
        small[at:end] + end64 + locator + struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, *wide, 0)
    )


def _bytes_read() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def test_a_look_ends_when_its_time_is_up(tmp_path: Path) -> None:
    root = written.distributed(tmp_path)
    write(root / "model.pt", written.torch_zip())
    with pytest.raises(TimeIsUp):
        verify(inventory(root, [root], follow=False), until=0.0, clock=lambda: 1.0)


class Evil:
    """Unpickled, it would make a file."""

    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("touch EVIL",))


def test_nothing_in_a_pickle_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "c" / ".metadata", pickle.dumps(Evil()))
    write(tmp_path / "c" / "mp_rank_00_model_states.pt", written.torch_zip(Evil()))
    verified(tmp_path / "c")
    assert not (tmp_path / "EVIL").exists()


def test_tuples_that_hold_each_other_cost_no_more_than_their_bytes() -> None:
    """Hashed, they would take two to the power of their depth; a memo's number takes no room."""
    pairs = b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(100))
    as_a_key = read(b"\x80\x02)q\x00" + pairs + b"}hdK\x01s.")
    assert len(as_a_key.items) == 1
    assert read(b"\x80\x02K\x07r\xff\xff\xff\x7f.") == 7


@settings(max_examples=200, deadline=None)
@given(st.integers(0), st.integers(0, 400))
def test_no_bytes_harm_the_reader_of_pickles(seed: int, at: int) -> None:
    raw = bytearray(pickle.dumps({"dp_world_size": 4, "args": [1.5, (2, "x"), None]}, 4))
    noise = random.Random(seed).randbytes(8)
    raw[at % len(raw) : at % len(raw) + 8] = noise
    try:
        read(bytes(raw))
    except Unreadable:
        return


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "x\0y"])
def test_metadata_lead_to_no_file_outside(name: str, tmp_path: Path) -> None:
    index = written.MetadataIndex("a"), written.StorageInfo(name, 0, 10)
    write(tmp_path / ".metadata", pickle.dumps(written.Metadata({index[0]: index[1]})))
    assert [kind for kind, _ in faults(tmp_path)] == ["missing"]


def test_a_pipe_is_no_checkpoint_and_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pt")
    write(tmp_path / "other.pt", written.torch_zip())
    assert verified(tmp_path).files == 1


def test_the_checkpoint_that_a_job_resumes_from_is_found(tmp_path: Path) -> None:
    root = written.megatron(tmp_path / "megatron", 120)
    written.megatron(root, 240)
    write(root / "latest_checkpointed_iteration.txt", "120\n")
    found = find(root)
    assert [path.name for path in found.paths] == ["iter_0000120"]
    write(root / "latest_checkpointed_iteration.txt", "360\n")
    lost = find(root)
    assert (lost.lost, lost.pointer) == ("iter_0000360", "latest_checkpointed_iteration.txt")
    steps = tmp_path / "steps"
    for step, when in ((9, 100), (10, 200)):
        os.utime(write(steps / f"step_{step}.pt", written.torch_zip()), (when, when))
    newest = find(steps)
    assert ([p.name for p in newest.paths], [p.name for p in newest.before]) == (
        ["step_10.pt"],
        ["step_9.pt"],
    )
    own = written.hugging_face(tmp_path / "out" / "checkpoint-20")
    written.hugging_face(tmp_path / "out" / "checkpoint-10")
    itself = find(own)
    assert (itself.paths, [p.name for p in itself.before]) == ((own,), ["checkpoint-10"])
    (tmp_path / "empty").mkdir()
    assert find(tmp_path / "empty") is None
