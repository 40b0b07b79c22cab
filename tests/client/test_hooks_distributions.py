"""verl's, AReaL's and miles' own code, from their released distributions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.hooking import frameworks_path, needs, run_job

needs("torch")


def test_verl(tmp_path: Path) -> None:
    report = run_job("verl_steps", tmp_path, path=frameworks_path("verl"))
    assert report["seen"] == [
        ["rollout", "gen"],
        ["reward", "reward"],
        ["logprob", "old_log_prob"],
        ["logprob", "ref"],
        ["advantage", "adv"],
        ["train", "update_actor"],
        ["other", "my_own"],
        ["rollout", "generate_sequences"],
        ["train", "actor_update"],
    ]
    assert report["completed"] == {
        "rollout": 2,
        "reward": 1,
        "logprob": 2,
        "advantage": 1,
        "train": 2,
        "other": 1,
        "weights_update": 1,
    }
    assert report["timed"] == sorted(
        ["adv", "gen", "generate_sequences", "my_own", "old_log_prob", "ref", "reward", "step",
         "update_actor"]
    )  # fmt: skip
    assert report["work"] == {"train": [4096, 0, 0]}
    assert report["result"] == 2
    assert report["failures"] == [["weights_update", "TimeoutError", 1]]
    assert report["scalars"] == {"reward": 0.25, "kl": 0.1}
    assert (report["step"], report["framework"]) == (9, "verl")


def test_verls_rollouts_tools_and_queue(tmp_path: Path) -> None:
    report = run_job("verl_rollouts", tmp_path, path=frameworks_path("verl"))
    assert (report["generated"], report["role"]) == (12, "rollout")
    assert report["work"] == {"rollout": [12 * 5, 0, 12], "train": [0, 0, 2]}
    assert report["seen"] == [["search"]]
    assert report["answers"][0] == "found"
    assert report["scores"][0] == "not asked for" != report["scores"][1]
    # What the model made up is no tool, and a score that nobody is asked for is no call.
    assert report["calls"] == {"search": [1, 0], "reward": [1, 1]}
    assert report["taken"] == ["sample", 3]
    assert report["scalars"] == {"queue_depth": 3, "rollout_weight_version": 4, "weight_version": 7}


@pytest.mark.parametrize("mode", ["plain", "traced"])
def test_areal(tmp_path: Path, mode: str) -> None:
    report = run_job("areal_steps", tmp_path, mode, path=frameworks_path("areal"))
    assert report["seen"] == [
        ["rollout", "train.rollout", 6],
        ["logprob", "train.recompute_logp", 6],
        ["advantage", "train.compute_advantage", 6],
        ["train", "train.ppo_update", 6],
        ["weights_update", "train.update_weights", 6],
        ["checkpoint", "train.save", 6],
        ["eval", "train.eval", 6],
        ["logprob", "critic_values", 6],
        ["train", "ppo_actor.ppo_update", 6],
        ["rollout", "generate", 6],
        ["reward", "reward", 6],
    ]
    # A timing and the scope in it are one pass.
    assert report["completed"] == {
        "rollout": 2,
        "reward": 1,
        "logprob": 2,
        "advantage": 1,
        "train": 2,
        "weights_update": 1,
        "checkpoint": 1,
        "eval": 1,
    }
    assert "timeperf/train_step" in report["timings"]
    assert (report["result"], report["framework"], report["failures"]) == (2, "areal", 0)


def test_areals_episodes_queue_and_rewards(tmp_path: Path) -> None:
    report = run_job("areal_rollouts", tmp_path, path=frameworks_path("areal"))
    assert report["batch"] == 11, "one of twelve was rejected"
    assert report["work"] == {"rollout": [11 * 10, 0, 22]}
    assert report["unchanged"], "an evaluation counts nowhere"
    assert report["queue"] == 0
    assert (report["scored"], report["calls"]) == (1.0, {"reward": 1})


@pytest.mark.parametrize("kind", ["class", "function"])
def test_miless_rollouts_and_rewards(tmp_path: Path, kind: str) -> None:
    report = run_job("miles_rollouts", tmp_path, kind, path=frameworks_path("miles_rl"))
    assert (report["samples"], report["rewards"]) == (12, [1.0])
    assert report["part"] == ["rollout", "miles"]
    assert report["seen"] == [["rollout", "rollout", 8]], "this release times no rollout itself"
    assert report["work"] == {"rollout": [12 * 5, 0, 12]}
    assert report["weight_version"] == 4, "the oldest of the batch"
    assert report["calls"] == {"f1": [12, 0]}
    assert report["completed"] == {"rollout": 1, "eval": 1}
    assert report["unchanged"], "an evaluation is none of it"


def test_miless_timer_and_the_data_of_a_training_rank(tmp_path: Path) -> None:
    report = run_job("miles_train", tmp_path, path=frameworks_path("miles_rl"), RANK="0")
    assert report["part"] == ["train", 0, "miles"]
    assert report["seen"] == [
        ["logprob", "ref_log_probs", None],
        ["train", "actor_train", None],
        ["weights_update", "update_weights", None],
    ]
    assert report["completed"] == {"logprob": 1, "train": 1, "weights_update": 1}
    assert report["timed"] == sorted(
        ["train", "train_wait", "ref_log_probs", "actor_train", "update_weights"]
    )
    assert report["lengths"] == [[100, 50], [100, 50]]
    assert report["work"] == {"train": [150, 0, 2]}, "ranks with the same samples count once"
