"""Checkpoints that PyTorch and safetensors themselves have written, whole and broken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stagewatch.checkpoint.inventory import inventory
from stagewatch.checkpoint.verify import Report, verify

torch: Any = pytest.importorskip("torch", reason="torch is not installed: make test-frameworks")

pytestmark = pytest.mark.filterwarnings("ignore")  # those of torch itself


def verified(root: Path) -> Report:
    return verify(inventory(root, [root], follow=False))


def state(size: int = 256) -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.Linear(size, size))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, size)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}


def every_cut_is_seen(root: Path) -> int:
    """Cut each file at several places; how many cuts there were."""
    cuts = 0
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        raw = path.read_bytes()
        for cut in {0, 1, 50, len(raw) // 3, len(raw) // 2, len(raw) - 1} - {len(raw)}:
            os.truncate(path, cut)
            assert str(path.relative_to(root)) in [one.name for one in verified(root).faults], cut
            path.write_bytes(raw)
            cuts += 1
    assert verified(root).whole
    return cuts


def test_torch_save(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "model.pt")
    report = verified(tmp_path)
    assert (report.faults, report.checked) == ([], 1)
    assert every_cut_is_seen(tmp_path) == 6


def test_the_old_format_of_torch_save_is_not_accused(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    report = verified(tmp_path)
    assert (report.faults, report.checked) == ([], 0)


def test_safetensors(tmp_path: Path) -> None:
    writer = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    writer.save_file(state()["model"], tmp_path / "model.safetensors")
    assert verified(tmp_path).checked == 1
    assert every_cut_is_seen(tmp_path) == 6


def test_distributed_checkpoint(tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    writer = checkpoint.FileSystemWriter(tmp_path, thread_count=4)
    checkpoint.save(state(), storage_writer=writer, no_dist=True)
    report = verified(tmp_path)
    assert (report.faults, report.doubts) == ([], [])
    assert report.files == 5
    assert every_cut_is_seen(tmp_path) > 20
    (tmp_path / "__0_0.distcp").unlink()
    assert [(one.kind, one.name) for one in verified(tmp_path).faults] == [
        ("missing", "__0_0.distcp")
    ]


def test_a_real_distributed_save_of_ranks(tmp_path: Path) -> None:
    """Four processes over gloo, each with its shard; then one shard is lost."""
    multiprocessing = pytest.importorskip("torch.multiprocessing")
    multiprocessing.spawn(_save, (4, str(tmp_path)), nprocs=4)
    root = tmp_path / "step_3"
    report = verified(root)
    assert (report.faults, report.files) == ([], 5)
    assert every_cut_is_seen(root) > 20
    (root / "__2_0.distcp").unlink()
    assert [one.name for one in verified(root).faults] == ["__2_0.distcp"]


def _save(rank: int, world: int, directory: str) -> None:
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    store = f"file://{directory}/store"
    init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    sharded = distribute_tensor(torch.ones(64, 64), mesh, [Shard(0)])
    checkpoint.save({"w": sharded, "step": 3}, checkpoint_id=f"{directory}/step_3")
    destroy_process_group()
