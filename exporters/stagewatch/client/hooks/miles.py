"""miles: slime's sibling, with rollout functions of classes and a timer of its own.

The tests run its release 0.0.2 from PyPI; the hooks for later versions follow their source
(github.com/radixark/miles).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.batches import Batch, Sample
from stagewatch.client.hooks.patching import Patches, Plan, answered, class_in, plan_timer, within
from stagewatch.client.hooks.slime import generated, plan_rewards, updated
from stagewatch.client.hooks.span import Names, Span, by_stage, count, record_value

NAMES = Names(
    "miles",
    by_stage(
        silent=("train", "train_wait"),
        rollout=("rollout",),
        eval=("eval_rollout",),
        logprob=("log_probs", "ref_log_probs", "teacher_log_probs"),
        train=("data_preprocess", "actor_train", "critic_train"),
        weights_update=(
            "ref_model_update",
            "update_weights",
            "update_weights_implementation",
            "finalize_and_resume_engines",
        ),
        checkpoint=("save_model", "export_hf"),
        other=("sleep", "wake_up", "reconcile_adapters"),
    ),
    single_controller=True,
    roles={"rollout": "rollout", "eval_rollout": "rollout"},
)


def _timer(module: ModuleType, patches: Patches) -> None:
    """`miles.utils.timer`: the training actors use it, and newer rollout managers."""
    plan_timer(patches, class_in(module, "Timer"), NAMES, start="start", stop="end")


def _of_function(_: Any, __: Any, rollout_id: Any, *___: Any, evaluation: bool) -> tuple[bool, Any]:
    """Whether `call_rollout_fn(fn, args, rollout_id, data_source, evaluation=...)` evaluates, and
    the number of the rollout."""
    return evaluation, rollout_id


def _of_class(_: Any, input: Any) -> tuple[bool, Any]:
    """The same for `call_rollout_function(fn, input)`."""
    return input.evaluation, input.rollout_id


def _rollouts(name: str, asked: Callable[..., tuple[bool, Any]]) -> Plan:
    """Plans to record a rollout and measure its batch; the manager calls it by `name`.

    If the manager's timer has opened the stage already, this is a part of it.
    """

    def stage(*arguments: Any, **named: Any) -> Span:
        evaluation, rollout_id = asked(*arguments, **named)
        return Span(NAMES, "eval_rollout" if evaluation else "rollout", rollout_id)

    def batch(*arguments: Any, **named: Any) -> Batch | None:
        return None if asked(*arguments, **named)[0] else Batch()

    def report(output: Any, *arguments: Any, **named: Any) -> None:
        if not asked(*arguments, **named)[0]:
            generated(NAMES, output)

    def call(original: Callable[..., Any]) -> Callable[..., Any]:
        return within(stage)(within(batch)(answered(report)(original)))

    return lambda module, patches: patches.plan_extra(module, name, call, "fn")


def _samples(module: ModuleType, patches: Patches) -> None:
    """`generate_and_rm` of either kind of rollout function: one sample, with its reward."""
    patches.plan_extra(module, "generate_and_rm", within(lambda *_, **__: Sample()), "sample")


def _queue(module: ModuleType, patches: Patches) -> None:
    """`miles.rollout.fully_async_data_buffer`: groups that wait to be trained on."""

    def report(_: Any, self: Any, *__: Any, **___: Any) -> None:
        samples = len(self._buffer) * self._args.n_samples_per_prompt
        record_value(NAMES, "queue_depth", samples, "rollout")

    buffer = getattr(module, "DefaultDataBuffer", None)
    patches.plan_extra(buffer, "get", answered(report))
    patches.plan_extra(buffer, "put", answered(report))


def _actor(name: str) -> Plan:
    """Plans to read the version of the weights of a training actor's class."""

    def plan(module: ModuleType, patches: Patches) -> None:
        patches.plan_extra(getattr(module, name, None), "update_weights", updated(NAMES))

    return plan


def _data(module: ModuleType, patches: Patches) -> None:
    """`miles.backends.training_utils.data`: the batch that a rank trains on."""

    def report(result: Any, *_: Any, **__: Any) -> None:
        parallel = module.get_parallel_state()  # One data-parallel rank has the same samples.
        if parallel.tp.rank == parallel.pp.rank == parallel.cp.rank == 0:
            data = result[0] if isinstance(result, tuple) else result  # 0.0.2: the data alone
            lengths = data["total_lengths"]
            count(NAMES, samples=len(lengths), tokens=sum(lengths))

    patches.plan_extra(module, "get_rollout_data", answered(report), "rollout_data_ref")


MODULES = {
    "miles.utils.timer": _timer,
    "miles.rollout.base_types": _rollouts("call_rollout_fn", _of_function),
    "miles.rollout.inference_rollout.compatibility": _rollouts("call_rollout_function", _of_class),
    "miles.rollout.inference_rollout.inference_rollout_common": _samples,
    "miles.rollout.sglang_rollout": _samples,
    "miles.rollout.rm_hub": plan_rewards,
    "miles.rollout.fully_async_data_buffer": _queue,
    "miles.backends.megatron_utils.actor": _actor("MegatronTrainRayActor"),
    "miles.backends.fsdp_utils.actor": _actor("FSDPTrainRayActor"),
    "miles.backends.experimental.fsdp_utils.actor": _actor("FSDPTrainRayActor"),  # 0.0.2
    "miles.backends.training_utils.data": _data,
}
