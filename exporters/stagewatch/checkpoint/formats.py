"""The files that a checkpoint must have, by its own metadata and names.

Each function yields the faults by the rules of one format: PyTorch's distributed checkpoints, an
index of safetensors or of shards, numbers in names, DeepSpeed, Megatron, the Trainer of Hugging
Face.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from zipfile import ZIP_STORED

from stagewatch.checkpoint import headers
from stagewatch.checkpoint.inventory import Inventory
from stagewatch.checkpoint.pickles import Node, Unreadable, read

MAX_PICKLE = 64 << 20
"""The most bytes of metadata that are read: some 100,000 tensors."""
MAX_INDEX = 64 << 20
MAX_SHARDS = 1_000_000
_ENDS = 4096
"""The most pieces of one file of PyTorch whose beginnings are read, evenly spread."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One file that is not as it must be."""

    kind: str
    """`missing`, `short`, `unreadable` or `smaller`."""
    name: str
    why: str


class Undecided(Exception):
    """The metadata of a format cannot be read within the limits."""


def missing(name: str, why: str) -> Fault:
    """A file that is not there."""
    return Fault("missing", name, why)


def distributed(files: Inventory) -> Iterator[Fault]:
    """`torch.distributed.checkpoint`: `.metadata`, written last, says where each piece lies."""
    shards = {_parent(name) for name in files.sizes if name.endswith(".distcp")}
    for name in files.sizes:
        if _base(name) == ".metadata":
            shards.discard(_parent(name))
            yield from _pieces(files, name)
    for directory in sorted(shards):
        yield missing(_join(directory, ".metadata"), "it is written last: the save did not end")


def _pieces(files: Inventory, name: str) -> Iterator[Fault]:
    size = files.sizes[name]
    if size > MAX_PICKLE:
        raise Undecided(f"{name} has {size:,} bytes")
    try:
        with files.open(name) as file:
            metadata = read(file.read(size))
    except Unreadable:
        yield Fault("unreadable", name, "it is cut short, or no pickle of metadata")
        return
    stored = metadata.get("storage_data") if isinstance(metadata, Node) else None
    if not isinstance(stored, Node):
        raise Undecided(f"{name} does not say where the pieces are")
    pieces: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for _, place in stored.items:
        path, at, length = (place.get(key) for key in ("relative_path", "offset", "length"))
        if not (isinstance(path, str) and isinstance(at, int) and isinstance(length, int)):
            raise Undecided(f"{name} does not say where the pieces are")
        pieces[path].append((at, length))
    for path, places in sorted(pieces.items()):
        shard = _join(_parent(name), path)
        has, needs = files.sizes.get(shard), max(at + length for at, length in places)
        if has is None:
            yield missing(shard, f"1 of {len(pieces)} files that {name} names")
        elif has < needs:
            yield Fault("short", shard, f"it is cut short: {has:,} of {needs:,} bytes")
        elif hole := _unwritten(files, shard, places):
            yield Fault("unreadable", shard, hole)


