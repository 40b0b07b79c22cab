"""Records how long a rank waits for its device inside of PyTorch.

A call that launches work on a GPU returns at once; the CPU waits later, when it needs a result.
There the peers of a slow rank wait for it, so this time is not their own work.  It reads the clock
twice per call and adds no synchronisation.  It records two device events per step only if
`STAGEWATCH_DEVICE_EVENTS` is set.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client import _api
from stagewatch.client._harmless import step_aside, swallow, warn_once
from stagewatch.client._imports import when_imported
from stagewatch.client._replacing import Replaced

DEVICE = {
    "torch.cuda": ("synchronize",),
    "torch.cuda.streams.Stream": ("synchronize",),
    "torch.cuda.streams.Event": ("synchronize",),
    "torch.accelerator": ("synchronize",),
}
"""Functions that return once a device has finished its work, by module or class."""
TENSOR = ("__bool__", "__float__", "__int__", "cpu", "item", "nonzero", "tolist")
"""Methods of a tensor that need what is in it; one on the CPU has it."""
PINNED = "torch.utils.data._utils.pin_memory"
"""Has `pin_memory`, which copies a batch of data into memory that the device reads."""
OPTIMIZER = "torch.optim.optimizer"
EVENTS, STEP_TIME = "STAGEWATCH_DEVICE_EVENTS", "optimizer_device_seconds"
"""A variable that is 1 where the step of the optimizer is timed on the device; and its scalar."""
_SUBJECT = "watch_device"


def watch_device(torch: ModuleType | None) -> Callable[[], None]:
    """Record the waits of the training thread for its device, if PyTorch is imported.

    A second call changes nothing.  Returns a function that stops recording.  Never raises.
    """
    watch = _Watch()
    try:
        if torch is not None:
            watch.start(torch)
    except Exception as error:
        warn_once(_SUBJECT, f"waits for the device are not recorded: {error}", _SUBJECT)
        watch.stop()
    return watch.stop


class _Watch:
    """The replaced functions."""

    def __init__(self) -> None:
        self._replaced = Replaced()
        self._undo: list[Callable[[], None]] = []

    def start(self, torch: Any) -> None:
        compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
        for place, names in DEVICE.items():
            owner = _owner(place)
            for name in names:
                self._replaced.replace(owner, name, _waiting(compiling), inherited=True)
        for name in TENSOR:
            here = _waiting(compiling, unless=_is_here, traced=_inherited(torch.Tensor, name))
            self._replaced.replace(torch.Tensor, name, here, inherited=True)
        self._replaced.replace(torch, "nonzero", _waiting(compiling, unless=_is_here))
        self._undo.append(when_imported(PINNED, self._start_pinning))
        if os.environ.get(EVENTS) == "1":
            timer = _StepTimer(torch, compiling)
            self._undo += [timer.stop, when_imported(OPTIMIZER, timer.start)]

    def _start_pinning(self, module: ModuleType) -> None:
        self._replaced.replace(module, "pin_memory", _waiting(lambda: False))

    def stop(self) -> None:
        """Restore all functions that nobody else has replaced since."""
        while self._undo:
            self._undo.pop()()
        self._replaced.restore()


class _StepTimer:
    """Measures the step of the first optimizer on the device, with two events on its stream.

    No peer can delay that step, unless the optimizer itself communicates.  The client never waits
    for the events: it skips a step while events of an earlier one are pending or in a graph.
    """

    def __init__(self, torch: Any, compiling: Callable[[], bool]) -> None:
        self._cuda, self._compiling = torch.cuda, compiling
        self._handles: list[Any] = []
        self._events: tuple[Any, Any] | None = None
        self._optimizer: int | None = None
        self._open = self._passes = False

    def start(self, module: ModuleType) -> None:
        """Hook the steps of all optimizers."""
        hooks: Any = module
        self._handles.append(hooks.register_optimizer_step_pre_hook(self._begin))
        self._handles.append(hooks.register_optimizer_step_post_hook(self._end))

    def stop(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _begin(self, optimizer: Any, *_: Any) -> None:
        try:
            if self._optimizer is None:
                self._optimizer = id(optimizer)
            if self._open or id(optimizer) != self._optimizer or self._compiling():
                return
            if not self._cuda.is_available() or self._cuda.is_current_stream_capturing():
                return
            if self._events is None:
                event = functools.partial(self._cuda.Event, enable_timing=True)
                self._events = event(), event()
            begun, ended = self._events
            if self._passes and not ended.query():
                return
            if self._passes:
                _api.scalar(STEP_TIME, begun.elapsed_time(ended) / 1e3)
            begun.record()
            self._open, self._passes = True, False
        except Exception as error:
            swallow("a step was not timed on the device", error)

    def _end(self, optimizer: Any, *_: Any) -> None:
        try:
            if self._open and self._events and id(optimizer) == self._optimizer:
                self._events[1].record()
                self._open, self._passes = False, True
        except Exception as error:
            swallow("a step was not timed on the device", error)


def _waiting(
    compiling: Callable[[], bool],
    unless: Callable[..., bool] = lambda *_, **__: False,
    traced: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The thread waits for its device during a call, unless it has nothing to wait for.

    `traced` takes its place while PyTorch compiles.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        compiled = traced or original

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return compiled(*args, **kwargs)
            recorder = _api._recorder
            if recorder is None or unless(*args, **kwargs):
                return original(*args, **kwargs)
            lane = recorder.wait_for_device()
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise
            finally:
                if lane is not None and recorder is _api._recorder:
                    recorder.device_done(lane)

        return wrapped

    return wrap


def _inherited(owner: Any, name: str) -> Callable[..., Any] | None:
    """The method of the base class that the compiler knows by this name, or `None`."""
    if name in vars(owner):
        return None

    def inherited(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(owner, self), name)(*args, **kwargs)

    return inherited


def _is_here(*args: Any, **kwargs: Any) -> bool:
    """Whether the tensor of a call is on the CPU, or missing."""
    try:
        return args[0].is_cpu is not False  # a subclass may return anything
    except Exception:
        return True


def _owner(place: str) -> Any:
    """An imported module, or a class in it; `None` if there is none."""
    module, _, name = place.rpartition(".")
    return sys.modules.get(place) or getattr(sys.modules.get(module), name, None)
