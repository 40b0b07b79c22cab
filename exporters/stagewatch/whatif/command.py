"""Says where the time of a job's steps went, and what fixing each cause would be worth.

  stagewatch trace --job 540 -o trace.json.gz --prometheus http://prometheus:9090
  stagewatch whatif trace.json.gz --gpus 64 --price 2.50
      the steps that all ranks of job 540 hold in their records

Each line is a cause: the share of the step that it took, and how much shorter the step would be
without it alone. A slow rank is named only if it is behind its peers in nearly every step.

exit status:
  0  the table is printed
  1  the file has no whole step, or is of an unknown kind
  2  an option or the file cannot be used
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.config import add_options, boolean, integer, number, option, options_of
from stagewatch.whatif.losses import Account, Loss, account
from stagewatch.whatif.recorded import read_recorded
from stagewatch.whatif.replay import Replay


def amount(value: Any) -> float | None:
    """a number above zero, as 2.50; or empty"""
    return None if value in ("", None) else number(value)


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """Options of `stagewatch whatif`."""

    gpus: int = option(0, "GPUs of the job; one for each rank if 0", parse=integer)
    hours: float | None = option(
        None, "length of the run, for GPU-hours; that of the steps if empty", parse=amount
    )
    price: float | None = option(
        None, "price of a GPU-hour, such as 2.50; without it no money is shown", parse=amount
    )
    currency: str = option("USD", "unit of the price")
    pipeline: int = option(
        1, "number of pipeline stages, if the ranks send to each other", parse=integer
    )
    json: bool = option(False, "print JSON", parse=boolean)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch whatif`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a file of stagewatch trace")
    add_options(parser, {"whatif": WhatIfOptions})


def run(arguments: argparse.Namespace) -> int:
    """Print the table; returns exit status 0."""
    options = options_of(arguments, WhatIfOptions, "whatif")
    made = account(Replay(read_recorded(arguments.file, options.pipeline)))
    print(_json(made, options) if options.json else "\n".join(lines(made, options)))
    return 0


def lines(made: Account, options: WhatIfOptions) -> list[str]:
    """The table as text."""
    gpus = options.gpus or made.ranks
    money = f"  {options.currency}" if options.price else ""
    told = [
        f"{made.steps} steps of {made.ranks} ranks took {made.measured:.3f} s each, "
        f"{made.ideal:.3f} s with every loss below mended",
        f"{'cause':<28} {'lost':>7} {'GPU-hours':>10}{money}   {'worth if mended alone':>8}",
    ]
    for loss in made.losses:
        row = f"{loss.cause.value:<28} {loss.share:7.1%} {_hours(made, options, loss.share):10.1f}"
        if options.price:
            row += f"  {_hours(made, options, loss.share) * options.price:.2f}"
        told.append(f"{row}   {loss.worth:.1%}")
    told += [f"rank {rank} computes {ratio:.2f} times as long" for rank, ratio in made.slow]
    return [*told, f"of {gpus} GPUs; slowdown by uneven work {made.slowdown:.2f} times"]


def _hours(made: Account, options: WhatIfOptions, share: float) -> float:
    """GPU-hours of a share of the time."""
    hours = made.steps * made.measured / 3600 if options.hours is None else options.hours
    return share * hours * (options.gpus or made.ranks)


def _json(made: Account, options: WhatIfOptions) -> str:
    def row(loss: Loss) -> dict[str, Any]:
        hours = _hours(made, options, loss.share)
        told = {"cause": loss.cause.value, "share": loss.share, "worth_if_mended": loss.worth}
        price = options.price
        return told | {"gpu_hours": hours, "money": hours * price if price is not None else None}

    return json.dumps(
        {
            "steps": made.steps,
            "ranks": made.ranks,
            "step_seconds": made.measured,
            "ideal_step_seconds": made.ideal,
            "slowdown": made.slowdown,
            "slow_ranks": [{"rank": rank, "times": ratio} for rank, ratio in made.slow],
            "losses": [row(loss) for loss in made.losses],
        },
        indent=2,
    )
