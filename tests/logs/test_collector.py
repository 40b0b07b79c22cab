"""Logs end to end, through the helper process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagewatch.core.children.helper import Helper
from stagewatch.core.exposition import Samples
from stagewatch.logs import collector as logs
from stagewatch.logs.collector import LogsCollector, LogsOptions, job, path_pattern
from tests.waiting import wait_for

Start = Callable[..., LogsCollector]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(*files: str, **changed: object) -> LogsCollector:
            options = LogsOptions(files, every=0.1, **changed)  # type: ignore[arg-type]
            helper = Helper({name: job(name, options) for name in files})
            stack.callback(helper.close)
            return LogsCollector(helper, patterns=options.patterns)

        yield begin


def wait_collected(
    collector: LogsCollector, condition: Callable[[Samples], object], what: str
) -> Samples:
    return wait_for(lambda: condition(out := collector.collect()) and out, what)


def stamp(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def test_the_first_cause_and_the_last_symptom_are_told_apart_over_33_files(
    start: Start, tmp_path: Path
) -> None:
    names = [f"540_train_{n}.log" for n in range(16)] + [f"540_rollout_{n}.log" for n in range(16)]
    for name in (*names, "540_controller_0.log"):
        (tmp_path / name).write_text("started\n")
    collector = start(f"{tmp_path}/{{job_id}}_{{role}}_{{rank}}.log")
    out = wait_collected(collector, lambda out: logs.SKIPPED in out.families, "a first reading")
    assert out.value(logs.MATCHES, "cuda_oom", "540", "train", "5", "") == 0

    now = int(time.time())
    for name, when, line in (
        ("540_controller_0.log", now - 10, "Error stopping job: Request timeout"),
        ("540_train_5.log", now - 60, "torch.OutOfMemoryError: CUDA out of memory"),
        ("540_rollout_3.log", now - 30, 'POST /stop "HTTP/1.1 503 Service Unavailable"'),
        ("540_controller_0.log", now - 5, "Error stopping job: Request timeout"),
    ):
        with (tmp_path / name).open("a") as file:
            file.write(f"{stamp(when)} {line}\n")
    oom = ("cuda_oom", "540", "train", "5", "")
    timeout = ("request_timeout", "540", "controller", "0", "")
    out = wait_collected(
        collector,
        lambda out: out.value(logs.MATCHES, *oom) == 1 and out.value(logs.MATCHES, *timeout) == 2,
        "all lines",
    )
    first = dict(out.families[logs.FIRST])
    assert min(first, key=first.__getitem__) == oom
    last = dict(out.families[logs.LAST])
    assert max(last, key=last.__getitem__) == timeout
    assert out.value(logs.FIRST, *oom) == now - 60
    assert out.value(logs.LAST, *timeout) == now - 5


def test_user_defined_patterns_take_the_place_of_the_known_ones(
    start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.touch()
    collector = start(str(log), patterns=("mismatch=Batch size mismatch",))
    wait_collected(collector, lambda out: logs.SKIPPED in out.families, "a first reading")
    log.write_text("Batch size mismatch: 1500\nCUDA out of memory\n")
    labels = ("mismatch", "", "", "", "train.log")
    out = wait_collected(collector, lambda out: out.value(logs.MATCHES, *labels) == 1, "a match")
    assert {pattern for pattern, *_ in out.families[logs.MATCHES]} == {"mismatch"}


@pytest.mark.parametrize(
    "refused", ["relative.log", "/x/{rank}/{rank}", "/x/{name}.log", "/x/../y", "/x/{rank.log"]
)
def test_odd_paths_are_refused(refused: str) -> None:
    with pytest.raises(ValueError):
        path_pattern(refused)
