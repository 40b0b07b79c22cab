"""The scenarios as `stagewatch demo` offers them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from stagewatch_lab.rl import run as rl
from stagewatch_lab.rl.scenarios import SCENARIOS as RL_SCENARIOS
from stagewatch_lab.slurm import run as slurm
from stagewatch_lab.slurm.scenarios import SCENARIOS as SLURM_SCENARIOS

add_arguments = rl.add_arguments


def summaries() -> Mapping[str, str]:
    """The source of each scenario and what goes wrong in it, by name."""
    return {
        **{name: f"{kind.source}: {kind.summary}" for name, kind in RL_SCENARIOS.items()},
        **{name: f"{one.source}: {one.help}" for name, one in SLURM_SCENARIOS.items()},
    }


def run(arguments: argparse.Namespace) -> int:
    """Play the scenario that was asked for; the exit status is 0 if its place was named."""
    if arguments.scenario in SLURM_SCENARIOS:
        return slurm.run(arguments)
    return rl.run(arguments)
