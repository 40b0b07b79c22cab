"""The `stagewatch` command."""

from __future__ import annotations

import argparse
import difflib
import errno
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import stagewatch
from stagewatch.core.config import tables
from stagewatch.core.errors import ConfigError, StagewatchError

DESCRIPTION = """\
Observability for GPU training clusters: what is wrong, and where it began.

Every option can also be set by the variable named in its help and in a TOML file (--config);
flags win over variables, variables over the file.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit status (2 for bad usage)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(argv)
    except ModuleNotFoundError as error:
        return _lacking(argv[0], error)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT):  # not of what it wrote
            raise
        status = _unwritten(error)
    try:
        if sys.stdout:  # None where the caller has closed it
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # it is flushed once more
        return status or _unwritten(error)
    return status


def _lacking(command: str, error: ModuleNotFoundError) -> int:
    """The exit status if a package is missing; prints what to install for the command."""
    if (error.name or "").startswith("stagewatch"):
        raise error
    others = {"act": "slurm", "judge": "slurm", "lemons": "report"}
    others |= dict.fromkeys(("inspect", "trace", "whatif"), "report")
    extra = others.get(command, command)
    extra = extra if extra in ("slurm", "demo", "report", "top") else "node"
    install = f"pip install 'stagewatch[{extra}]'"
    print(f"stagewatch: {command} needs {error.name}: {install}", file=sys.stderr)
    return 3 if command == "check" else 1  # 1 and 2 of check are verdicts on the node


def _unwritten(error: OSError) -> int:
    """The exit status if the output could not be written; prints why, if anybody can read that."""
    if isinstance(error, BrokenPipeError):  # `stagewatch inspect | head`
        return 141
    print(f"stagewatch: cannot write the output: {error.strerror}", file=sys.stderr)
    return 1


def _run(argv: list[str]) -> int:
    if argv[:1] == ["check"]:  # its status 2 drains a node, so that bad usage has another there
        fitness: int = import_module("stagewatch.check.command").run(argv[1:])
        return fitness
    parser = _parser(argv)
    arguments = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    try:
        status: int = arguments.run(arguments)
    except ConfigError as error:
        print(f"stagewatch: {error}", file=sys.stderr)
        return 2
    except StagewatchError as error:
        print(f"stagewatch: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    """The parser of the requested command, with the names of all commands."""
    parser = argparse.ArgumentParser(
        prog="stagewatch",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=stagewatch.__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_commands(commands, argv)
    _add_agents(commands, argv)
    return parser


_COMMANDS = {
    "died": ("stagewatch.died.command", "say why a job died, from its logs and Slurm"),
    "run": (
        "stagewatch.run.command",
        "run a training command, and say in the end what happened to it",
    ),
    "inspect": (
        "stagewatch.inspect.command",
        "say what the ranks of this node are doing, and which one is at fault",
    ),
    "explain": (
        "stagewatch.inspect.explain",
        "say step by step why the judge decided as it did, from a case file",
    ),
    "top": ("stagewatch.top.command", "show live what every rank is doing, and what is wrong"),
    "trace": (
        "stagewatch.trace.command",
        "write the last events of a job's ranks as a trace for Perfetto and Chrome",
    ),
    "whatif": (
        "stagewatch.whatif.command",
        "say where the time of a job's steps went, and what fixing each cause would be worth",
    ),
    "check": ("stagewatch.check.command", "say in one line whether this node is fit for a job"),
    "qualify": (
        "stagewatch.qualify.command",
        "measure this node for a minute, and say whether it is fit for a job",
    ),
    "lemons": (
        "stagewatch.lemons.command",
        "say which nodes and GPUs interrupt jobs more often than chance explains",
    ),
    "checkpoint": (
        "stagewatch.checkpoint.command",
        "say whether a checkpoint is whole, before a job loads it",
    ),
    "act": (
        "stagewatch.act.command",
        "hand the proof of a verdict to those who repair nodes; take a node out, and undo that",
    ),
    "demo": ("stagewatch.demo.command", "watch a real job hang and the stack name the culprit"),
    "fault": (
        "stagewatch.faults.command",
        "inject faults and undo them; mark those that others inject",
    ),
    "report": (
        "stagewatch.report.command",
        "report on an injected fault, or on failures and recoveries",
    ),
    "assets": ("stagewatch.assets", "write out the alert rules and dashboards"),
    "keeper": (
        "stagewatch.keeper",
        "keep the privileges of the node agent's service; started by systemd",
    ),
}
"""Module and help of the subcommands other than the agents.

A module has `add_arguments`, `run` and a docstring for `--help`.
"""


def _add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], argv: list[str]
) -> None:
    """Add all commands but the agents; only the requested one is imported."""
    for name, (path, help) in _COMMANDS.items():
        parser = commands.add_parser(name, help=help)
        if argv[:1] == [name]:
            module: Any = import_module(path)
            parser.description = module.__doc__
            parser.formatter_class = argparse.RawDescriptionHelpFormatter
            module.add_arguments(parser)
            parser.set_defaults(run=module.run)


_AGENTS = {
    "node": ("stagewatch.node", "run the agent of a GPU node"),
    "slurm": ("stagewatch.slurm.agent", "run the agent of a Slurm cluster"),
    "judge": (
        "stagewatch.judgement.service",
        "run the judge, which names who holds up a cluster's jobs",
    ),
}


def _add_agents(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], argv: list[str]
) -> None:
    """Add the agents and `check-config`; collectors are imported only for them, so that `inspect`
    works from the client's bare install."""
    for name, (_, help) in _AGENTS.items():
        parser = commands.add_parser(name, help=help)
        if argv[:1] == [name]:
            _add_agent(parser, name)
    check = commands.add_parser(
        "check-config",
        help="check an agent's flags, variables and file, and run nothing",
        description="Print what differs from the defaults; exit with 2 and say why if it is wrong.",
    )
    check.add_argument(
        "--agent", choices=_AGENTS, default="node", help="agent to check [default: node]"
    )
    if argv[:1] == ["check-config"]:
        asked = [one for one in _AGENTS if {one, f"--agent={one}"} & set(argv)]
        _add_agent(check, asked[0] if asked else "node")


def _add_agent(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the flags of an agent, and the functions that run it or check them."""
    agent: Any = import_module(_AGENTS[name][0]).COMMAND
    parser.description = parser.description or agent.help
    parser.usage = "%(prog)s [options]"  # a line for each of a hundred would hide the description
    agent.add_arguments(parser)

    def run(arguments: argparse.Namespace) -> int:
        config = agent.configure(arguments, os.environ)
        warnings = list(_unknown_tables(arguments.config, name))
        if "agent" not in arguments:
            for warning in warnings:
                logging.warning(warning)
            status: int = agent.run(config)
            return status
        config.check()
        for warning in (*warnings, *agent.warnings(config.options)):
            print(f"stagewatch: warning: {warning}", file=sys.stderr)
        print(config.describe() or "all defaults")
        return 0

    parser.set_defaults(run=run)


def _unknown_tables(file: Path | None, name: str) -> Iterator[str]:
    """A line for each table of a file that no command reads."""
    known = {*_AGENTS, *_COMMANDS, "prometheus"}
    for table in tables(Path(file), name) if file else ():
        if table not in known:
            close = difflib.get_close_matches(table, known, 1)
            hint = f"; did you mean [{close[0]}]?" if close else ""
            yield f"{file}: unknown table [{table}] has no effect{hint}"


if __name__ == "__main__":
    sys.exit(main())
