"""miles' two kinds of rollout function and its rewards, as its rollout manager uses them.

Generation is of the job's own, since that of miles wants a server that generates.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import stagewatch
from tests.client.hooking import completed, open_frame, record
from tests.client.jobs.bare import bare_packages, stand_ins

GROUPS = 3
GROUP_SIZE = 4
SAMPLES = GROUPS * GROUP_SIZE
ROLLOUT = 8
ARGUMENTS: dict[str, Any] = {
    "custom_generate_function_path": "__main__.generate",
    "dynamic_sampling_filter_path": None,
    "n_samples_per_prompt": GROUP_SIZE,
    "over_sampling_batch_size": GROUPS,
    "rollout_batch_size": GROUPS,
    "rollout_global_dataset": True,
    "sglang_router_ip": "127.0.0.1",
    "sglang_router_port": 9,
    "sglang_router_policy": "round_robin",
    "sglang_server_concurrency": SAMPLES,
    "rollout_num_gpus": 1,
    "rollout_num_gpus_per_engine": 1,
    "sglang_dp_size": 1,
    "hf_checkpoint": None,
    "chat_template_path": None,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "rollout_max_response_len": 5,
    "rollout_stop": None,
    "rollout_stop_token_ids": None,
    "rollout_skip_special_tokens": True,
    "rollout_sample_filter_path": None,
    "rollout_all_samples_process_path": None,
    "partial_rollout": False,
    "group_rm": False,
    "custom_rm_path": None,
    "rm_type": "f1",
    "use_miles_router": False,
    "dumper_enable": False,
    "dumper_inference": None,
}
ended: list[int] = []
seen: list[Any] = []


async def generate(input: Any) -> Any:
    """Five tokens; the first sample of a batch ends when all others have."""
    from miles.rollout.base_types import GenerateFnOutput

    sample = input.sample
    if sample.index == 0:
        seen.append(open_frame(Path(os.environ["STAGEWATCH_DIR"])))
    while sample.index == 0 and len(ended) < SAMPLES - 1:
        await asyncio.sleep(0)
    ended.append(sample.index)
    sample.response, sample.response_length = "a word", 5
    sample.weight_versions = ["default", str(4 + sample.index)]
    sample.status = sample.Status.COMPLETED
    return GenerateFnOutput(samples=sample)


class Prompts:
    """A data source whose every answer is the same word."""

    def get_samples(self, groups: int) -> list[Any]:
        """Groups of samples of a prompt."""
        from miles.utils.types import Sample

        numbers = iter(range(groups * GROUP_SIZE))
        return [
            [Sample(index=next(numbers), prompt="say", label="word") for _ in range(GROUP_SIZE)]
            for _ in range(groups)
        ]

    def add_samples(self, samples: list[Any]) -> None:
        """None is left over."""
        assert samples == []


async def answer(*_: Any, **__: Any) -> Any:
    """What a router without engines says."""
    return {"workers": []}


def main(kind: str) -> None:
    """A batch and an evaluation by a class or by a function; prints what the record showed."""
    warnings.simplefilter("ignore")  # of other people's packages
    stagewatch.install("miles")
    bare_packages("miles", "miles.backends", "miles.backends.megatron_utils", "sglang")
    stand_ins("aiohttp", "httpx", "pybase64", "pylatexenc", "sglang_router")
    import sglang_router

    sglang_router.__version__ = "0.3.2"
    from miles.rollout import base_types, sglang_rollout
    from miles.rollout.inference_rollout import (
        compatibility,
        inference_rollout_common,
        inference_rollout_train,
    )

    arguments = SimpleNamespace(**ARGUMENTS)
    for module in (sglang_rollout, inference_rollout_common):
        module.load_tokenizer = module.load_processor = lambda *_, **__: None
    sglang_rollout.get = inference_rollout_train.get = answer
    prompts = Prompts()

    def roll_out(*, evaluation: bool) -> Any:
        if kind == "function":
            return base_types.call_rollout_fn(
                sglang_rollout.generate_rollout, arguments, ROLLOUT, prompts, evaluation=evaluation
            )
        make = base_types.RolloutFnEvalInput if evaluation else base_types.RolloutFnTrainInput
        return compatibility.call_rollout_function(function, make(rollout_id=ROLLOUT))

    if kind == "class":
        function = compatibility.load_rollout_function(
            base_types.RolloutFnConstructorInput(arguments, prompts),
            "miles.rollout.inference_rollout.inference_rollout_common.InferenceRolloutFn",
        )
    output = roll_out(evaluation=False)
    found = record(Path(os.environ["STAGEWATCH_DIR"]))
    roll_out(evaluation=True)
    later = record(Path(os.environ["STAGEWATCH_DIR"]))
    report = {
        "samples": sum(map(len, output.samples)),
        "rewards": sorted({sample.reward for group in output.samples for sample in group}),
        "seen": seen,
        "part": [found.role, found.framework],
        "work": dict(found.work),
        "weight_version": found.scalars["weight_version"],
        "calls": {name: [sum(one.durations), one.errors] for name, one in found.calls.items()},
        "completed": completed(later),
        "unchanged": (later.work, later.scalars) == (found.work, found.scalars),
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
