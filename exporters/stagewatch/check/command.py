"""Says in one line whether this node is fit for a job.

Exit status: 0 healthy, 1 with a warning, 2 to be drained, 3 when the check itself could not be made
(a bad option).

The check takes no action.  It asks the node's agent, which also knows how long the driver has hung
and which processes outlived their job.  If no agent answers, that is a warning.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from stagewatch.check.facts import Facts, gather
from stagewatch.check.judge import CHECKS, CheckOptions, Finding, Level, judge
from stagewatch.core.config import add_options, options_of
from stagewatch.core.errors import ConfigError
from stagewatch.core.words import printable

BROKEN = 3
"""Exit status of a check that could not be made; it must not drain a node."""

MAX_LINE = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch check`."""
    parser.add_argument("--list", action="store_true", help="print the names of the checks")
    add_options(parser, {"check": CheckOptions})


def run_arguments(arguments: argparse.Namespace) -> int:
    """Check, print, and return the exit status."""
    if arguments.list:
        print("\n".join(CHECKS))
        return 0
    try:
        options = options_of(arguments, CheckOptions, "check")
        mounts = () if "mounts" in options.skip else options.mounts
        facts = gather(
            options.agent, options, mounts, options.timeout, user=options.agent_user,
            lemons="" if "lemons" in options.skip else options.lemons, node=options.node,
        )  # fmt: skip
    except ConfigError as error:
        print(f"stagewatch: {error}", file=sys.stderr)
        return BROKEN
    findings = judge(facts, options)
    level = max((finding.level for finding in findings), default=Level.OK)
    print(line(findings, facts, level))
    return int(level)


def run(argv: Sequence[str] | None = None) -> int:
    """The command on its own."""
    parser = argparse.ArgumentParser(prog="stagewatch check", description=__doc__)
    add_arguments(parser)
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:
        return BROKEN if stop.code else 0
    return run_arguments(arguments)


def line(findings: Sequence[Finding], facts: Facts, level: Level) -> str:
    """The verdict in one line, the worst reasons first."""
    if not findings:
        gpus = sum(gpu.value > 0 for gpu in facts.series("gpu_up") if "mig" not in gpu.labels)
        return f"ok: {gpus} GPUs"
    reasons = "; ".join(dict.fromkeys(finding.reason for finding in findings))
    text = printable(" ".join(f"{level.name.lower()}: {reasons}".split()))
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 3] + "..."


if __name__ == "__main__":
    sys.exit(run())
