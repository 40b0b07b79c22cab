"""What the hooks of slime and its sibling miles fill, on modules in the shape of the real ones."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stagewatch
from stagewatch.ranks.records import RankRecord
from tests.client.hooking import Write, completed, record

ARGS = SimpleNamespace(custom_rm_path=None, rm_type="math", n_samples_per_prompt=4)
TYPES = """
class Output:
    def __init__(self, samples):
        self.samples = samples
"""
REWARDS = """
import asyncio
async def async_rm(args, sample, **kwargs):
    await asyncio.sleep(0)
    if sample.metadata is None:
        raise TimeoutError
    return 1
async def batched_async_rm(args, samples, **kwargs):
    return await asyncio.gather(*[async_rm(args, sample) for sample in samples])
"""
SLIME = {
    "slime.rollout.base_types": TYPES
    + """
def call_rollout_fn(fn, *args, evaluation, **kwargs):
    return fn(*args, **kwargs, evaluation=evaluation)
""",
    "slime.rollout.rm_hub.__init__": REWARDS,
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
MILES = {
    "miles.utils.timer": """
from contextlib import contextmanager
class Timer:
    def start(self, name):
        pass
    def end(self, name):
        pass
    @contextmanager
    def context(self, name):
        self.start(name)
        try:
            yield
        finally:
            self.end(name)
""",
    "miles.rollout.base_types": TYPES,
    "miles.rollout.inference_rollout.compatibility": """
import asyncio, inspect
def call_rollout_function(fn, input):
    output = fn(input)
    return asyncio.run(output) if inspect.iscoroutine(output) else output
""",
    "miles.rollout.rm_hub.__init__": REWARDS,
    "miles.rollout.inference_rollout.inference_rollout_common": """
from miles.rollout.rm_hub import async_rm
async def generate_and_rm(state, sample, sampling_params, evaluation=False):
    await async_rm(state.args, sample)
    return sample
""",
    "miles.rollout.fully_async_data_buffer": """
class DefaultDataBuffer:
    def __init__(self, args):
        self._args = args
        self._buffer = []
    async def put(self, input):
        self._buffer.append(input)
    async def get(self, current_version=None, **_):
        return self._buffer.pop(0)
""",
    "miles.backends.fsdp_utils.actor": """
from types import SimpleNamespace
class FSDPTrainRayActor:
    weight_updater = SimpleNamespace(weight_version=7)
    def update_weights(self, info):
        pass
""",
    "miles.backends.training_utils.data": """
from types import SimpleNamespace
state = SimpleNamespace(
    tp=SimpleNamespace(rank=0), pp=SimpleNamespace(rank=0), cp=SimpleNamespace(rank=0)
)
def get_parallel_state():
    return state
def get_rollout_data(args, rollout_data_ref, witness_info=None):
    return rollout_data_ref, "store"
""",
}


@pytest.fixture(params=["slime", "miles"])
def framework(
    request: pytest.FixtureRequest, directory: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A hooked sibling, in a process of its rollouts; the client forgets its name afterwards."""
    for name, source in (SLIME if request.param == "slime" else MILES).items():
        write(name, source)
    undo = stagewatch.install(request.param)
    yield request.param
    undo()


def a_sample(tokens: int, version: str = "3", **more: Any) -> SimpleNamespace:
    given = {"metadata": {}, "custom_rm_path": None, "reward_spec": None} | more
    return SimpleNamespace(response_length=tokens, weight_versions=["default", version], **given)


def generate(framework: str, samples: list[Any], *, evaluation: bool = False) -> None:
    """A rollout as its manager starts it."""
    types = importlib.import_module(f"{framework}.rollout.base_types")

    async def all_of_them() -> Any:
        if framework == "slime":
            module = importlib.import_module("slime.rollout.sglang_rollout")
            first: Any = ARGS
        else:
            where = "miles.rollout.inference_rollout.inference_rollout_common"
            module, first = importlib.import_module(where), SimpleNamespace(args=ARGS)
        tasks = [module.generate_and_rm(first, sample, {}, evaluation) for sample in samples]
        return types.Output([list(await asyncio.gather(*tasks)), [[a_sample(1, "9")]]])

    if framework == "slime":
        types.call_rollout_fn(
            lambda *_, **__: asyncio.run(all_of_them()), ARGS, 8, None, evaluation=evaluation
        )
        return
    module = importlib.import_module("miles.rollout.inference_rollout.compatibility")
    timer = importlib.import_module("miles.utils.timer").Timer()
    with timer.context("eval_rollout" if evaluation else "rollout"):
        given = SimpleNamespace(rollout_id=8, evaluation=evaluation)
        module.call_rollout_function(lambda _: all_of_them(), given)


