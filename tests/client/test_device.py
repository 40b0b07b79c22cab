"""What a rank waits for its device, with a device that the test plays."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import stagewatch
from stagewatch.client import _api
from stagewatch.client._device import EVENTS, STEP_TIME, watch_device
from stagewatch.ranks.own_work import DEVICE_WAIT
from tests.client.conftest import Client, Clock
from tests.client.test_own_work import RANK, all_reduce, exported, own_work


class Device:
    """One that is busy until some time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.done = 0

    def launch(self, seconds: float) -> None:
        """Give it work, and return at once."""
        self.done = max(self.done, self.clock.now) + int(seconds * 1e9)

    def wait(self) -> None:
        self.clock.now = max(self.clock.now, self.done)


@pytest.fixture
def device(clock: Clock) -> Device:
    return Device(clock)


@pytest.fixture
def torch(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """As much of PyTorch as is watched, whose waits let the clock go on."""

    class Base:
        is_cpu = False

        def item(self) -> float:
            if not self.is_cpu:
                device.wait()
            return 1.5

        __float__ = cpu = tolist = nonzero = item

        def __bool__(self) -> bool:
            return bool(self.item())

    class Tensor(Base):
        pass

    class Event:
        def synchronize(self) -> None:
            device.wait()

    class Stream(Event):
        def synchronize(self) -> None:
            super().synchronize()

    def pin_memory(batch: list[Any]) -> list[Any]:
        if isinstance(batch[0], list):
            return [pinned.pin_memory(one) for one in batch]
        device.wait()
        return batch

    made: Any = ModuleType("torch")
    made.Tensor, made.nonzero = Tensor, lambda tensor: tensor.nonzero()
    made.cuda = ModuleType("torch.cuda")
    made.cuda.synchronize = lambda device_number=None: device.wait()
    made.cuda.streams = ModuleType("torch.cuda.streams")
    made.cuda.streams.Event, made.cuda.streams.Stream = Event, Stream

    class Timed:
        """An event that passes once the device has done what it was given before."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.passes = max(device.clock.now, device.done)

        def query(self) -> bool:
            return device.clock.now >= self.passes

        def elapsed_time(self, end: Timed) -> float:
            return (end.passes - self.passes) / 1e6

    made.cuda.Event, made.cuda.is_available = Timed, lambda: True
    made.cuda.is_current_stream_capturing = lambda: made.capturing
    made.capturing = False
    made.optim = ModuleType("torch.optim")
    made.optim.optimizer = optimizer = ModuleType("torch.optim.optimizer")
    optimizer.hooks = []  # type: ignore[attr-defined]

    class Handle:
        def __init__(self, hook: Any) -> None:
            self._hook = hook
            optimizer.hooks.append(hook)

        def remove(self) -> None:
            optimizer.hooks.remove(self._hook)

    optimizer.register_optimizer_step_pre_hook = Handle  # type: ignore[attr-defined]
    optimizer.register_optimizer_step_post_hook = Handle  # type: ignore[attr-defined]
    pinned: Any = ModuleType("torch.utils.data._utils.pin_memory")
    pinned.pin_memory = pin_memory
    made.pinned = pinned
    for module in (made, made.cuda, made.cuda.streams, pinned, made.optim, made.optim.optimizer):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    stop = watch_device(made)
    yield made
    stop()


def device_wait(client: Client, clock: Clock) -> float:
    """Seconds waited for the device, as the agent exports them now."""
    return exported(client, clock).value(DEVICE_WAIT, *RANK) or 0.0


class Optimizer:
    """One whose step the device is busy with for so long."""

    def __init__(self, torch: Any, device: Device) -> None:
        self._torch, self._device = torch, device

    def step(self, seconds: float) -> None:
        before, after = self._torch.optim.optimizer.hooks or (lambda *_: None,) * 2
        before(self, (), {})
        self._device.launch(seconds)
        after(self, (), {})


def test_the_step_of_the_optimizer_is_timed_on_the_device_and_nobody_waits_for_it(
    clock: Clock, client: Client, torch: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert torch.optim.optimizer.hooks == [], "unless one asks for them"
    monkeypatch.setenv(EVENTS, "1")
    stop = watch_device(torch)
    optimizer = Optimizer(torch, device)
    device.launch(3.0)  # backward, which the step comes after
    optimizer.step(0.25)
    optimizer.step(0.5)  # the device has not come to the one before
    begun = clock.now
    Optimizer(torch, device).step(7.0)  # another one, as of a GAN
    clock.forward(20)
    assert client.record().scalars == {}
    optimizer.step(1.0)
    assert client.record().scalars == {STEP_TIME: 0.25}
    clock.forward(2)
    torch.capturing = True
    optimizer.step(1.0)
    assert client.record().scalars == {STEP_TIME: 0.25}
    torch.capturing = False
    optimizer.step(1.0)
    assert client.record().scalars == {STEP_TIME: 1.0}
    assert clock.now == begun + int(22e9)
    stop()
    assert torch.optim.optimizer.hooks == []


WAITS = {
    "torch.cuda.synchronize()": lambda torch: torch.cuda.synchronize(),
    "stream.synchronize()": lambda torch: torch.cuda.streams.Stream().synchronize(),
    "event.synchronize()": lambda torch: torch.cuda.streams.Event().synchronize(),
    "tensor.item()": lambda torch: torch.Tensor().item(),
    "tensor.tolist()": lambda torch: torch.Tensor().tolist(),
    "tensor.cpu()": lambda torch: torch.Tensor().cpu(),
    "tensor.nonzero()": lambda torch: torch.Tensor().nonzero(),
    "torch.nonzero(tensor)": lambda torch: torch.nonzero(torch.Tensor()),
    "if tensor": lambda torch: bool(torch.Tensor()),
    "float(tensor)": lambda torch: float(torch.Tensor()),
    "pin_memory": lambda torch: torch.pinned.pin_memory([[1], [2]]),
}


@pytest.mark.parametrize("call", WAITS)
def test_waiting_for_the_device_is_no_work(
    clock: Clock, client: Client, torch: Any, device: Device, call: str
) -> None:
    with stagewatch.stage("train"):
        clock.forward(0.3)
        device.launch(0.5)
        WAITS[call](torch)
        clock.forward(0.2)
    assert own_work(client, clock)["train"] == [0.5, 0.5]
    assert device_wait(client, clock) == 0.5


def test_a_tensor_on_the_cpu_has_what_is_in_it(clock: Clock, client: Client, torch: Any) -> None:
    class OnCpu(torch.Tensor):  # type: ignore[misc]
        is_cpu = True

        def nonzero(self) -> None:
            clock.forward(2)

    class Odd(torch.Tensor):  # type: ignore[misc]
        @property
        def is_cpu(self) -> bool:
            raise RuntimeError("a subclass of its own mind")

    with stagewatch.stage("train"):
        torch.nonzero(OnCpu())
        assert Odd.item is torch.Tensor.item
        with pytest.raises(RuntimeError, match="of its own mind"):  # from the original alone
            Odd().item()
    assert own_work(client, clock)["train"] == [2, 0]


def test_a_wait_for_the_device_inside_of_a_collective_counts_once(
    clock: Clock, client: Client, torch: Any, device: Device
) -> None:
    with stagewatch.stage("train"), all_reduce():
        device.launch(3)
        torch.cuda.synchronize()
    assert own_work(client, clock)["train"] == [0, 3]
    assert device_wait(client, clock) == 0


def test_a_wait_that_lasts_counts_at_every_look(
    clock: Clock, client: Client, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def hang(self: Any) -> None:
        clock.forward(30)
        looks.append((own_work(client, clock)["train"], device_wait(client, clock)))
        raise TimeoutError

    monkeypatch.setattr(torch.Tensor.__mro__[1], "item", hang)
    watch_device(torch)  # a second call changes nothing
    with stagewatch.stage("train"):
        clock.forward(1)
        recorder = _api._recorder
        lane = recorder.wait_for_device()
        assert lane is not None
        with pytest.raises(TimeoutError):
            torch.Tensor.__mro__[1].item(None)
        recorder.device_done(lane)
        clock.forward(1)
    assert looks == [([1, 30], 30)]
    assert own_work(client, clock)["train"] == [2, 30]


def test_an_exception_ends_the_wait(
    clock: Clock, client: Client, torch: Any, device: Device
) -> None:
    def lost() -> None:
        clock.forward(2)
        raise RuntimeError("CUDA error: unspecified launch failure")

    device.wait = lost  # type: ignore[method-assign]
    with stagewatch.stage("train"):
        with pytest.raises(RuntimeError, match="unspecified"):
            torch.cuda.synchronize()
        clock.forward(1)
    assert own_work(client, clock)["train"] == [1, 2]
    assert device_wait(client, clock) == 2


def test_another_thread_s_waiting_is_not_the_training_thread_s(
    clock: Clock, client: Client, torch: Any, device: Device
) -> None:
    with stagewatch.stage("train"):
        device.launch(5)
        pinning = threading.Thread(target=torch.pinned.pin_memory, args=([1],))
        pinning.start()
        pinning.join()
    assert own_work(client, clock)["train"] == [5, 0]


def test_everything_is_put_back(clock: Clock, device: Device, torch: Any) -> None:
    before = torch.Tensor.item
    stop = watch_device(torch)
    assert torch.Tensor.item is before
    stop()  # what it has not replaced stays
    assert torch.Tensor.item is before
    assert before.__stagewatch__
