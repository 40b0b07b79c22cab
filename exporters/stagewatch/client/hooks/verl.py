"""verl: the function behind all of its timers, and the states that its workers report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from stagewatch.client.hooks import patching, span

_GENERATES = "generate_sequences"

# `train_batch`, `actor_update` and others are roles of annotated methods of the workers.
NAMES = span.Names(
    "verl",
    span.by_stage(
        silent="step start_profile stop_profile wait_for_enough_samples switch_wait",
        rollout="gen generate_async generate_sequences tool_calls vllm_generate sglang_generate",
        reward="reward compute_score",
        logprob="old_log_prob ref values ref_compute_log_prob actor_compute_log_prob",
        advantage="adv",
        train="update_critic update_actor train_batch actor_update forward_backward",
        weights_update="""
            update_weights sync_rollout_weights timing_s/param_sync switch_to_trainer
            switch_to_rollout
        """,
        checkpoint="save_checkpoint",
        eval="testing rollouter/validate_time",
    ),
    scalars={
        "critic/rewards/mean": "reward",
        "actor/ppo_kl": "kl",
        "response_length/mean": "seqlen",
        "perf/throughput": "tokens_per_gpu_second",
        "fully_async/count/current_param_version": "weight_version",
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


def _timers(module: ModuleType, patches: patching.Patches) -> None:
    """`verl.utils.profiler.performance`: every `marked_timer` looks `_timer` up when it runs."""

    def timer(original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(name: str, timing_raw: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with span.Span(NAMES, str(name)):
                yield from original(name, timing_raw, *args, **kwargs)

        return timed

    patches.plan(module, "_timer", timer, "name", "timing_raw")


def _tracking(module: ModuleType, patches: patching.Patches) -> None:
    """`verl.utils.tracking`."""

    def log(self: Any, data: Any, step: Any, *_: Any, **__: Any) -> None:
        span.mark(NAMES, step)
        span.publish(NAMES, data)
        tokens = data.get("perf/total_num_tokens")  # of all ranks, in this step
        if tokens is not None:
            span.count(NAMES, tokens=tokens)

    patches.plan(patching.class_in(module, "Tracking"), "log", patching.within(log), "data", "step")
    states = getattr(module, "RLInsightLogger", None)
    if states is not None:  # since 0.9; the workers of older versions report no states
        patches.plan(states, "trace_state", patching.with_stage(NAMES), "state_name")


def _agent_loops(module: ModuleType, patches: patching.Patches) -> None:
    """`verl.experimental.agent_loop.agent_loop`: a worker generates its part of a batch."""

    def generated(output: Any, self: Any, batch: Any, *_: Any, **__: Any) -> None:
        if not batch.meta_info.get("validate"):
            mask = output.batch["response_mask"]  # what the model generated, on the CPU
            tokens, samples = int(mask.sum()), len(output)
            span.count(NAMES, stage="rollout", own=_GENERATES, samples=samples, tokens=tokens)

    def score(self: Any, outputs: Any, *_: Any, **__: Any) -> Any:
        asks = self.reward_loop_worker_handles is not None and outputs[-1].reward_score is None
        return span.calling(NAMES, "compute_score", "reward") if asks else None

    worker = getattr(module, "AgentLoopWorker", None)
    patches.plan_extra(worker, "generate_sequences", patching.answered(generated), "batch")
    patches.plan_extra(worker, "_compute_score", patching.within(score), "outputs")


def _tools(module: ModuleType, patches: patching.Patches) -> None:
    """`verl.experimental.agent_loop.tool_agent_loop`."""

    def tool(self: Any, tool_call: Any, tools_kwargs: Any, agent_data: Any) -> Any:
        tools = getattr(agent_data, "_active_tools", self.tools)
        # The model has made up the name, and the tool may not exist.
        known = tool_call.name in tools
        return span.calling(NAMES, "tool_calls", tool_call.name) if known else None

    loop = getattr(module, "ToolAgentLoop", None)
    patches.plan_extra(
        loop, "_call_tool", patching.within(tool), "tool_call", "tools_kwargs", "agent_data"
    )


def _queue(module: ModuleType, patches: patching.Patches) -> None:
    """`verl.experimental.fully_async_policy.message_queue`, in the trainer's process."""

    def report(result: Any, *_: Any, **__: Any) -> None:
        if result is not None:  # the sample, and how many are left
            span.record_value(NAMES, "queue_depth", result[1])

    client = getattr(module, "MessageQueueClient", None)
    patches.plan_extra(client, "get_sample", patching.answered(report))


def _assembly(module: ModuleType, patches: patching.Patches) -> None:
    """`verl.experimental.fully_async_policy.detach_utils`: a batch is made from the queue.

    The trainer itself is a Ray actor, whose methods cannot be replaced; its version is in its log.
    """

    def report(batch: Any, *_: Any, **__: Any) -> None:
        versions = [int(one) for one in batch.meta_info["trajectory_param_versions"]]
        span.record_value(NAMES, "rollout_weight_version", min(versions, default=None))
        span.count(NAMES, samples=len(versions))

    patches.plan_extra(module, "assemble_batch_from_rollout_samples", patching.answered(report))


MODULES = {
    "verl.utils.profiler.performance": _timers,
    "verl.utils.tracking": _tracking,
    "verl.experimental.agent_loop.agent_loop": _agent_loops,
    "verl.experimental.agent_loop.tool_agent_loop": _tools,
    "verl.experimental.fully_async_policy.message_queue": _queue,
    "verl.experimental.fully_async_policy.detach_utils": _assembly,
}
