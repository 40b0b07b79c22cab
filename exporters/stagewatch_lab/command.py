"""The scenarios as `stagewatch demo` offers them."""

from __future__ import annotations

from collections.abc import Mapping

from stagewatch.demo.scenario import DemoOptions
from stagewatch_lab.rl import run as rl
from stagewatch_lab.rl.scenarios import SCENARIOS as RL_SCENARIOS
from stagewatch_lab.slurm import run as slurm
from stagewatch_lab.slurm.scenarios import SCENARIOS as SLURM_SCENARIOS


def summaries() -> Mapping[str, str]:
    """The source of each scenario and what goes wrong in it, by name."""
    return {
        **{name: f"{kind.source}: {kind.summary}" for name, kind in RL_SCENARIOS.items()},
        **{name: f"{one.source}: {one.help}" for name, one in SLURM_SCENARIOS.items()},
    }


def run(options: DemoOptions) -> int:
    """Play the scenario that was asked for; the exit status is 0 if its place was named."""
    if options.scenario in SLURM_SCENARIOS:
        return slurm.run(options)
    return rl.run(options)
