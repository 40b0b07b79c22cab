"""AReaL's tracer and tracker, as its trainer, its workers and its workflows use them.

    python -m tests.client.jobs.areal_steps TRACED

`TRACED` is "traced" where the run has its tracer configured.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import stagewatch
from tests.client.jobs.bare import bare_packages


def main(traced: bool) -> None:
    """One step; prints what the record showed."""
    warnings.simplefilter("ignore")  # of other people's packages
    stagewatch.install("areal")
    bare_packages("areal", "areal.utils", "areal.infra", "areal.api")
    from areal.utils import perf_tracer, stats_tracker
    from areal.utils.perf_tracer import Category, trace_perf, trace_session

    from tests.client.hooking import completed, record

    if traced:
        from areal.api.cli_args import PerfTracerConfig, SessionTracerConfig

        perf_tracer.configure(
            PerfTracerConfig(
                experiment_name="experiment",
                trial_name="trial",
                fileroot=str(Path.cwd()),
                enabled=True,
                session_tracer=SessionTracerConfig(enabled=True),
            ),
            rank=0,
        )
        perf_tracer.set_session_id(perf_tracer.register_session(perf_tracer.register_task(1) or 1))
    directory = Path(os.environ["STAGEWATCH_DIR"])
    seen: list[list[Any]] = []

    def note() -> None:
        frame = record(directory).open
        seen.append([frame.stage, frame.substage, frame.step] if frame else [])

    for timing, scope in (
        ("rollout", "train.rollout"),
        ("recompute_logp", "train.recompute_logp"),
        ("compute_advantage", "train.compute_advantage"),
        ("train_step", "train.ppo_update"),
        ("update_weights", "train.update_weights"),
        ("save", "train.save"),
        ("eval", "train.eval"),
    ):
        with (
            stats_tracker.record_timing(timing),
            perf_tracer.trace_scope(scope, category=Category.COMPUTE, args={"global_step": 6}),
        ):
            note()
    with stats_tracker.get("another").record_timing("critic_values"):
        note()

    class Actor:
        @trace_perf("ppo_actor.ppo_update", category="compute")
        def ppo_update(self, batch: int) -> int:
            note()
            return batch + 1

    @trace_session("reward")
    async def reward() -> None:
        await asyncio.sleep(0)
        note()

    async def workflow() -> None:
        async with perf_tracer.atrace_session_phase("generate"):
            await asyncio.sleep(0)
            note()
        await reward()

    result = Actor().ppo_update(1)
    asyncio.run(workflow())
    found = record(directory)
    report = {
        "version": version("areal"),
        "seen": seen,
        "timings": sorted(stats_tracker.export_all()),
        "result": result,
        "completed": completed(found),
        "role": found.role,
        "framework": found.framework,
        "failures": len(found.failures),
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1] == "traced")
