"""What each framework calls its stages, and which canonical stage that is.

A framework's own name becomes the substage.  `None` marks a span that says nothing of its own: it
wraps a whole step, or waits for others.  A name that is not listed belongs to the stage it runs
in, and is `other` where none is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Names:
    """One framework's names."""

    framework: str
    stages: Mapping[str, str | None]
    """Own name to canonical stage."""
    scalars: Mapping[str, str] = field(default_factory=dict)
    """Name of a logged metric to the name of the scalar."""
    single_controller: bool = False
    """Whether one process without a rank drives workers that have one."""
    rank_variables: tuple[str, ...] = ("STAGEWATCH_RANK", "RANK")
    """What its workers have and its controller has not.  Slurm's variables are not among them: a
    Ray cluster that was started by `srun` hands them down to every process."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Own names that only processes of a certain role use."""


TRL = Names(
    "trl",
    stages={
        "_prepare_inputs": None,
        "transformers.generate": "rollout",
        "transformers.generate_batch": "rollout",
        "vLLM.generate": "rollout",
        "_calculate_rewards": "reward",
        "_get_per_token_logps_and_entropies": "logprob",
        "_get_per_token_logps": "logprob",
        "compute_loss": "train",
        "sync_weights": "weights_update",
        "train": "init",
        "evaluate": "eval",
        "predict": "eval",
        "_save_checkpoint": "checkpoint",
        "save_model": "checkpoint",
    },
    scalars={
        "reward": "reward",
        "kl": "kl",
        "loss": "loss",
        "grad_norm": "grad_norm",
        "completions/mean_length": "seqlen",
        "train_samples_per_second": "samples_per_second",
    },
)

