"""The last ten minutes of each GPU."""

from __future__ import annotations

from stagewatch.core.exposition import Samples
from stagewatch.gpu.history import SLOTS, SPAN_SECONDS, GpuHistory
from stagewatch.gpu.readings import Reading
from tests.fake_clock import Clock

SLOT = SPAN_SECONDS / SLOTS
TEMPERATURE = Reading.TEMPERATURE.metric


def reading(celsius: float, gpu: int = 0) -> Samples:
    """One GPU's temperature."""
    out = Samples()
    out.add(TEMPERATURE, celsius, gpu, f"GPU-{gpu}", "")
    return out


def key(gpu: int = 0) -> tuple[str, tuple[str, str, str]]:
    return TEMPERATURE.name, (str(gpu), f"GPU-{gpu}", "")


def test_a_slot_has_the_mean_of_its_readings_and_now_is_the_last_one() -> None:
    clock = Clock(100 * SPAN_SECONDS)
    history = GpuHistory(clock)
    for celsius in (40, 50):
        history.note(reading(celsius))
    clock.now += 2 * SLOT
    history.note(reading(60))
    values = history()[key()]
    assert len(values) == SLOTS
    assert values[-3:] == [45, None, 60]
    assert set(values[:-3]) == {None}


def test_what_is_older_than_ten_minutes_is_gone() -> None:
    clock = Clock(100 * SPAN_SECONDS)
    history = GpuHistory(clock)
    history.note(reading(40, gpu=0))
    history.note(reading(50, gpu=1))
    clock.now += SPAN_SECONDS - SLOT
    history.note(reading(51, gpu=1))
    assert history()[key(0)][0] == 40
    clock.now += SLOT
    history.note(reading(52, gpu=1))
    assert key(0) not in history()
    assert history()[key(1)][-2:] == [51, 52]
    assert history()[key(1)][0] is None
