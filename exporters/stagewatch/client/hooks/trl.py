"""TRL: its profiling contexts, and the parts of a training step between them.

The contexts cover generation, rewards and the forward pass, but not the backward pass and the
optimizer step, where a lost peer shows first.  So `train` stays open from `compute_loss` until the
Trainer reports the end of the (sub)step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client import _api
from stagewatch.client.hooks import patching
from stagewatch.client.hooks.span import Names, Span, by_stage, count, inside, mark, publish

_TRAINING = "compute_loss"

NAMES = Names(
    "trl",
    by_stage(
        silent="_prepare_inputs",
        init="train",
        rollout="transformers.generate transformers.generate_batch vLLM.generate",
        reward="_calculate_rewards",
        logprob="_get_per_token_logps_and_entropies _get_per_token_logps",
        train=_TRAINING,
        weights_update="sync_weights",
        eval="evaluate predict",
        checkpoint="_save_checkpoint save_model",
    ),
    scalars={
        "reward": "reward",
        "kl": "kl",
        "loss": "loss",
        "grad_norm": "grad_norm",
        "completions/mean_length": "seqlen",
        "train_samples_per_second": "samples_per_second",
        "sample/staleness_mean": "staleness",
        "sample/rollout_queue_size": "queue_depth",
    },
)


class _Steps(threading.local):
    """A thread's stages that stay open after the function that opened them has returned."""

    def __init__(self) -> None:
        self.train: Span | None = None
        self.init: Span | None = None
        self.generated: Any = None
        """The step whose weights generated what is trained on."""

    def begin_training(self, step: Any) -> None:
        if not inside("eval") and (self.train is None or self.train.lane is None):
            self.train = Span(NAMES, _TRAINING, step)
            self.train.begin()
            if isinstance(step, int) and isinstance(self.generated, int):
                _api.scalar("staleness", step - self.generated)
                _api.scalar("weight_version", step)
                _api.scalar("rollout_weight_version", self.generated)

    def end(self, error: BaseException | None = None) -> None:
        for span in (self.train, self.init):
            if span is not None:
                span.end(error)
        self.train = self.init = None


_steps = _Steps()


def _contexts(module: ModuleType, patches: patching.Patches) -> None:
    """`trl.extras.profiling` since 0.27, where a context is an object."""
    context = patching.class_in(module, "ProfilingContext")

    def enter(original: Callable[..., Any]) -> Callable[..., Any]:
        def __enter__(self: Any) -> Any:
            name = self.name.partition(".")[2] or self.name  # GRPOTrainer.vLLM.generate
            if name == _TRAINING:
                _steps.begin_training(self.step)
            else:
                if NAMES.stages.get(name) == "rollout" and not inside("eval"):
                    _steps.generated = self.step
                scores = inside("reward") and NAMES.stages.get(name) is None
                self._stagewatch_call = _api.call(name).__enter__() if scores else None
                self._stagewatch = Span(NAMES, name, self.step)
                self._stagewatch.begin()
            return original(self)

        return __enter__

    def leave(original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
            span = getattr(self, "_stagewatch", None)
            if span is not None:
                span.end(error)
            call = getattr(self, "_stagewatch_call", None)
            if call is not None:
                call.__exit__(kind, error, traceback)
            return original(self, kind, error, traceback)

        return __exit__

    if not {"name", "step"} <= set(context.__init__.__code__.co_varnames):
        raise patching.UnknownShape("ProfilingContext has no name or step")
    patches.plan(context, "__enter__", enter)
    patches.plan(context, "__exit__", leave)


def _trainer(module: ModuleType, patches: patching.Patches) -> None:
    """`transformers.trainer`."""

    def before_loss(self: Any, *_: Any, **__: Any) -> None:
        _steps.begin_training(_step(self))

    def log(self: Any, logs: Any, *_: Any, **__: Any) -> None:
        publish(NAMES, logs)
        tokens = logs.get("num_tokens")  # of all ranks, since training began
        if tokens is not None and self.state.is_world_process_zero:
            before = getattr(self, "_stagewatch_tokens", None)
            if before is None:  # as many as in the checkpoint from which training continues
                before = getattr(self, "_initial_num_input_tokens_seen", 0)
            self._stagewatch_tokens = tokens
            count(NAMES, tokens=max(0, tokens - before))

    def operations(flops: Any, *_: Any, **__: Any) -> None:
        count(NAMES, flops=flops)

    def train(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            _steps.end()
            _steps.generated = None
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

    trainer = patching.class_in(module, "Trainer")
    patches.plan(trainer, "train", train)
    if hasattr(trainer, "floating_point_ops"):
        patches.plan(trainer, "floating_point_ops", patching.answered(operations))
    # All trainers compute their loss in this function, with or without a profiling context.
    patches.plan(trainer, "compute_loss_context_manager", patching.within(before_loss))
    for name in ("evaluate", "predict", "_save_checkpoint", "save_model"):
        patches.plan(trainer, name, patching.as_stage(NAMES, name, _step))
    patches.plan(trainer, "log", patching.within(log), "logs")


def _rollouts(owner: str) -> patching.Plan:
    """Plans for a trainer that generates what it trains on."""

    def generated(result: Any, self: Any, *_: Any, **__: Any) -> None:
        if self.model.training:  # otherwise for an evaluation
            completions = result[1]  # token ids by sample
            tokens = sum(len(ids) for ids in completions)
            count(NAMES, stage="rollout", samples=len(completions), tokens=tokens)

    def prepared(result: Any, self: Any, *_: Any, **__: Any) -> None:
        if self.model.training:
            count(NAMES, samples=len(result["prompt_ids"]))

    def calls(self: Any, *_: Any, **__: Any) -> None:
        for tools in (*self._sync_tool_dicts, *self._async_tool_dicts):
            for name, tool in tools.items():
                if not hasattr(tool, "_stagewatch_call"):
                    tools[name] = timed = _api.call(name)(tool)
                    timed._stagewatch_call = name

    def plan(module: ModuleType, patches: patching.Patches) -> None:
        trainer = getattr(module, owner, None)
        patches.plan_extra(trainer, "_generate", patching.answered(generated))
        patches.plan_extra(trainer, "_prepare_inputs", patching.answered(prepared))
        patches.plan_extra(trainer, "_tool_call_loop", patching.within(calls))

    return plan


def _callbacks(module: ModuleType, patches: patching.Patches) -> None:
    """`transformers.trainer_callback`: the Trainer's own events."""

    def ends_step(self: Any, args: Any, state: Any, *_: Any, **__: Any) -> None:
        _steps.end()
        mark(NAMES, getattr(state, "global_step", None))

    handler = patching.class_in(module, "CallbackHandler")
    for event in ("on_train_begin", "on_substep_end", "on_step_end"):
        patches.plan(handler, event, patching.within(ends_step), "state")


def _step(trainer: Any, *_: Any, **__: Any) -> Any:
    return getattr(getattr(trainer, "state", None), "global_step", None)


MODULES = {
    "trl.extras.profiling": _contexts,
    "trl.trainer.grpo_trainer": _rollouts("GRPOTrainer"),
    "trl.trainer.rloo_trainer": _rollouts("RLOOTrainer"),
    "transformers.trainer": _trainer,
    "transformers.trainer_callback": _callbacks,
}
