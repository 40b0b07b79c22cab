"""AReaL's workflow executor and reward wrapper, as its rollout workers use them."""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import stagewatch
from tests.client.jobs.bare import bare_packages, stand_ins

EPISODES = 12


def reward(*_: Any) -> float:
    """It runs in a process of the wrapper's pool."""
    return 1.0


def main() -> None:
    """A batch, an evaluation, a reward; prints what the record showed."""
    warnings.simplefilter("ignore")  # of other people's packages
    stagewatch.install("areal")
    bare_packages("areal", "areal.utils", "areal.infra", "areal.experimental")
    bare_packages("areal.experimental.openai")
    stand_ins("aiofiles", "torchdata", "aiohttp", "tenacity", "lark", "openai", "einops")
    import torch
    from areal.api.reward_api import AsyncRewardWrapper
    from areal.infra.workflow_executor import WorkflowExecutor

    from tests.client.hooking import record

    directory = Path(os.environ["STAGEWATCH_DIR"])
    ended: list[int] = []

    class Workflow:
        """The first episode ends last, the second is rejected."""

        async def arun_episode(self, engine: Any, data: dict[str, int]) -> dict[str, Any] | None:
            while data["number"] == 0 and len(ended) < EPISODES - 1:
                await asyncio.sleep(0)
            ended.append(data["number"])
            return None if data["number"] == 1 else {"loss_mask": torch.ones(2, 5)}

    config = SimpleNamespace(
        max_concurrent_rollouts=64,
        consumer_batch_size=64,
        queue_size=1024,
        enable_rollout_tracing=False,
        max_head_offpolicyness=1_000_000,
        check_trajectory_format=False,
        dump_to_file=False,
        tokenizer_path="",
    )
    engine = SimpleNamespace(get_version=lambda: 0)
    executor = WorkflowExecutor(config, engine)
    executor.initialize(train_data_parallel_size=1)
    workflow = Workflow()
    stagewatch.init("rollout")
    batch = executor.rollout_batch([{"number": number} for number in range(EPISODES)], workflow)
    first = record(directory)
    executor.submit({"number": 7}, workflow, is_eval=True)
    executor.wait(1)
    after_evaluation = record(directory)
    executor.destroy()
    wrapper = AsyncRewardWrapper(reward, max_workers=1)
    scored = asyncio.run(wrapper("prompt", "answer"))
    found = record(directory)
    report = {
        "batch": len(batch),
        "work": dict(first.work),
        "unchanged": dict(after_evaluation.work) == dict(first.work),
        "queue": first.scalars["queue_depth"],
        "scored": scored,
        "calls": {name: sum(one.durations) for name, one in found.calls.items()},
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
