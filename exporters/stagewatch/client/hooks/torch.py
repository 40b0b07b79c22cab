"""Records the training of any PyTorch program, without a framework and without changes to it.

`train` begins with the forward pass of the outermost module (in training mode, with gradients) and
ends with the step of an optimizer; forward and backward are its substages.  Steps of the optimizer
count as steps, unless the program numbers them.  It also records waits for a DataLoader,
`torch.save` and distributed checkpoints.

It does nothing while the program or a framework's hook has a stage open, and nothing in a program
whose framework has a hook of its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from stagewatch.client import _api
from stagewatch.client._harmless import step_aside, swallow
from stagewatch.client._recorder import Recorder
from stagewatch.client.hooks import span
from stagewatch.client.hooks.patching import Patches, Wrapping, class_in, within
from stagewatch.client.hooks.span import Names, Span, by_stage
from stagewatch.identity import RANK

NAMES = Names(
    "",  # so that a framework's hook can still name the record
    by_stage(train="step forward backward", checkpoint="save async_save"),
)


class _Steps(threading.local):
    """The place of a thread in its training step."""

    within = False
    """Whether it is in the forward pass of the outermost module."""
    train: Span | None = None
    count = 0
    optimizer: int | None = None
    """The first optimizer that made a step; steps of others (of a GAN, of parts) do not count."""

    def may(self) -> bool:
        """Whether this hook may record the stage of this thread."""
        recorder = _api._recorder
        if recorder is None:
            return not span._began
        if recorder.framework:
            return False
        lane = recorder.lane()
        return lane is not None and (not lane.opened() or self._is_open())

    def begin(self) -> None:
        if not self._is_open():
            self.train = Span(NAMES, "step")
            _begin_record()
            self.train.begin()

    def end(self) -> None:
        if self.train is not None:
            self.train.end()
            self.train = None

    def _is_open(self) -> bool:
        return self.train is not None and self.train.lane is not None


_steps = _Steps()
_own: Recorder | None = None
"""The record that this hook began, and whose steps it numbers."""


def _begin_record(numbers: Mapping[str, Any] | None = None) -> None:
    """Begin the rank's record, unless it has or had one.

    `numbers` are the program's arguments of `init_process_group`; they count if no launcher has set
    a rank.
    """
    global _own  # noqa: PLW0603
    if span._began or _api._recorder is not None:
        return
    span._began = True
    given: dict[str, Any] = {}
    if numbers and not any(os.environ.get(name) for name in RANK):
        for name in ("rank", "world_size"):
            if isinstance(numbers.get(name), int) and numbers[name] >= 0:
                given[name] = numbers[name]
    _api.init(**given)
    _own = _api._recorder


def _part(name: str, begins: bool) -> Wrapping:
    """A call is a part of the step, or a stage; a call that `begins` a step is a stage anywhere."""

    def part(*_: Any, **__: Any) -> Span | None:
        if (begins or _api._recorder is not None) and _steps.may() and not _compiling():
            if begins:
                _steps.begin()
            elif name != "dataloader":
                _steps.end()
            return Span(NAMES, name)
        return None

    return within(part)


def _batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Record the wait for a batch as a part of the step; it counts even if others record the
    stages."""
    part = _part("dataloader", begins=False)(original)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        recorder = _api._recorder
        word = recorder.wait_for_batch() if recorder is not None else 0
        try:
            return part(*args, **kwargs)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            if word and recorder is not None and recorder is _api._recorder:
                recorder.got_batch(word)

    return wrapped


def _forward(original: Callable[..., Any]) -> Callable[..., Any]:
    enabled: Callable[[], bool] = sys.modules["torch"].is_grad_enabled
    outermost = _part("forward", begins=True)(original)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if _steps.within or not self.training or not enabled():
                return original(self, *args, **kwargs)
            _steps.within = True
            try:
                return outermost(self, *args, **kwargs)
            finally:
                _steps.within = False
        except BaseException as error:
            step_aside(error)
            raise

    return call


def _stepped(optimizer: Any, *_: Any) -> None:
    try:
        if not _steps.may() or _compiling():
            return
        _steps.end()
        if _steps.optimizer in (None, id(optimizer)):
            _steps.optimizer = id(optimizer)
            _steps.count += 1
        own = _own is not None and _own is _api._recorder
        _api.heartbeat(_steps.count if own else None)
    except BaseException as error:
        swallow("a step was not recorded", error)


def _compiling() -> bool:
    return bool(sys.modules["torch"].compiler.is_compiling())


def _program(module: ModuleType, patches: Patches) -> None:
    """`torch` itself."""
    _api.begins = _begin_record
    patches.also(lambda: setattr(_api, "begins", None))
    patches.plan(class_in(sys.modules["torch.nn"], "Module"), "__call__", _forward)
    patches.plan(sys.modules["torch.autograd"], "backward", _part("backward", begins=True))
    patches.plan(sys.modules["torch.serialization"], "save", _part("save", begins=False), "f")
    optimizers = sys.modules["torch.optim.optimizer"]
    patches.also(optimizers.register_optimizer_step_post_hook(_stepped).remove)


def _loader(module: ModuleType, patches: Patches) -> None:
    """`torch.utils.data.dataloader`."""
    iterator = class_in(module, "_BaseDataLoaderIter")
    patches.plan(iterator, "__next__", _batch)


def _checkpoints(module: ModuleType, patches: Patches) -> None:
    """`torch.distributed.checkpoint.state_dict_saver`."""
    for name in ("save", "async_save"):
        patches.plan(module, name, _part(name, begins=False), "state_dict")


MODULES = {
    "torch": _program,
    "torch.utils.data.dataloader": _loader,
    "torch.distributed.checkpoint.state_dict_saver": _checkpoints,
}
