"""What `stagewatch demo` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.config import integer, number, option, path

SYNC_STALL = "sync-stall"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of `stagewatch demo`; the later ones are for the repository's scenarios."""

    scenario: str = option(SYNC_STALL, "what goes wrong, or list for all of them")
    keep: bool = option(False, "leave everything running until Ctrl-C")
    seed: int | None = option(None, "choose the rank that leaves early", parse=integer)
    baseline_steps: int = option(10, "healthy steps before the fault, 0.5 s each in sync-stall")
    cache: Path = option(Path(".cache"), "where a fetched Prometheus is kept")
    train: int = option(8, "train workers of the RL system, 2 to 32")
    rollout: int = option(4, "its rollout workers, 2 to 16")
    pace: float = option(
        60.0,
        "seconds of the modelled RL system in one second; a step is one of 360 s",
        parse=number,
    )
    json: Path | None = option(None, "write down what happened, for a report", parse=path)
    fault_id: str = option("", "the marker's name; the scenario's if empty")
