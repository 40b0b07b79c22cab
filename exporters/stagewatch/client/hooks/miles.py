"""miles: slime's sibling, with rollout functions of classes and a timer of its own.

The tests run its release 0.0.2 from PyPI; the hooks for later versions follow their source
(github.com/radixark/miles).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.patching import Patches, Plan, answered, class_in, plan_timer
from stagewatch.client.hooks.slime import of_function, plan_rewards, rollout, updated
from stagewatch.client.hooks.span import Names, by_stage, count, record_value

NAMES = Names(
    "miles",
    by_stage(
        silent="train train_wait",
        rollout="rollout",
        eval="eval_rollout",
        logprob="log_probs ref_log_probs teacher_log_probs",
        train="data_preprocess actor_train critic_train",
        weights_update="""
            ref_model_update update_weights update_weights_implementation
            finalize_and_resume_engines
        """,
        checkpoint="save_model export_hf",
        other="sleep wake_up reconcile_adapters",
    ),
    single_controller=True,
    roles={"rollout": "rollout", "eval_rollout": "rollout"},
)


def _timer(module: ModuleType, patches: Patches) -> None:
    """`miles.utils.timer`: the training actors use it, and newer rollout managers."""
    plan_timer(patches, class_in(module, "Timer"), NAMES, start="start", stop="end")


def _of_class(_: Any, input: Any) -> tuple[bool, Any]:
    """Whether `call_rollout_function(fn, input)` evaluates, and the number of the rollout."""
    return input.evaluation, input.rollout_id


def _rollouts(name: str, asked: Callable[..., tuple[bool, Any]]) -> Plan:
    """Plans to record what the manager calls by this name."""
    recorded = rollout(NAMES, asked, ("rollout", "eval_rollout"))
    return lambda module, patches: patches.plan_extra(module, name, recorded, "fn")


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
    "miles.rollout.base_types": _rollouts("call_rollout_fn", of_function),
    "miles.rollout.inference_rollout.compatibility": _rollouts("call_rollout_function", _of_class),
    "miles.rollout.rm_hub": plan_rewards,
    "miles.rollout.fully_async_data_buffer": _queue,
    "miles.backends.megatron_utils.actor": _actor("MegatronTrainRayActor"),
    "miles.backends.fsdp_utils.actor": _actor("FSDPTrainRayActor"),
    "miles.backends.experimental.fsdp_utils.actor": _actor("FSDPTrainRayActor"),  # 0.0.2
    "miles.backends.training_utils.data": _data,
}
