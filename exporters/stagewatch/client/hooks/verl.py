"""verl: the timer behind all of its timers, and the states that its workers report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.patching import Patches, class_in, reported, with_stage
from stagewatch.client.hooks.span import Names, Span, by_stage, count, mark, publish

# `train_batch`, `actor_update` and the like are roles of annotated methods of the workers.
NAMES = Names(
    "verl",
    by_stage(
        silent=(
            "step",
            "start_profile",
            "stop_profile",
            "wait_for_enough_samples",
            "switch_wait",
        ),
        rollout=(
            "gen",
            "generate_async",
            "generate_sequences",
            "tool_calls",
            "vllm_generate",
            "sglang_generate",
        ),
        reward=("reward", "compute_score"),
        logprob=("old_log_prob", "ref", "values", "ref_compute_log_prob", "actor_compute_log_prob"),
        advantage=("adv",),
        train=("update_critic", "update_actor", "train_batch", "actor_update", "forward_backward"),
        weights_update=(
            "update_weights",
            "sync_rollout_weights",
            "timing_s/param_sync",
            "switch_to_trainer",
            "switch_to_rollout",
        ),
        checkpoint=("save_checkpoint",),
        eval=("testing", "rollouter/validate_time"),
    ),
    scalars={
        "critic/rewards/mean": "reward",
        "actor/ppo_kl": "kl",
        "response_length/mean": "seqlen",
        "perf/throughput": "tokens_per_gpu_second",
    },
    single_controller=True,
    roles={
        "generate_sequences": "rollout",
        "tool_calls": "rollout",
        "compute_score": "rollout",
        "vllm_generate": "rollout",
        "sglang_generate": "rollout",
    },
)


def _timers(module: ModuleType, patches: Patches) -> None:
    """`verl.utils.profiler.performance`: every `marked_timer` looks `_timer` up when it runs."""

    def timer(original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(name: str, timing_raw: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with Span(NAMES, str(name)):
                yield from original(name, timing_raw, *args, **kwargs)

        return timed

    patches.plan(module, "_timer", timer, "name", "timing_raw")


def _tracking(module: ModuleType, patches: Patches) -> None:
    """`verl.utils.tracking`."""

    def log(self: Any, data: Any, step: Any, *_: Any, **__: Any) -> None:
        mark(NAMES, step)
        publish(NAMES, data)
        tokens = data.get("perf/total_num_tokens")  # of all ranks, in this step
        if tokens is not None:
            count(NAMES, tokens=tokens)

    patches.plan(class_in(module, "Tracking"), "log", reported(log), "data", "step")
    states = getattr(module, "RLInsightLogger", None)
    if states is not None:  # since 0.9; the workers of older versions report no states
        patches.plan(states, "trace_state", with_stage(NAMES), "state_name")


MODULES = {
    "verl.utils.profiler.performance": _timers,
    "verl.utils.tracking": _tracking,
}
