"""AReaL: the scopes of its tracer and the timings of its tracker, which mostly come in pairs.

A pair is one stage: the inner span counts as part of the outer one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks import patching, span

# Names such as `ppo_actor.ppo_update` are those of the workers that the trainer calls.
NAMES = span.Names(
    "areal",
    span.by_stage(
        rollout="rollout train.rollout generate",
        reward="reward",
        logprob="""
            critic_values train.compute_values ref_logp train.ref_logp teacher_logp
            train.teacher_logp recompute_logp train.recompute_logp ppo_actor.compute_logp
            ppo_critic.compute_values dpo_engine.compute_logp
        """,
        advantage="compute_advantage train.compute_advantage ppo_actor.compute_advantages",
        train="""
            train_step train.ppo_update train.sft_step train.rw_step train.dpo_step
            critic_train_step train.critic_ppo_update ppo_actor.ppo_update ppo_critic.ppo_update
            lm_engine.train_lm rw_engine.train_rw dpo_engine.train_dpo
            megatron_engine.forward_backward megatron_engine.step
        """,
        weights_update="""
            update_weights train.update_weights megatron_engine.update_weights_from_distributed
            megatron_engine.update_weights_from_disk
        """,
        checkpoint="save train.save checkpoint_for_recover train.checkpoint",
        eval="eval train.eval lm_engine.evaluate_lm rw_engine.evaluate_rw dpo_engine.evaluate_dpo",
    ),
    scalars={
        "ppo_actor/task_reward/avg": "reward",
        "ppo_actor/kl_rewards/avg": "kl",
        "ppo_actor/seq_len/avg": "seqlen",
        "ppo_actor/n_seqs": "batch_size",
        "ppo_actor/update/version_stats/sample_staleness_theta_avg": "staleness",
    },
    single_controller=True,
    rank_variables=("STAGEWATCH_RANK", "RANK", "SLURM_PROCID"),
    roles={"generate": "rollout", "run_agent": "rollout"},
)


def _scopes(module: ModuleType, patches: patching.Patches) -> None:
    """`areal.utils.perf_tracer`."""

    def step(*_: Any, args: Any = None, **__: Any) -> Any:
        return args.get("global_step") if args else None

    for name, awaited in (("trace", False), ("atrace", True)):
        scope = patching.with_stage(NAMES, step, asynchronous=awaited)
        patches.plan(module, f"{name}_scope", scope, "name", "args")
        phase = patching.with_stage(NAMES, asynchronous=awaited)
        patches.plan(module, f"{name}_session_phase", phase, "phase")


def _timings(module: ModuleType, patches: patching.Patches) -> None:
    """`areal.utils.stats_tracker`."""
    tracker = patching.class_in(module, "DistributedStatsTracker")
    patches.plan(tracker, "record_timing", patching.with_stage(NAMES), "key")
    # The module's own function is a method that was bound before the class was changed.
    patches.plan(module, "record_timing", patching.with_stage(NAMES), "key")


def _episodes(module: ModuleType, patches: patching.Patches) -> None:
    """`areal.infra.workflow_executor`: what is generated, and what waits to be trained on."""

    def create(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, pending_task: Any, *args: Any, **kwargs: Any) -> Any:
            execute = original(self, pending_task, *args, **kwargs)
            if getattr(pending_task, "is_eval", False):
                return execute
            return patching.answered(generated)(execute)

        return wrapped

    def generated(result: Any, *_: Any, **__: Any) -> None:
        if result is None:  # it was rejected
            return
        mask = result.trajectory.get("loss_mask")  # what the model generated, on the CPU
        if mask is not None:  # texts of an external API have none
            tokens, samples = int(mask.sum()), len(mask)
            span.count(NAMES, stage="rollout", own="generate", samples=samples, tokens=tokens)

    def waiting(_: Any, self: Any, *__: Any, **___: Any) -> None:
        waits = len(self._pending_results) + self.runner.get_output_queue_size()
        span.record_value(NAMES, "queue_depth", waits, "generate")

    executor = getattr(module, "WorkflowExecutor", None)
    patches.plan_extra(executor, "_create_workflow_task", create, "pending_task")
    dispatcher = getattr(module, "BatchTaskDispatcher", None)
    patches.plan_extra(dispatcher, "wait_results", patching.answered(waiting))


def _rewards(module: ModuleType, patches: patching.Patches) -> None:
    """`areal.api.reward_api`: the function runs in a pool of processes; the caller waits for it."""

    def reward(self: Any, *_: Any, **__: Any) -> Any:
        function = getattr(self.reward_fn, "__name__", None)  # a partial has none
        return span.calling(NAMES, "reward", str(function or "reward"))

    wrapper = getattr(module, "AsyncRewardWrapper", None)
    patches.plan_extra(wrapper, "__call__", patching.within(reward))


def _version(owner: str, scalar: str) -> patching.Plan:
    """Plans to record the version of an engine's weights."""

    def report(_: Any, self: Any, version: Any, *__: Any, **___: Any) -> None:
        span.record_value(NAMES, scalar, version)

    def plan(module: ModuleType, patches: patching.Patches) -> None:
        engine = getattr(module, owner, None)
        patches.plan_extra(engine, "set_version", patching.answered(report), "version")

    return plan


def _statistics(module: ModuleType, patches: patching.Patches) -> None:
    """`areal.utils.stats_logger`."""

    def commit(
        self: Any, epoch: Any, step: Any, global_step: Any, data: Any, *_: Any, **__: Any
    ) -> None:
        span.mark(NAMES, global_step)
        ranks = getattr(module, "dist", None)  # each commits what the statistics of all ranks are
        first = ranks is None or not ranks.is_initialized() or ranks.get_rank() == 0
        for values in data if isinstance(data, list) else [data]:
            span.publish(NAMES, values)
            if first:
                samples, tokens = (values.get(f"ppo_actor/n_{of}", 0) for of in ("seqs", "tokens"))
                span.count(NAMES, samples=samples, tokens=tokens)

    logger = patching.class_in(module, "StatsLogger")
    patches.plan(logger, "commit", patching.within(commit), "epoch", "step", "global_step", "data")


MODULES = {
    "areal.utils.perf_tracer": _scopes,
    "areal.utils.stats_tracker": _timings,
    "areal.utils.stats_logger": _statistics,
    "areal.infra.workflow_executor": _episodes,
    "areal.api.reward_api": _rewards,
    "areal.engine.fsdp_engine": _version("FSDPEngine", "weight_version"),
    "areal.engine.megatron_engine": _version("MegatronEngine", "weight_version"),
    "areal.experimental.engine.archon_engine": _version("ArchonEngine", "weight_version"),
    "areal.infra.remote_inf_engine": _version("RemoteInfEngine", "rollout_weight_version"),
}
