"""In which order to look, where it began and surfaced, by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from stagewatch.report.components import Component, target_of
from stagewatch.report.deviations import Baseline, Finding, Signal
from stagewatch.report.diagnosis import Diagnosis, Suspect, View, diagnose, suspects
from stagewatch.report.events import Event

SIGNAL = Signal("TCP round trip", "s", 0.02, "")
BASE = Baseline(100, 1.0, 0.1, 1.0, 0.1, 0.9, 1.1)
TRAIN_5 = Component("rank", "train", "5")
TRAIN_0 = Component("rank", "train", "0")
ROLLOUT_0 = Component("rank", "rollout", "0")
CONTROLLER = Component("rank", "controller", "0")
MOUNT = Component("mount", "", "/checkpoints", "n")
GPU = Component("gpu", "", "1", "n")
MEMORY = Signal("GPU memory", "B", 0.5, "")
TARGET = target_of("train_worker_5")


def deviates(
    component: Component, when: float, severity: float = 2.0, *, steady: bool = True
) -> Finding:
    """A series of a component that deviated from a time on."""
    return Finding(
        SIGNAL, component, "weights_update", "", BASE, when, steady, 9.0, severity, (), ()
    )


def fails(component: Component, when: float, stage: str = "weights_update") -> Event:
    """An exception."""
    return Event(when, "failure", component, stage, "SomeError")


def look(*seen: Finding | Event) -> tuple[list[Suspect], Diagnosis]:
    """Suspects and diagnosis of what was seen."""
    findings = [each for each in seen if isinstance(each, Finding)]
    events = sorted((each for each in seen if isinstance(each, Event)), key=lambda each: each.time)
    ordered = suspects(View(findings, events, ()), TARGET, tie=4.0)
    return ordered, diagnose(events, ordered, Counter({"rollout": 16, "train": 3}))


def test_the_first_to_deviate_comes_first_however_far_the_others_go() -> None:
    ordered, diagnosis = look(deviates(TRAIN_0, 108, 99.0), deviates(TRAIN_5, 103, 2.0))
    assert [each.component for each in ordered] == [TRAIN_5, TRAIN_0]
    assert diagnosis.began.component == "train 5"
    assert diagnosis.place == 1


def test_it_surfaces_elsewhere_than_where_it_began() -> None:
    _, diagnosis = look(
        deviates(TRAIN_5, 100),
        deviates(ROLLOUT_0, 108),
        fails(ROLLOUT_0, 160.1, "weights_update"),
        fails(TRAIN_5, 160.2, "weights_update"),
    )
    assert diagnosis.surfaced.component == "rollout 0"


def test_without_an_error_it_surfaces_where_most_ranks_hang() -> None:
    _, diagnosis = look(deviates(TRAIN_5, 100))
    assert diagnosis.surfaced.stage == "rollout"
    assert diagnosis.surfaced_how == "no error; 16 ranks were in it when it was detected"


def test_what_was_seen_before_an_error_comes_before_it() -> None:
    # The file system is full; three seconds later nobody can read the checkpoint.
    ordered, diagnosis = look(
        deviates(MOUNT, 105.7), fails(TRAIN_5, 108.515), fails(TRAIN_0, 108.517)
    )
    assert [each.component for each in ordered] == [MOUNT, TRAIN_5, TRAIN_0]
    assert diagnosis.began.component == "n /checkpoints"


def test_a_rank_that_waits_idle_is_no_suspect() -> None:
    age = Signal("progress age", "s", 2.0, "", age=True)
    waits = replace(deviates(TRAIN_0, 100, 99.0), signal=age, stage="idle")
    works = replace(deviates(CONTROLLER, 102, 9.0), signal=age, stage="other")
    ordered, _ = look(waits, works)
    assert [each.component for each in ordered] == [CONTROLLER]


def test_a_shared_gpu_that_is_used_less_waits_for_its_ranks() -> None:
    # It was handed over; the rank that should take it is not told.
    emptied = replace(deviates(GPU, 103, 4.2), signal=MEMORY, stage="", peak=0.0)
    ordered, diagnosis = look(emptied, deviates(CONTROLLER, 113, 2.0))
    assert [each.component for each in ordered] == [CONTROLLER, GPU]
    assert diagnosis.began.component == "controller 0"


def test_seen_by_the_same_look_the_first_to_fail_comes_first() -> None:
    # Both stages were cut short by exceptions 4 ms apart; the controller's a little more.
    ordered, diagnosis = look(
        deviates(MOUNT, 101.9, 1.4),
        deviates(CONTROLLER, 107.9, 6.17),
        deviates(TRAIN_5, 107.9, 6.15),
        fails(TRAIN_5, 106.398),
        fails(CONTROLLER, 106.402),
    )
    assert [each.component for each in ordered] == [MOUNT, TRAIN_5, CONTROLLER]
    assert diagnosis.place == 2


def test_an_error_does_not_put_its_rank_before_what_was_seen_earlier() -> None:
    ordered, _ = look(
        deviates(MOUNT, 105.7, 2.0), deviates(TRAIN_5, 107.7, 50.0), fails(TRAIN_5, 107.0)
    )
    assert [each.component for each in ordered] == [MOUNT, TRAIN_5]
