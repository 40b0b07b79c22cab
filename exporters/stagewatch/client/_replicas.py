"""Checks values that must be equal on all ranks of a group: the rank that differs computes wrongly.

It uses no collective: ranks record checksums, agents export them, and rules compare.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Any
from zlib import crc32

from stagewatch.client import _api
from stagewatch.client._harmless import swallow, warn_once
from stagewatch.record import NONFINITE, REPLICA, REPLICA_SLOTS, REPLICA_STEPS, SCALAR_NAME_SIZE

_counts: dict[tuple[str, str], Iterator[int]] = defaultdict(lambda: itertools.count(1))
"""How often each name has been checked, for calls without a step."""
MAX_COUNTS = 256
_pack = Struct("<d").pack


def replicated(name: str, value: Any, *, group: str = "world", step: int | None = None) -> None:
    """Record a checksum of a value that must be equal on all ranks of a group at this step.

    `value` is a number, a text or bytes, and is compared bit by bit.  A tensor of one element
    counts as a number; reading it waits for the GPU.  `group` names the ranks with the same value,
    for example the data-parallel replicas of one part of the model.  Without `step` calls are
    counted: every rank must then make the same number.  Name and group together have room for 27
    bytes.
    """
    if _api._recorder is None:
        return
    try:
        if isinstance(value, str):
            raw = value.encode("utf-8", "surrogatepass")
        elif isinstance(value, (bytes, bytearray, memoryview)):
            raw = bytes(value)
        elif isinstance(value, int):
            raw = b"%d" % value
        else:
            number = float(value)
            raw = _pack(number) if number == number else b"nan"  # noqa: PLR0124 - of any sign
        if step is None:
            if len(_counts) >= MAX_COUNTS and (name, group) not in _counts:
                raise ValueError(f"there are {MAX_COUNTS} names already")
            step = next(_counts[name, group])
        _record(name, group, int(step), raw)
    except Exception as error:
        swallow("a check of replicas was not recorded", error)


def _record(name: str, group: str, step: int, raw: bytes) -> None:
    recorder = _api._recorder
    if recorder is None:
        return
    what = f"{name}@{group}"
    if len(f"{REPLICA}{REPLICA_SLOTS[-1]}/{what}".encode()) > SCALAR_NAME_SIZE:
        raise ValueError(f"{what!r} is too long")
    check = float((step % REPLICA_STEPS << 32) + crc32(raw))
    for slot in REPLICA_SLOTS:
        if step % slot == 0:
            recorder.scalar(f"{REPLICA}{slot}/{what}", check)


def watch_replicas(
    model: Any,
    optimizer: Any,
    *,
    every: int = 100,
    group: str = "world",
    state: bool = True,
    gradients: bool = True,
) -> Callable[[], None]:
    """Check a data-parallel PyTorch model.  Every so many optimizer steps it records a checksum of
    the weights and of the optimizer's state; also the first step in which this rank's own gradients
    were not finite.

    The checksum is a sum of the bits on the device; a check waits for it once.  `group` names the
    ranks with the same part of the model.  Pass `state=False` if ranks keep different parts of the
    optimizer's state (ZeRO), and `gradients=False` if a scaler skips steps on purpose.  A model
    with sharded parameters is not checked.  Returns a function that ends the checks; never raises.
    """
    undo: list[Callable[[], None]] = []

    def end() -> None:
        while undo:
            undo.pop()()

    try:
        torch = sys.modules["torch"]
        parameters = [one for one in model.parameters() if one.requires_grad]
        if any(hasattr(one, "device_mesh") or hasattr(one, "_local_shards") for one in parameters):
            warn_once("replicas are not watched", "each rank has a shard of the parameters")
            return end
        if "zero" in type(optimizer).__module__:
            state = False
        watch = _Watch(torch, parameters, optimizer if state else None, max(1, int(every)), group)
        if gradients:
            undo += [one.register_hook(watch.gradient).remove for one in parameters]
        undo.append(optimizer.register_step_post_hook(watch.stepped).remove)
    except Exception as error:
        end()
        warn_once("replicas are not watched", error)
    return end


class _Watch:
    def __init__(
        self, torch: Any, parameters: list[Any], optimizer: Any, every: int, group: str
    ) -> None:
        self._torch = torch
        self._parameters = parameters
        self._optimizer = optimizer
        self._every = every
        self._group = group
        self._step = 0
        self._largest: dict[Any, Any] = {}
        """By device, the largest gradient of this step; NaN or infinite if one was."""
        self._first: dict[Any, Any] = {}
        """By device, the first step with a gradient that was not finite; 0 before."""
        self._told = False

    def gradient(self, gradient: Any) -> None:
        """Add a gradient of this rank, before it is reduced; it does not wait."""
        try:
            if gradient.is_sparse or not gradient.numel():
                return
            torch = self._torch
            device = gradient.device
            with torch.no_grad():
                numbers = torch.view_as_real(gradient) if gradient.is_complex() else gradient
                low, high = torch.aminmax(numbers)
                largest = torch.maximum(high, -low).float()
                if device not in self._largest:
                    self._largest[device] = torch.zeros((), device=device)
                    self._first[device] = torch.zeros((), device=device, dtype=torch.int64)
                torch.maximum(self._largest[device], largest, out=self._largest[device])
        except Exception as error:
            swallow("a gradient was not checked", error)

    def stepped(self, *_: Any) -> None:
        """The optimizer has made a step."""
        try:
            self._step += 1
            torch = self._torch
            with torch.no_grad():
                for device, largest in self._largest.items():
                    first = self._first[device]
                    bad = ~torch.isfinite(largest) & (first == 0)
                    first.masked_fill_(bad, self._step)
                    largest.zero_()
                if self._step % self._every == 0 and _api._recorder is not None:
                    self._check()
        except Exception as error:
            swallow("replicas were not checked", error)

    def _check(self) -> None:
        weights = [one.detach() for one in self._parameters]
        _record("weights", self._group, self._step, self._checksum(weights))
        if self._optimizer is not None:
            state = self._optimizer.state
            parts = [
                part
                for one in self._parameters
                for _, part in sorted(state.get(one, {}).items())
                if isinstance(part, self._torch.Tensor)
            ]
            if parts:
                _record("optimizer", self._group, self._step, self._checksum(parts))
        steps = [step for step in (int(first) for first in self._first.values()) if step]
        recorder = _api._recorder
        if steps and not self._told and recorder is not None:
            self._told = True
            recorder.scalar(NONFINITE, float(min(steps)))

    def _checksum(self, tensors: Iterable[Any]) -> bytes:
        """Sums of the bits as integers: the order of adding has no effect, and every bit counts."""
        torch = self._torch
        words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        sums: dict[Any, Any] = {}
        for number, tensor in enumerate(tensors):
            plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            bits = plain.detach().contiguous().view(-1).view(words[plain.element_size()])
            part = bits.sum(dtype=torch.int64) * (2 * number + 1)
            sums[tensor.device] = sums[tensor.device] + part if tensor.device in sums else part
        total = sum(int(part) for part in sums.values())
        return (total % (1 << 64)).to_bytes(8, "little")
