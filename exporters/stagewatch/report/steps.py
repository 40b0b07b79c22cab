"""Where the steps of jobs went, by what `stagewatch whatif --json` has told of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.config import text
from stagewatch.core.errors import ConfigError
from stagewatch.core.state_file import BROKEN, parse, real, whole
from stagewatch.core.state_file import text as words

MAX_BYTES = 1 << 20
MAX_ROWS = 64


@dataclass(frozen=True, slots=True)
class Loss:
    """What a cause took of a step, and how much shorter the step were without it alone; of 1."""

    cause: str
    lost: float
    worth: float


@dataclass(frozen=True, slots=True)
class Step:
    """The account of a job's steps."""

    job_id: str
    steps: int
    seconds: float
    slow: Sequence[tuple[int, float]]
    """Slow ranks, and how many times as long as their peers they compute."""
    losses: Sequence[Loss]


def job_file(value: object) -> tuple[str, str]:
    """JOB=FILE, with the JSON of `stagewatch whatif`"""
    job, _, file = text(value).partition("=")
    if not job or not file:
        raise ValueError
    return job, file


def read_step(job: str, file: str) -> Step:
    """The account in a file.  Raises `ConfigError` where it holds none."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_BYTES)
        return _step(job, parse(data))
    except OSError as error:
        raise ConfigError(f"--step {file}: {error.strerror}") from error
    except BROKEN as error:
        raise ConfigError(f"--step {file}: must be the JSON of `stagewatch whatif`") from error


def _step(job: str, content: Any) -> Step:
    slow = [(whole(one["rank"]), real(one["times"])) for one in content["slow_ranks"][:MAX_ROWS]]
    losses = [
        Loss(words(one["cause"]), _share(one["share"]), _share(one["worth_if_mended"]))
        for one in content["losses"][:MAX_ROWS]
    ]
    return Step(job, whole(content["steps"]), real(content["step_seconds"]), slow, losses)


def _share(value: Any) -> float:
    if not -1 <= (share := real(value)) <= 1:
        raise ValueError(f"{value!r:.40} is no share")
    return share
