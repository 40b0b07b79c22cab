"""What the hooks of slime and its sibling miles fill, on modules in the shape of the real ones."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stagewatch
from stagewatch.ranks.records import RankRecord
from tests.client.hooking import Write, completed, record

ARGS = SimpleNamespace(custom_rm_path=None, rm_type="math", n_samples_per_prompt=4)
SLIME = {
    "slime.rollout.base_types": """
class Output:
    def __init__(self, samples):
        self.samples = samples
def call_rollout_fn(fn, *args, evaluation, **kwargs):
    return fn(*args, **kwargs, evaluation=evaluation)
""",
    "slime.rollout.rm_hub.__init__": """
import asyncio
async def async_rm(args, sample, **kwargs):
    await asyncio.sleep(0)
    if sample.metadata is None:
        raise TimeoutError
    return 1
async def batched_async_rm(args, samples, **kwargs):
    return await asyncio.gather(*[async_rm(args, sample) for sample in samples])
""",
    "slime.rollout.sglang_rollout": """
from .rm_hub import async_rm
async def generate_and_rm(args, sample, sampling_params, evaluation=False):
    await async_rm(args, sample)
    return sample
""",
    "slime.rollout.fully_async_rollout": """
import queue
class AsyncRolloutWorker:
    def __init__(self, args):
        self.args = args
        self.output_queue = queue.Queue()
    def get_completed_groups(self, limit=None):
        return [self.output_queue.get_nowait()]
""",
    "slime.backends.megatron_utils.actor": """
from types import SimpleNamespace
mpu = SimpleNamespace(
    get_tensor_model_parallel_rank=lambda: 0,
    get_pipeline_model_parallel_rank=lambda: 0,
    get_context_parallel_rank=lambda: 0,
)
class MegatronTrainRayActor:
    def __init__(self):
        self.weight_updater = SimpleNamespace(weight_version=4)
    def update_weights(self):
        self.weight_updater.weight_version += 1
    def _get_rollout_data(self, rollout_data_ref):
        return rollout_data_ref
""",
}
MILES_BUFFER = """
class DefaultDataBuffer:
    def __init__(self, args):
        self._args = args
        self._buffer = []
    async def put(self, input):
        self._buffer.append(input)
    async def get(self, current_version=None, **_):
        return self._buffer.pop(0)
"""


@pytest.fixture
def slime(directory: Path, write: Write) -> Iterator[None]:
    """A hooked one, in a process of its rollouts."""
    for name, source in SLIME.items():
        write(name, source)
    undo = stagewatch.install("slime")
    yield
    undo()


def a_sample(tokens: int, version: str = "3", **more: Any) -> SimpleNamespace:
    given = {"metadata": {}, "custom_rm_path": None} | more
    return SimpleNamespace(response_length=tokens, weight_versions=["default", version], **given)


def generate(*samples: Any, evaluation: bool = False) -> None:
    """A rollout as its manager starts it."""
    types = importlib.import_module("slime.rollout.base_types")
    module = importlib.import_module("slime.rollout.sglang_rollout")

    async def all_of_them() -> Any:
        tasks = [module.generate_and_rm(ARGS, sample, {}, evaluation) for sample in samples]
        return types.Output([list(await asyncio.gather(*tasks)), [[a_sample(1, "9")]]])

    types.call_rollout_fn(
        lambda *_, **__: asyncio.run(all_of_them()), ARGS, 8, None, evaluation=evaluation
    )


def calls(found: RankRecord) -> dict[str, tuple[int, int]]:
    """Calls that ended, and those that ended by an exception, by name."""
    return {
        name: (sum(one.durations), one.errors)
        for name, one in found.calls.items()
        if any(one.durations)
    }


@pytest.mark.usefixtures("slime")
def test_a_batch_tells_its_samples_tokens_rewards_and_weights(directory: Path) -> None:
    own = {"metadata": {"rm_type": "f1"}}
    generate(a_sample(10), a_sample(20, "2"), a_sample(30, **own))
    found = record(directory)
    assert (found.role, found.framework) == ("rollout", "slime")
    assert completed(found) == {"rollout": 1}
    assert found.work == {"rollout": (61.0, 0.0, 4.0)}
    assert calls(found) == {"math": (2, 0), "f1": (1, 0)}
    assert found.scalars["weight_version"] == 2, "the oldest of the batch"


@pytest.mark.usefixtures("slime")
def test_an_evaluation_is_none_of_it(directory: Path) -> None:
    generate(a_sample(10), a_sample(20), evaluation=True)
    found = record(directory)
    assert (completed(found), found.work, found.scalars) == ({"eval": 1}, {}, {})


@pytest.mark.usefixtures("slime")
def test_a_reward_that_fails_does_so_as_without_the_hook(directory: Path) -> None:
    generate(a_sample(10))
    with pytest.raises(TimeoutError):
        generate(a_sample(10, metadata=None))
    rewards = importlib.import_module("slime.rollout.rm_hub")
    own = SimpleNamespace(custom_rm_path="judges.remote.ask_judge", rm_type=None)
    asyncio.run(rewards.batched_async_rm(own, [a_sample(1)]))
    found = calls(record(directory))
    assert found["math"] == (2, 1)
    assert found["ask_judge"][0] >= 1, "a function of the user's is called by its own name"


@pytest.mark.usefixtures("slime")
def test_the_queue_between_rollout_and_training_is_told_in_samples(directory: Path) -> None:
    worker = importlib.import_module("slime.rollout.fully_async_rollout").AsyncRolloutWorker(ARGS)
    for group in range(3):
        worker.output_queue.put((group, []))
    assert worker.get_completed_groups(1) == [(0, [])]
    assert record(directory).scalars == {"queue_depth": 8.0}


def test_so_is_that_of_miles(directory: Path, write: Write) -> None:
    """Its released version, without such a buffer, is run in test_hooks_distributions."""
    write("miles.rollout.fully_async_data_buffer", MILES_BUFFER)
    undo = stagewatch.install("miles")
    buffer = importlib.import_module("miles.rollout.fully_async_data_buffer")
    groups = buffer.DefaultDataBuffer(ARGS)

    async def fill() -> Any:
        for group in range(3):
            await groups.put(group)
        return await groups.get(current_version=5)

    assert asyncio.run(fill()) == 0
    assert record(directory).scalars == {"queue_depth": 8.0}
    assert record(directory).role == "rollout"
    undo()


@pytest.mark.usefixtures("slime")
def test_a_trainer_tells_its_version_and_what_it_trains_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    actors = importlib.import_module("slime.backends.megatron_utils.actor")
    actors.MegatronTrainRayActor().update_weights()
    data = {"total_lengths": [100, 50]}
    assert actors.MegatronTrainRayActor()._get_rollout_data(data) is data
    actors.mpu.get_tensor_model_parallel_rank = lambda: 1
    actors.MegatronTrainRayActor()._get_rollout_data(data)
    found = record(directory)
    assert (found.role, found.scalars) == ("train", {"weight_version": 5.0})
    assert found.work == {"train": (150.0, 0.0, 2.0)}, "ranks with the same samples count once"


def test_a_version_without_these_functions_gets_no_warning(
    write: Write, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write("slime.rollout.rm_hub.__init__", "")
    write("slime.rollout.fully_async_rollout", "AsyncRolloutWorker = None")
    write("slime.backends.megatron_utils.actor", "class MegatronTrainRayActor: pass")
    undo = stagewatch.install("slime")
    for name in ("rollout.rm_hub", "rollout.fully_async_rollout", "backends.megatron_utils.actor"):
        importlib.import_module(f"slime.{name}")
    undo()
    assert caplog.messages == []
