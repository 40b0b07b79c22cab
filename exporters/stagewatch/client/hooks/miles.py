"""miles: slime's sibling, with a timer in its rollout manager too and rollout functions of classes.

Read in its source (github.com/radixark/miles), and never run within it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from stagewatch.client.hooks.batches import Batch, Sample
from stagewatch.client.hooks.patching import Patches, Plan, answered, class_in, plan_timer, within
from stagewatch.client.hooks.slime import generated, plan_rewards, updated
from stagewatch.client.hooks.span import Names, by_stage, count, tell

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
    """`miles.utils.timer`: the rollout manager and the training actors use it."""
    plan_timer(patches, class_in(module, "Timer"), NAMES, start="start", stop="end")


def _is_evaluation(*arguments: Any, **named: Any) -> bool:
    """Of `call_rollout_function(fn, input)`, or of the older `call_rollout_fn(..., evaluation)`."""
    given = [*arguments, *named.values()]
    return bool(named.get("evaluation")) or any(getattr(one, "evaluation", False) for one in given)


def _functions(name: str) -> Plan:
    """Plans to measure a batch where the module calls the rollout function by `name`."""

    def batch(*arguments: Any, **named: Any) -> Batch | None:
        return None if _is_evaluation(*arguments[1:], **named) else Batch()

    def report(output: Any, *arguments: Any, **named: Any) -> None:
        if not _is_evaluation(*arguments[1:], **named):
            generated(NAMES, output)

    def plan(module: ModuleType, patches: Patches) -> None:
        patches.plan_extra(
            module, name, lambda original: within(batch)(answered(report)(original)), "fn"
        )

    return plan


def _samples(module: ModuleType, patches: Patches) -> None:
    """`miles.rollout.inference_rollout.inference_rollout_common`: one sample, with its reward."""
    sample = within(lambda *_, **__: Sample())
    patches.plan_extra(module, "generate_and_rm", sample, "state", "sample")


def _queue(module: ModuleType, patches: Patches) -> None:
    """`miles.rollout.fully_async_data_buffer`: groups that wait to be trained on."""

    def report(_: Any, self: Any, *__: Any, **___: Any) -> None:
        samples = len(self._buffer) * self._args.n_samples_per_prompt
        tell(NAMES, "queue_depth", samples, "rollout")

    buffer = getattr(module, "DefaultDataBuffer", None)
    patches.plan_extra(buffer, "get", answered(report))
    patches.plan_extra(buffer, "put", answered(report))


def _actor(name: str) -> Plan:
    """Plans to read the version of the weights of a training actor's class."""

    def plan(module: ModuleType, patches: Patches) -> None:
        patches.plan_extra(getattr(module, name, None), "update_weights", updated(NAMES))

    return plan


def _data(module: ModuleType, patches: Patches) -> None:
    """`miles.backends.training_utils.data`: what a rank is handed to train on."""

    def report(result: Any, *_: Any, **__: Any) -> None:
        parallel = module.get_parallel_state()  # One data-parallel rank has the same samples.
        if parallel.tp.rank == parallel.pp.rank == parallel.cp.rank == 0:
            lengths = result[0]["total_lengths"]
            count(NAMES, samples=len(lengths), tokens=sum(lengths))

    patches.plan_extra(module, "get_rollout_data", answered(report), "rollout_data_ref")


MODULES = {
    "miles.utils.timer": _timer,
    "miles.rollout.base_types": _functions("call_rollout_fn"),
    "miles.rollout.inference_rollout.compatibility": _functions("call_rollout_function"),
    "miles.rollout.inference_rollout.inference_rollout_common": _samples,
    "miles.rollout.rm_hub": plan_rewards,
    "miles.rollout.fully_async_data_buffer": _queue,
    "miles.backends.megatron_utils.actor": _actor("MegatronTrainRayActor"),
    "miles.backends.fsdp_utils.actor": _actor("FSDPTrainRayActor"),
    "miles.backends.training_utils.data": _data,
}