def calls(found: RankRecord) -> dict[str, tuple[int, int]]:
    """Calls that ended, and those that ended by an exception, by name."""
    return {
        name: (sum(one.durations), one.errors)
        for name, one in found.calls.items()
        if any(one.durations)
    }


def test_a_batch_tells_its_samples_tokens_tail_rewards_and_weights(
    framework: str, directory: Path
) -> None:
    own = {"metadata": {"rm_type": "f1"}}
    generate(framework, [a_sample(10), a_sample(20, "2"), a_sample(30, **own)])
    found = record(directory)
    assert (found.role, found.framework) == ("rollout", framework)
    assert completed(found) == {"rollout": 1}
    assert found.work == {"rollout": (61.0, 0.0, 4.0)}
    assert calls(found) == {"math": (2, 0), "f1": (1, 0)}
    assert found.scalars["weight_version"] == 2, "the oldest of the batch"
    assert found.scalars["rollout_tail"] >= 1.0


def test_an_evaluation_is_none_of_it(framework: str, directory: Path) -> None:
    generate(framework, [a_sample(10), a_sample(20)], evaluation=True)
    found = record(directory)
    assert (completed(found), found.work, found.scalars) == ({"eval": 1}, {}, {})


def test_a_reward_that_fails_does_so_as_without_the_hook(framework: str, directory: Path) -> None:
    generate(framework, [a_sample(10)])
    with pytest.raises(TimeoutError):
        generate(framework, [a_sample(10, metadata=None)])
    assert calls(record(directory)) == {"math": (2, 1)}


def test_a_function_of_the_users_is_called_by_its_own_name(framework: str, directory: Path) -> None:
    generate(framework, [a_sample(10)])
    rewards = importlib.import_module(f"{framework}.rollout.rm_hub")
    own = SimpleNamespace(custom_rm_path="judges.remote.ask_judge", rm_type=None)
    asyncio.run(rewards.batched_async_rm(own, [a_sample(1)]))
    assert calls(record(directory))["ask_judge"][0] >= 1


def test_the_queue_between_rollout_and_training_is_told_in_samples(
    framework: str, directory: Path
) -> None:
    if framework == "slime":
        worker = importlib.import_module("slime.rollout.fully_async_rollout").AsyncRolloutWorker
        slimes = worker(ARGS)
        for group in range(3):
            slimes.output_queue.put((group, []))
        assert slimes.get_completed_groups(1) == [(0, [])]
    else:
        buffer = importlib.import_module("miles.rollout.fully_async_data_buffer").DefaultDataBuffer
        mileses = buffer(ARGS)

        async def fill() -> Any:
            for group in range(3):
                await mileses.put(group)
            return await mileses.get(current_version=5)

        assert asyncio.run(fill()) == 0
    assert record(directory).scalars == {"queue_depth": 8.0}
    assert record(directory).role == "rollout"


TRAINERS: dict[str, Callable[[], None]] = {
    "slime": lambda: (
        importlib.import_module("slime.backends.megatron_utils.actor")
        .MegatronTrainRayActor()
        .update_weights()
    ),
    "miles": lambda: (
        importlib.import_module("miles.backends.fsdp_utils.actor")
        .FSDPTrainRayActor()
        .update_weights(None)
    ),
}


def test_a_trainer_tells_its_version_and_what_it_trains_on(
    framework: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    TRAINERS[framework]()
    data = {"total_lengths": [100, 50]}
    if framework == "slime":
        actor = sys.modules["slime.backends.megatron_utils.actor"]
        assert actor.MegatronTrainRayActor()._get_rollout_data(data) is data
        actor.mpu.get_tensor_model_parallel_rank = lambda: 1
        actor.MegatronTrainRayActor()._get_rollout_data(data)
    else:
        module = importlib.import_module("miles.backends.training_utils.data")
        assert module.get_rollout_data(None, data) == (data, "store")
        module.state.cp.rank = 1
        module.get_rollout_data(None, data)
    found = record(directory)
    assert found.role == "train"
    assert found.scalars == {"weight_version": {"slime": 5.0, "miles": 7.0}[framework]}
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
