"""TRL: its profiling contexts, and what the Trainer does between them.

The contexts cover generation, rewards and the forward pass.  The backward pass and the optimizer
step, where a lost peer shows first, lie outside them: `train` therefore stays open from
`compute_loss` until the Trainer says that the (sub)step has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.names import TRL as NAMES
from stagewatch.client.hooks.patching import Patches, UnknownShape
from stagewatch.client.hooks.span import Span, inside, mark, publish

_TRAINING = "compute_loss"


class _Steps(threading.local):
    """The stages that outlast the function which begins them, per thread."""

    def __init__(self) -> None:
        self.train: Span | None = None
        self.init: Span | None = None

    def begin_training(self, step: Any) -> None:
        if not inside("eval") and (self.train is None or not self.train.is_open):
            self.train = Span(NAMES, _TRAINING, step)
            self.train.begin()

    def end(self, error: BaseException | None = None) -> None:
        for span in (self.train, self.init):
            if span is not None:
                span.end(error)
        self.train = self.init = None


_steps = _Steps()


def _contexts(module: ModuleType, patches: Patches) -> None:
    """`trl.extras.profiling` since 0.27, where a context is an object."""
    context = getattr(module, "ProfilingContext", None)
    if context is None:
        raise UnknownShape("trl.extras.profiling.ProfilingContext is not there")

    def enter(original: Callable[..., Any]) -> Callable[..., Any]:
        def __enter__(self: Any) -> Any:
            name = self.name.partition(".")[2] or self.name  # GRPOTrainer.vLLM.generate
            if name == _TRAINING:
                _steps.begin_training(self.step)
            else:
                self._stagewatch = Span(NAMES, name, self.step)
                self._stagewatch.begin()
            return original(self)

        return __enter__

    def leave(original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
            span = getattr(self, "_stagewatch", None)
            if span is not None:
                span.end(error)
            return original(self, kind, error, traceback)

        return __exit__

    if not {"name", "step"} <= set(context.__init__.__code__.co_varnames):
        raise UnknownShape("ProfilingContext has no name or step")
    patches.plan(context, "__enter__", enter)
    patches.plan(context, "__exit__", leave)


def _trainer(module: ModuleType, patches: Patches) -> None:
    """`transformers.trainer`."""
    trainer = getattr(module, "Trainer", None)
    if trainer is None:
        raise UnknownShape("transformers.trainer.Trainer is not there")

    def stage(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
                with Span(NAMES, name, _step(self)):
                    return original(self, *args, **kwargs)

            return wrapped

        return wrap

    def before_loss(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            _steps.begin_training(_step(self))
            return original(self, *args, **kwargs)

        return wrapped

    def train(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            _steps.end()
            _steps.init = Span(NAMES, "train")
            _steps.init.begin()
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                _steps.end(error)
                raise
            _steps.end()
            return result

        return wrapped

    def log(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, logs: Any, *args: Any, **kwargs: Any) -> Any:
            publish(NAMES, logs)
            return original(self, logs, *args, **kwargs)

        return wrapped

    patches.plan(trainer, "train", train)
    # Every trainer's loss is computed within this one, whether it has a profiling context or not.
    patches.plan(trainer, "compute_loss_context_manager", before_loss)
    patches.plan(trainer, "evaluate", stage("evaluate"))
    patches.plan(trainer, "predict", stage("predict"))
    patches.plan(trainer, "_save_checkpoint", stage("_save_checkpoint"))
    patches.plan(trainer, "save_model", stage("save_model"))
    patches.plan(trainer, "log", log, "logs")


def _callbacks(module: ModuleType, patches: Patches) -> None:
    """`transformers.trainer_callback`: the Trainer's own events."""
    handler = getattr(module, "CallbackHandler", None)
    if handler is None:
        raise UnknownShape("transformers.trainer_callback.CallbackHandler is not there")

    def ends_step(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, args: Any, state: Any, *rest: Any, **kwargs: Any) -> Any:
            _steps.end()
            mark(NAMES, getattr(state, "global_step", None))
            return original(self, args, state, *rest, **kwargs)

        return wrapped

    for event in ("on_train_begin", "on_substep_end", "on_step_end"):
        patches.plan(handler, event, ends_step, "state")


def _step(trainer: Any) -> Any:
    return getattr(getattr(trainer, "state", None), "global_step", None)


MODULES = {
    "trl.extras.profiling": _contexts,
    "transformers.trainer": _trainer,
    "transformers.trainer_callback": _callbacks,
}
