"""Checkpoints byte by byte, in the shapes that trainers write; no torch is needed."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any


class MetadataIndex:
    """Stands for torch's class of the name."""

    def __init__(self, fqn: str) -> None:
        self.fqn = fqn


class StorageInfo(MetadataIndex):
    """The same."""

    def __init__(self, path: str, offset: int, length: int) -> None:
        self.relative_path, self.offset, self.length = path, offset, length


class Metadata:
    """The same."""

    def __init__(self, storage_data: dict[MetadataIndex, StorageInfo]) -> None:
        self.state_dict_metadata: dict[str, Any] = {}
        self.storage_data = storage_data


def torch_zip(value: object = None, payload: int = 4096) -> bytes:
    """What `torch.save` writes: an uncompressed zip with the pickle and the storages."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, 2))
        archive.writestr("archive/data/0", b"\x07" * payload)
        archive.writestr("archive/version", b"3\n")
    return raw.getvalue()


def safetensors(*names: str, length: int = 1024) -> bytes:
    """A file of tensors of bytes."""
    header = {
        name: {
            "dtype": "U8",
            "shape": [length],
            "data_offsets": [number * length, (number + 1) * length],
        }
        for number, name in enumerate(names)
    }
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return struct.pack("<Q", len(raw)) + raw + b"\x07" * (length * len(names))


def write(path: Path, raw: bytes | str) -> Path:
    """A file with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw.encode() if isinstance(raw, str) else raw)
    return path


def distributed(root: Path, shards: int = 4, pieces: int = 3) -> Path:
    """A checkpoint of `torch.distributed.checkpoint`."""
    stored = {}
    for shard in range(shards):
        raw = b""
        for number in range(pieces):
            piece = torch_zip(number)
            place = StorageInfo(f"__{shard}_0.distcp", len(raw), len(piece))
            stored[MetadataIndex(f"layer.{shard}.{number}")] = place
            raw += piece
        write(root / f"__{shard}_0.distcp", raw)
    write(root / ".metadata", pickle.dumps(Metadata(stored)))
    return root


def hugging_face(root: Path, shards: int = 3) -> Path:
    """What the Trainer writes, with an index of safetensors."""
    weights = {}
    for shard in range(1, shards + 1):
        file = f"model-{shard:05}-of-{shards:05}.safetensors"
        write(root / file, safetensors(f"a.{shard}", f"b.{shard}"))
        weights |= {f"a.{shard}": file, f"b.{shard}": file}
    index = {"metadata": {"total_size": 1}, "weight_map": weights}
    write(root / "model.safetensors.index.json", json.dumps(index))
    write(root / "optimizer.pt", torch_zip())
    for rank in range(4):
        write(root / f"rng_state_{rank}.pth", torch_zip())
    write(root / "trainer_state.json", json.dumps({"global_step": 10}))
    return root


def deepspeed(root: Path, tag: str = "global_step10", ranks: int = 4) -> Path:
    """ZeRO of stage 2, with the file that names the tag."""
    state = {"module": {}, "dp_world_size": ranks, "mp_world_size": 1}
    write(root / tag / "mp_rank_00_model_states.pt", torch_zip(state))
    for rank in range(ranks):
        file = f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        write(root / tag / file, torch_zip({"rank": rank}))
    write(root / "latest", tag)
    return root


class Namespace:
    """Stands for the arguments of Megatron-LM."""

    def __init__(self, **values: int) -> None:
        self.__dict__ |= values


def megatron(root: Path, iteration: int = 120, tensor: int = 2, pipeline: int = 2) -> Path:
    """Megatron-LM's own format."""
    arguments = Namespace(tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline)
    for one in range(tensor):
        for two in range(pipeline):
            rank = f"mp_rank_{one:02}" + (f"_{two:03}" if pipeline > 1 else "")
            file = root / f"iter_{iteration:07}" / rank / "model_optim_rng.pt"
            write(file, torch_zip({"args": arguments, "iteration": iteration}))
    write(root / "latest_checkpointed_iteration.txt", f"{iteration}")
    return root
