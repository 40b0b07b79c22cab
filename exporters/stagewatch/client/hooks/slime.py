"""slime: its timer in the training actors, and the rollout function in its rollout manager.

miles is a sibling that has kept most of these functions: `miles.py` uses this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from stagewatch.client import _api
from stagewatch.client.hooks import patching
from stagewatch.client.hooks.span import Names, Span, by_stage, count, record_value

NAMES = Names(
    "slime",
    by_stage(
        silent="train train_wait",
        rollout="rollout",
        eval="eval",
        logprob="log_probs ref_log_probs teacher_log_probs",
        train="data_preprocess actor_train",
        weights_update="ref_model_update update_weights",
        checkpoint="save_model",
        other="sleep wake_up",
    ),
    single_controller=True,
    roles={"rollout": "rollout", "eval": "rollout"},
)


def _timer(module: ModuleType, patches: patching.Patches) -> None:
    """`slime.observability.timer`; before 0.3.1 `slime.utils.timer`."""
    patching.plan_timer(
        patches, patching.class_in(module, "Timer"), NAMES, start="start", stop="end"
    )


def generated(names: Names, output: Any) -> None:
    """Count the samples of a batch and the tokens of their responses, and record the oldest
    weights.

    `output.samples` are groups, in which a sample that was split is a list of samples.
    """
    samples = list(_flat(output.samples))
    tokens = sum(sample.response_length for sample in samples)
    count(names, stage="rollout", own="rollout", samples=len(samples), tokens=tokens)
    versions = [int(one) for each in samples for one in each.weight_versions if str(one).isdigit()]
    record_value(names, "weight_version", min(versions, default=None), "rollout")


def _flat(samples: Any) -> Iterator[Any]:
    for one in samples:
        if isinstance(one, list):
            yield from _flat(one)
        else:
            yield one


def plan_rewards(module: ModuleType, patches: patching.Patches) -> None:
    """`rollout.rm_hub`: a sample's reward, or those of a batch by a function of the user's."""

    def one(args: Any, sample: Any, **_: Any) -> AbstractContextManager[Any]:
        of_sample = getattr(sample, "custom_rm_path", None)  # miles: in `reward_spec`
        spec = getattr(sample, "reward_spec", None)
        path = of_sample or getattr(spec, "custom_rm_path", None) or args.custom_rm_path
        metadata = sample.metadata if isinstance(sample.metadata, dict) else {}
        kind = getattr(spec, "rm_type", None) or metadata.get("rm_type") or args.rm_type
        return _api.call(_last_part(path) or str(kind or "reward"))

    def batch(args: Any, *_: Any, **__: Any) -> AbstractContextManager[Any] | None:
        # Without a function of the user it computes the samples' rewards one by one, as above.
        return _api.call(_last_part(args.custom_rm_path)) if args.custom_rm_path else None

    patches.plan_extra(module, "async_rm", patching.within(one), "args", "sample")
    patches.plan_extra(module, "batched_async_rm", patching.within(batch), "args")


def _last_part(path: Any) -> str:
    """The last part of `package.module.function`."""
    return str(path or "").rpartition(".")[2]


def rollout(
    names: Names, asked: Callable[..., tuple[bool, Any]], stages: tuple[str, str]
) -> patching.Wrapping:
    """Record a rollout or an evaluation, which have these stages, and what a rollout generated.

    `asked` takes its arguments and says whether it evaluates, and the number of the rollout.  If
    the manager's timer has opened the stage already, this is a part of it.
    """

    def stage(*arguments: Any, **named: Any) -> Span:
        evaluation, rollout_id = asked(*arguments, **named)
        return Span(names, stages[evaluation], rollout_id)

    def report(output: Any, *arguments: Any, **named: Any) -> None:
        if not asked(*arguments, **named)[0]:
            generated(names, output)

    def call(original: Callable[..., Any]) -> Callable[..., Any]:
        return patching.within(stage)(patching.answered(report)(original))

    return call


def of_function(_: Any, __: Any, rollout_id: Any, *___: Any, evaluation: bool) -> tuple[bool, Any]:
    """Whether `call_rollout_fn(fn, args, rollout_id, data_source, evaluation=...)` evaluates, and
    the number of the rollout."""
    return evaluation, rollout_id


def _rollout(module: ModuleType, patches: patching.Patches) -> None:
    """`slime.rollout.base_types`."""
    recorded = rollout(NAMES, of_function, ("rollout", "eval"))
    patches.plan(module, "call_rollout_fn", recorded, "fn", "evaluation")


def _queue(module: ModuleType, patches: patching.Patches) -> None:
    """`slime.rollout.fully_async_rollout`: groups that wait to be trained on."""

    def report(_: Any, self: Any, *__: Any, **___: Any) -> None:
        groups = self.output_queue.qsize()
        record_value(NAMES, "queue_depth", groups * self.args.n_samples_per_prompt, "rollout")

    worker = getattr(module, "AsyncRolloutWorker", None)
    patches.plan_extra(worker, "get_completed_groups", patching.answered(report))


def updated(names: Names) -> patching.Wrapping:
    """`update_weights` of a training actor: the engines have this version from now on."""

    def report(_: Any, self: Any, *__: Any, **___: Any) -> None:
        updater = getattr(self, "weight_updater", None)
        record_value(names, "weight_version", getattr(updater, "weight_version", None))

    return patching.answered(report)


def _actor(module: ModuleType, patches: patching.Patches) -> None:
    """`slime.backends.megatron_utils.actor`."""

    def report(data: Any, *_: Any, **__: Any) -> None:
        parallel = module.mpu  # Ranks of one data-parallel rank get the same samples.
        if (
            parallel.get_tensor_model_parallel_rank() == 0
            and parallel.get_pipeline_model_parallel_rank() == 0
            and parallel.get_context_parallel_rank() == 0
        ):
            lengths = data["total_lengths"]
            count(NAMES, samples=len(lengths), tokens=sum(lengths))

    actor = getattr(module, "MegatronTrainRayActor", None)
    patches.plan_extra(actor, "update_weights", updated(NAMES))
    patches.plan_extra(actor, "_get_rollout_data", patching.answered(report))


MODULES = {
    "slime.observability.timer": _timer,
    "slime.utils.timer": _timer,
    "slime.rollout.base_types": _rollout,
    "slime.rollout.rm_hub": plan_rewards,
    "slime.rollout.fully_async_rollout": _queue,
    "slime.backends.megatron_utils.actor": _actor,
}
