"""verl's agent loops, tools and queue, as its workers and its asynchronous trainer use them.

Agent loops are of the job's own, since those of verl want a server that generates.
"""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import stagewatch
from tests.client.jobs.bare import stand_ins

SAMPLES = 12


class Loop:
    """An agent loop that ends when all others of its batch have begun; the first one ends last."""

    ended = 0

    def __init__(self, **_: Any) -> None:
        """Whatever the worker has."""

    async def run(self, sampling_params: dict[str, Any], number: int, **_: Any) -> int:
        """Its number."""
        while number == 0 and Loop.ended < SAMPLES - 1:
            await asyncio.sleep(0)
        Loop.ended += 1
        return number


def main() -> None:
    """A batch, its evaluation, tools and a queue; prints what the record showed."""
    warnings.simplefilter("ignore")  # of other people's packages
    stagewatch.install("verl")
    stand_ins("cachetools", "uvicorn", "fastapi", "torchdata", "peft")
    from verl import DataProto
    from verl.experimental.agent_loop import agent_loop, tool_agent_loop
    from verl.experimental.fully_async_policy.detach_utils import (
        RolloutSample,
        assemble_batch_from_rollout_samples,
    )
    from verl.experimental.fully_async_policy.message_queue import MessageQueueClient
    from verl.utils.tracking import Tracking

    from tests.client.hooking import record

    directory = Path(os.environ["STAGEWATCH_DIR"])
    where = "tests.client.jobs.verl_rollouts.Loop"
    agent_loop._agent_loop_registry["made_up"] = {"_target_": where}

    class Worker(agent_loop.AgentLoopWorker):  # type: ignore[misc]
        """Without a model, and without what it makes tensors of."""

        def __init__(self) -> None:
            values = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
            agent = SimpleNamespace(default_agent_loop="made_up")
            self.rollout_config = SimpleNamespace(
                **values,
                calculate_log_probs=False,
                agent=agent,
                val_kwargs=SimpleNamespace(**values),
            )
            self.config = SimpleNamespace(data={})
            self.llm_client = self.tokenizer = self.processor = self.hf_model_type = None
            self.dataset_cls, self.tools = None, []
            self.reward_loop_worker_handles: list[Any] | None = None

        async def _agent_loop_postprocess(self, output: int, *_: Any, **__: Any) -> int:
            return output

        def _postprocess(self, outputs: list[int], **_: Any) -> Any:
            return DataProto.from_single_dict({"response_mask": torch.ones(len(outputs), 5)})

    async def generate(*, validate: bool) -> Any:
        batch = DataProto.from_single_dict({"number": np.arange(SAMPLES, dtype=object)})
        batch.meta_info["validate"] = validate
        return await Worker().generate_sequences(batch)

    seen: list[list[str]] = []

    def note() -> None:
        seen.append(sorted(name for name, one in record(directory).calls.items() if one.open))

    class Tool:
        async def create(self, **_: Any) -> tuple[str, None]:
            return "instance", None

        async def execute(self, *_: Any, **__: Any) -> Any:
            note()
            return tool_agent_loop.ToolResponse(text="found"), 0.0, {}

        async def release(self, *_: Any) -> None:
            """Nothing to give back."""

    async def call(name: str) -> Any:
        loop = tool_agent_loop.ToolAgentLoop.__new__(tool_agent_loop.ToolAgentLoop)
        loop.tools, loop.max_tool_response_length = {"search": Tool()}, 100
        asked = SimpleNamespace(name=name, arguments="{}")
        answer, _, _ = await loop._call_tool(asked, {}, SimpleNamespace())
        return answer.text

    async def take() -> Any:
        done: Future[Any] = Future()
        done.set_result(("sample", 3))
        answer = SimpleNamespace(future=lambda: done)
        actor = SimpleNamespace(get_sample=SimpleNamespace(remote=lambda: answer))
        return await MessageQueueClient(actor).get_sample()

    def of_version(version: int) -> Any:
        batch = DataProto.from_dict(
            {"attention_mask": torch.ones(1, 8), "response_mask": torch.ones(1, 5)},
            {"min_global_steps": np.array([version]), "max_global_steps": np.array([version])},
        )
        batch.meta_info["metrics"] = [{"generate_sequences": 1.0, "tool_calls": 0.0}]
        return RolloutSample(batch, "one", 0, {})

    async def score(handles: list[Any] | None) -> str:
        worker = Worker()
        worker.reward_loop_worker_handles = handles
        output = SimpleNamespace(
            reward_score=None, metrics=SimpleNamespace(), prompt_ids=[1], response_ids=[2]
        )
        try:
            await worker._compute_score([output], {})
        except AttributeError as error:  # there is no model
            return str(error)
        return "not asked for"

    generated = len(asyncio.run(generate(validate=False)))
    first = record(directory)
    asyncio.run(generate(validate=True))
    answers = [asyncio.run(call(name)) for name in ("search", "made up by the model")]
    scores = [asyncio.run(score(handles)) for handles in (None, [])]
    taken = asyncio.run(take())
    assemble_batch_from_rollout_samples([of_version(4), of_version(6)], None, None)
    Tracking("project", "experiment", default_backend=["console"], config={}).log(
        {"fully_async/count/current_param_version": 7}, step=9
    )
    found = record(directory)
    report = {
        "generated": generated,
        "role": first.role,
        "work": dict(found.work),
        "seen": seen,
        "answers": answers,
        "scores": scores,
        "taken": taken,
        "calls": {name: [sum(one.durations), one.errors] for name, one in found.calls.items()},
        "scalars": dict(found.scalars),
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