def _unwritten(files: Inventory, shard: str, places: list[tuple[int, int]]) -> str:
    """Words for a piece that was never written, although the file is long enough; empty for
    none."""
    with files.open(shard) as file:
        for at, length in sorted(places)[:: 1 + len(places) // _ENDS]:
            head = os.pread(file.fileno(), min(length, 32), at)
            if len(head) == 32 and not any(head):
                return f"its piece at byte {at:,} is zeros: it was never written to the disk"
            if head.startswith(headers.LOCAL) and not os.pread(
                file.fileno(), 4, at + length - 22
            ).startswith(headers.END):
                return f"its piece at byte {at:,} does not end as it must"
    return ""


def indexed(files: Inventory) -> Iterator[Fault]:
    """`*.index.json` of Hugging Face: each tensor's file, and of safetensors the tensors in it."""
    for name in [one for one in files.sizes if one.endswith(".index.json")]:
        try:
            index = json.loads(files.text(name, MAX_INDEX) or "")
            named: dict[str, Any] = index["weight_map"]
            shards: dict[str, set[str]] = defaultdict(set)
            for tensor, shard in named.items():
                shards[_join(_parent(name), str(shard))].add(tensor)
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            continue  # a broken one is told by its header's check; of another kind: it counts none
        for shard, tensors in sorted(shards.items()):
            if shard not in files.sizes:
                yield missing(shard, f"1 of {len(shards)} files that {_base(name)} names")
            elif shard.endswith(".safetensors"):
                with files.open(shard) as file:
                    held, _ = headers.safetensors_header(file, files.sizes[shard])
                if isinstance(held, dict) and (lacks := tensors - held.keys()):
                    why = f"it lacks {len(lacks):,} tensors that {_base(name)} names, as "
                    yield Fault("unreadable", shard, why + min(lacks)[:100])


_OF = re.compile(r"(\d{5})-of-(\d{5})")
_WORLD = re.compile(r"world_size_(\d{1,7})_rank_(\d{1,7})")


def counted(files: Inventory) -> Iterator[Fault]:
    """Names that state the number of files: `-00001-of-00004`, `world_size_8_rank_0` of verl."""
    for pattern, total, first in ((_OF, 2, 1), (_WORLD, 1, 0)):
        sets: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
        for name in files.sizes:
            if found := pattern.search(name):
                template = f"{name[: found.start()]}\0{name[found.end() :]}"
                sets[template, int(found[total])][int(found[3 - total])] = name
        for (_, count), have in sets.items():
            example = next(iter(have.values()))
            for number in range(first, min(count, MAX_SHARDS) + first):
                if number not in have:
                    told = pattern.search(example)
                    assert told  # noqa: S101 - it was found by it
                    width = len(told[3 - total])
                    at, end = told.span(3 - total)
                    lacking = f"{example[:at]}{number:0{width}}{example[end:]}"
                    yield missing(lacking, f"1 of {count} by their names")


_RANK = re.compile(r"((?:rank|rng_state)_?)(\d{1,7})(?:_(\d{1,7}))?(?:_(\d{1,7}))?(?=\D|$)")


def numbered(files: Inventory, least: dict[str, int] | None = None) -> Iterator[Fault]:
    """Names with ranks of one or more dimensions (`mp_rank_01_003`): every rank must be there.

    `least`: the number of ranks in dimensions such as `zero_pp_rank` and `mp_rank`, if a file
    states it."""
    sets: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for name in files.sizes:
        if not _WORLD.search(name):
            template = _RANK.sub(_blank, name)
            if template != name:
                sets[template].add(tuple(map(int, _numbers(name))))
    for template, have in sets.items():
        sizes = [1 + max(numbers) for numbers in zip(*have, strict=True)]
        for place, label in enumerate(re.findall(r"(\w*)\0", template)):
            if least and (told := least.get(label.strip("_"))):
                sizes[place] = max(sizes[place], told)
        total = 1
        for size in sizes:
            total *= size
        if total > MAX_SHARDS:
            raise Undecided(f"ranks in {template!r} are too many")
        if total > len(have):
            example = next(name for name in files.sizes if _RANK.sub(_blank, name) == template)
            widths = [len(number) for number in _numbers(example)]
            for numbers in itertools.product(*map(range, sizes)):
                if numbers not in have:
                    name = template
                    for number, width in zip(numbers, widths, strict=True):
                        name = name.replace("\0", f"{number:0{width}}", 1)
                    yield missing(name, f"1 of {total} ranks")


def _blank(found: re.Match[str]) -> str:
    return found[1] + "_".join("\0" for number in found.groups()[1:] if number is not None)


def _numbers(name: str) -> list[str]:
    found = _RANK.finditer(name)
    return [number for one in found for number in one.groups()[1:] if number is not None]


def deepspeed(files: Inventory) -> Iterator[Fault]:
    """DeepSpeed: a file of model states has the number of ranks that saved."""
    for name in sorted(files.sizes):
        if re.fullmatch(r"(?:zero_pp_rank_0_)?mp_rank_00_model_states\.pt", _base(name)):
            state = _torch_pickle(files, name)
            least = {
                "zero_pp_rank": _count(state.get("dp_world_size")),
                "bf16_zero_pp_rank": _count(state.get("dp_world_size")),
                "mp_rank": _count(state.get("mp_world_size")),
            }
            yield from _ranks_of(files, _parent(name), least)
            return
    yield from numbered(files)


def megatron(files: Inventory) -> Iterator[Fault]:
    """Megatron-LM: the arguments in rank 0's file give the sizes of its two parallel dimensions."""
    for name in sorted(files.sizes):
        if re.search(r"(?:^|/)mp_rank_00(?:_000)?/model_optim_rng\.pt$", name):
            arguments = _torch_pickle(files, name).get("args")
            if not isinstance(arguments, Node):
                return
            tensor = _count(arguments.get("tensor_model_parallel_size"))
            pipeline = _count(arguments.get("pipeline_model_parallel_size"))
            for place in itertools.product(range(tensor), range(pipeline)):
                rank = f"mp_rank_{place[0]:02}" + (f"_{place[1]:03}" if pipeline > 1 else "")
                file = name.replace("mp_rank_00_000" if pipeline > 1 else "mp_rank_00", rank)
                if file not in files.sizes:
                    yield missing(file, f"1 of {tensor} x {pipeline} by the arguments saved")
            return


def hugging_face(files: Inventory) -> Iterator[Fault]:
    """The Trainer of Hugging Face: if there is its state, there must be weights."""
    if "trainer_state.json" in files.sizes and not any(map(_WEIGHTS.search, files.sizes)):
        yield missing("model.safetensors", "trainer_state.json is there, but no weights")


_WEIGHTS = re.compile(r"(?:model|adapter)[^/]*\.(?:safetensors|bin)$|\.distcp$|model_states\.pt$")


def _ranks_of(files: Inventory, directory: str, least: dict[str, int]) -> Iterator[Fault]:
    inside = directory + "/" if directory else ""
    sizes = {name: size for name, size in files.sizes.items() if name.startswith(inside)}
    yield from numbered(Inventory(files.root, sizes), least)
    outside = {name: size for name, size in files.sizes.items() if name not in sizes}
    yield from numbered(Inventory(files.root, outside))


def _torch_pickle(files: Inventory, name: str) -> Node:
    """The object in a file of `torch.save`, without its tensors; an empty one if there is none.

    Raises `Undecided` if it is too long.
    """
    nothing = Node("dict")
    try:
        with files.open(name) as file:
            archive = headers.zip_archive(file)
            if isinstance(archive, str):
                return nothing
            inner = [one for one in archive.infolist() if one.filename.endswith("/data.pkl")]
            if not inner or inner[0].compress_type != ZIP_STORED:
                return nothing
            if inner[0].file_size > MAX_PICKLE:
                raise Undecided(f"{name} holds a pickle of {inner[0].file_size:,} bytes")
            with archive.open(inner[0]) as pickled:
                value = read(pickled.read(MAX_PICKLE))
    except (Unreadable, headers.Unknown, *headers.BROKEN):
        return nothing
    return value if isinstance(value, Node) else nothing


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value <= MAX_SHARDS else 1


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


FORMATS: dict[str, Callable[[Inventory], Iterator[Fault]]] = {
    "torch.distributed.checkpoint": distributed,
    "index": indexed,
    "names": counted,
    "deepspeed": deepspeed,
    "megatron": megatron,
    "huggingface": hugging_face,
}
