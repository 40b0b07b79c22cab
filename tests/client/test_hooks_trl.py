"""TRL's own trainers, run for real on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.hooking import needs, run_job

needs("trl")


@pytest.mark.parametrize("when", ["before", "after"])
def test_grpo_shows_its_stages_while_they_are_open(tmp_path: Path, when: str) -> None:
    report = run_job("grpo", tmp_path, when)
    # Four generation steps and, at the end, an evaluation whose functions are part of `eval`.
    assert report["seen"][:4] == [["reward", "reward_length", step] for step in range(4)]
    assert {(stage, name) for stage, name, _ in report["seen"][4:]} == {("eval", "reward_length")}
    assert report["completed"] == {
        "init": 1,
        "rollout": 4,
        "reward": 4,
        "logprob": 4,
        "train": 8,  # two micro-steps a step: forward, backward, optimizer
        "checkpoint": 2,
        "eval": 1,
    }
    assert (report["framework"], report["role"], report["step"]) == ("trl", "train", 4)
    assert {"reward", "kl", "loss", "seqlen", "samples_per_second"} <= report["scalars"].keys()
    assert report["scalars"]["staleness"] == 0, "each step trains on what it has generated itself"
    assert report["scalars"]["weight_version"] == report["scalars"]["rollout_weight_version"] == 3
    assert report["tokens"] > 0
    # Four steps of two micro-steps of four samples.
    assert report["work"]["train"] == [report["tokens"], 0, 32]
    tokens, _, samples = report["work"]["rollout"]
    assert samples == 32
    assert 32 <= tokens <= 32 * 4
    assert report["tokens"] == tokens + 32 * 3, "the prompts have three tokens each"
    assert report["calls"] == {"reward_length": 4}, "those of the evaluation are part of `eval`"
    assert (report["open"], report["dropped"], report["failures"]) == (False, 0, 0)


def test_a_failure_in_the_backward_pass_is_one_of_train(tmp_path: Path) -> None:
    report = run_job("sft", tmp_path)
    assert report["raised"] == "OutOfMemoryError"
    assert report["in_backward"] == ["train"] * 4
    assert report["completed"] == {"init": 1, "train": 4}
    assert report["failures"] == [["train", "OutOfMemoryError", 1]]
    assert report["first_failure_step"] == 3
    assert report["flops"] > 0
    assert report["work"]["train"] == [0, report["flops"], 0]
    assert report["open"] is False


def test_the_tools_that_there_are_count_as_calls_and_answer_as_before(tmp_path: Path) -> None:
    report = run_job("grpo_tools", tmp_path)
    assert report["seen"] == [["search"], ["sandbox"]]
    assert report["answers"] == [
        "found q",
        "{'error': 'Tool made up by the model not found.'}",
        "{'error': '1/0'}",
    ]
    assert report["calls"] == {"search": [1, 0], "sandbox": [1, 1]}, report["after"]
