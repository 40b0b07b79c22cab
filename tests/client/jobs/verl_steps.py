"""verl's timers, tracking and worker annotations, as its trainer and its workers use them."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import stagewatch


def main() -> None:
    """One step of the controller and one call in a worker; prints what the record showed."""
    warnings.simplefilter("ignore")  # of other people's packages
    stagewatch.install("verl")
    import verl
    from verl.utils.debug import marked_timer
    from verl.utils.profiler import DistProfiler, simple_timer
    from verl.utils.tracking import Tracking

    from tests.client.hooking import completed, record

    directory = Path(os.environ["STAGEWATCH_DIR"])
    seen: list[list[str]] = []
    timing: dict[str, float] = {}

    def note() -> None:
        frame = record(directory).open
        seen.append([frame.stage, frame.substage] if frame else [])

    with marked_timer("step", timing):
        for name in ("gen", "reward", "old_log_prob", "ref", "adv", "update_actor", "my_own"):
            with marked_timer(name, timing, color="red"):
                note()
    with simple_timer("generate_sequences", timing):
        note()

    class Worker:
        profiler = SimpleNamespace(rank=5, check_enable=lambda: False)

        @DistProfiler.annotate(role="actor_update")
        def update(self, batch: int) -> int:
            note()
            return batch + 1

    result = Worker().update(1)
    Tracking("project", "experiment", default_backend=["console"], config={}).log(
        {"critic/rewards/mean": 0.25, "actor/ppo_kl": 0.1, "perf/total_num_tokens": 4096}, step=9
    )
    try:
        with marked_timer("update_weights", timing):
            raise TimeoutError("made up")
    except TimeoutError:
        pass
    found = record(directory)
    report: dict[str, Any] = {
        "version": verl.__version__,
        "seen": seen,
        "timed": sorted(timing),
        "result": result,
        "completed": completed(found),
        "scalars": dict(found.scalars),
        "work": dict(found.work),
        "step": found.lanes[0].step,
        "role": found.role,
        "framework": found.framework,
        "failures": [[*key, count] for key, count in found.failures.items()],
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
