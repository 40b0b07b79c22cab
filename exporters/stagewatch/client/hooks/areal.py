"""AReaL: its tracer's scopes and its tracker's timings, which mostly come in pairs.

A pair is one stage: the inner span counts as part of the outer one.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from stagewatch.client.hooks.patching import Patches, class_in, reported, with_stage
from stagewatch.client.hooks.span import Names, by_stage, mark, publish

# Names such as `ppo_actor.ppo_update` are those of the workers that the trainer calls.
NAMES = Names(
    "areal",
    by_stage(
        rollout=("rollout", "train.rollout", "generate"),
        reward=("reward",),
        logprob=(
            "critic_values",
            "train.compute_values",
            "ref_logp",
            "train.ref_logp",
            "teacher_logp",
            "train.teacher_logp",
            "recompute_logp",
            "train.recompute_logp",
            "ppo_actor.compute_logp",
            "ppo_critic.compute_values",
            "dpo_engine.compute_logp",
        ),
        advantage=(
            "compute_advantage",
            "train.compute_advantage",
            "ppo_actor.compute_advantages",
        ),
        train=(
            "train_step",
            "train.ppo_update",
            "train.sft_step",
            "train.rw_step",
            "train.dpo_step",
            "critic_train_step",
            "train.critic_ppo_update",
            "ppo_actor.ppo_update",
            "ppo_critic.ppo_update",
            "lm_engine.train_lm",
            "rw_engine.train_rw",
            "dpo_engine.train_dpo",
            "megatron_engine.forward_backward",
            "megatron_engine.step",
        ),
        weights_update=(
            "update_weights",
            "train.update_weights",
            "megatron_engine.update_weights_from_distributed",
            "megatron_engine.update_weights_from_disk",
        ),
        checkpoint=("save", "train.save", "checkpoint_for_recover", "train.checkpoint"),
        eval=(
            "eval",
            "train.eval",
            "lm_engine.evaluate_lm",
            "rw_engine.evaluate_rw",
            "dpo_engine.evaluate_dpo",
        ),
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


def _scopes(module: ModuleType, patches: Patches) -> None:
    """`areal.utils.perf_tracer`."""

    def step(*_: Any, args: Any = None, **__: Any) -> Any:
        return args.get("global_step") if args else None

    for name in ("trace_scope", "atrace_scope"):
        patches.plan(module, name, with_stage(NAMES, step), "name", "args")
    for name in ("trace_session_phase", "atrace_session_phase"):
        patches.plan(module, name, with_stage(NAMES), "phase")


def _timings(module: ModuleType, patches: Patches) -> None:
    """`areal.utils.stats_tracker`."""
    tracker = class_in(module, "DistributedStatsTracker")
    patches.plan(tracker, "record_timing", with_stage(NAMES), "key")
    # The module's own function is a method that was bound before the class was changed.
    patches.plan(module, "record_timing", with_stage(NAMES), "key")


def _statistics(module: ModuleType, patches: Patches) -> None:
    """`areal.utils.stats_logger`."""

    def commit(
        self: Any, epoch: Any, step: Any, global_step: Any, data: Any, *_: Any, **__: Any
    ) -> None:
        mark(NAMES, global_step)
        for values in data if isinstance(data, list) else [data]:
            publish(NAMES, values)

    logger = class_in(module, "StatsLogger")
    patches.plan(logger, "commit", reported(commit), "epoch", "step", "global_step", "data")


MODULES = {
    "areal.utils.perf_tracer": _scopes,
    "areal.utils.stats_tracker": _timings,
    "areal.utils.stats_logger": _statistics,
}