AREAL = Names(
    "areal",
    stages={
        "rollout": "rollout",
        "train.rollout": "rollout",
        "generate": "rollout",
        "reward": "reward",
        "critic_values": "logprob",
        "train.compute_values": "logprob",
        "ref_logp": "logprob",
        "train.ref_logp": "logprob",
        "teacher_logp": "logprob",
        "train.teacher_logp": "logprob",
        "recompute_logp": "logprob",
        "train.recompute_logp": "logprob",
        "compute_advantage": "advantage",
        "train.compute_advantage": "advantage",
        "train_step": "train",
        "train.ppo_update": "train",
        "train.sft_step": "train",
        "train.rw_step": "train",
        "train.dpo_step": "train",
        "critic_train_step": "train",
        "train.critic_ppo_update": "train",
        "update_weights": "weights_update",
        "train.update_weights": "weights_update",
        "save": "checkpoint",
        "train.save": "checkpoint",
        "checkpoint_for_recover": "checkpoint",
        "train.checkpoint": "checkpoint",
        "eval": "eval",
        "train.eval": "eval",
        # In the workers that the trainer above calls:
        "ppo_actor.compute_logp": "logprob",
        "ppo_actor.compute_advantages": "advantage",
        "ppo_actor.ppo_update": "train",
        "ppo_critic.compute_values": "logprob",
        "ppo_critic.ppo_update": "train",
        "lm_engine.train_lm": "train",
        "lm_engine.evaluate_lm": "eval",
        "rw_engine.train_rw": "train",
        "rw_engine.evaluate_rw": "eval",
        "dpo_engine.train_dpo": "train",
        "dpo_engine.evaluate_dpo": "eval",
        "dpo_engine.compute_logp": "logprob",
        "megatron_engine.forward_backward": "train",
        "megatron_engine.step": "train",
        "megatron_engine.update_weights_from_distributed": "weights_update",
        "megatron_engine.update_weights_from_disk": "weights_update",
    },
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

VERL = Names(
    "verl",
    stages={
        "step": None,
        "start_profile": None,
        "stop_profile": None,
        "wait_for_enough_samples": None,
        "switch_wait": None,
        "gen": "rollout",
        "generate_async": "rollout",
        "generate_sequences": "rollout",
        "tool_calls": "rollout",
        "vllm_generate": "rollout",
        "sglang_generate": "rollout",
        "reward": "reward",
        "compute_score": "reward",
        "old_log_prob": "logprob",
        "ref": "logprob",
        "values": "logprob",
        "adv": "advantage",
        "update_critic": "train",
        "update_actor": "train",
        "update_weights": "weights_update",
        "sync_rollout_weights": "weights_update",
        "timing_s/param_sync": "weights_update",
        "switch_to_trainer": "weights_update",
        "switch_to_rollout": "weights_update",
        "save_checkpoint": "checkpoint",
        "testing": "eval",
        "rollouter/validate_time": "eval",
        # Roles of annotated methods of the workers:
        "train_batch": "train",
        "actor_update": "train",
        "forward_backward": "train",
        "ref_compute_log_prob": "logprob",
        "actor_compute_log_prob": "logprob",
    },
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

OPENRLHF = Names(
    "openrlhf",
    stages={
        "generate_samples": "rollout",
        "generate_eval_samples": "eval",
        "make_experience": "logprob",
        "compute_advantages_and_returns": "advantage",
        "ppo_train": "train",
        "broadcast_to_vllm": "weights_update",
        "save_logs_and_checkpoints": "checkpoint",
        "save_ckpt": "checkpoint",
        "save_model": "checkpoint",
        # `execute_batch` of the workers, by the class that runs it:
        "RewardModelActor.forward": "reward",
        "PolicyModelActor.forward": "logprob",
        "ReferenceModelActor.forward": "logprob",
        "CriticModelActor.forward": "logprob",
    },
    scalars={
        "rollout/reward_mean": "reward",
        "kl": "kl",
        "rollout/response_length_mean": "seqlen",
        "rollout/num_samples": "batch_size",
    },
    single_controller=True,
)

SLIME = Names(
    "slime",
    stages={
        "train": None,
        "train_wait": None,
        "data_preprocess": "train",
        "rollout": "rollout",
        "eval": "eval",
        "log_probs": "logprob",
        "ref_log_probs": "logprob",
        "teacher_log_probs": "logprob",
        "actor_train": "train",
        "ref_model_update": "weights_update",
        "update_weights": "weights_update",
        "save_model": "checkpoint",
        "sleep": "other",
        "wake_up": "other",
    },
    single_controller=True,
    roles={"rollout": "rollout", "eval": "rollout"},
)

NEMO_RL = Names(
    "nemo_rl",
    stages={
        "total_step_time": None,
        "idle/buffer_starvation": None,
        "idle/generation_limit_pause": None,
        "idle/refit_bubble": None,
        "idle/refit_event_wait": None,
        "idle/validation": None,
        "init/total": "init",
        "prepare_for_generation": "weights_update",
        "prepare_for_generation/total": "weights_update",
        "prepare_for_generation/transfer_and_update_weights": "weights_update",
        "weight_sync": "weights_update",
        "offload_before_refit": "weights_update",
        "offload_after_refit": "weights_update",
        "policy_offload_after_refit": "weights_update",
        "generation": "rollout",
        "exposed_generation": "rollout",
        "reward_calculation": "reward",
        "logprob_inference_prep": "logprob",
        "policy_and_reference_logprobs": "logprob",
        "teacher_logprob_inference_prep": "logprob",
        "teacher_logprob_inference": "logprob",
        "teacher_forward": "logprob",
        "value_inference": "logprob",
        "get_logprobs": "logprob",
        "get_topk_logits": "logprob",
        "use_reference_model": "logprob",
        "advantage_calculation": "advantage",
        "training_prep": "train",
        "policy_training": "train",
        "value_training_prep": "train",
        "value_training": "train",
        "train": "train",
        "checkpointing": "checkpoint",
        "save_checkpoint": "checkpoint",
        "total_validation_time": "eval",
        "validation_total": "eval",
    },
    scalars={
        "reward": "reward",
        "kl_penalty": "kl",
        "mean_gen_tokens_per_sample": "seqlen",
    },
    single_controller=True,
)
