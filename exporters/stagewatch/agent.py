"""An agent as a command: its options, and the life of its process.

`stagewatch node` and `stagewatch slurm` differ only in their options and collectors.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.collector import Collector, CollectorSpec
from stagewatch.core.config import (
    Setting,
    add_flags,
    boolean,
    duration,
    fill,
    read_file,
    resolve,
    settings_of,
    show,
)
from stagewatch.core.runner import Job, Runner
from stagewatch.core.signals import incoming
from stagewatch.web.agent_server import AgentServer, Route

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """What makes one kind of agent."""

    name: str
    """The subcommand, and the table in the configuration file."""
    help: str
    options: type[Any]
    """Must have a field `listen`."""
    specs: Callable[[], tuple[CollectorSpec, ...]]
    context: Callable[[Any], Any]
    routes: Callable[[Any], Mapping[str, Route]] = lambda context: {}
    validate: Callable[[Any, Mapping[str, Any]], None] = lambda options, collectors: None
    """Given its options and those of the enabled collectors by name; raises `ConfigError` where
    they do not fit together."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Resolved values of one agent."""

    options: Any
    collectors: tuple[tuple[CollectorSpec, float, Any], ...]
    """Enabled collectors with their interval in seconds and their options."""
    settings: tuple[Setting, ...]
    values: Mapping[str, Any]


def agent_settings(command: AgentCommand) -> dict[str, list[Setting]]:
    """All settings of an agent by the group they are shown under in `--help`."""
    groups = {"agent": list(settings_of(command.options))}
    for spec in command.specs():
        prefix = f"collector.{spec.name}."
        variable = "STAGEWATCH_" + prefix.replace(".", "_").upper()
        groups[f"collector {spec.name}: {spec.help}"] = [
            Setting(
                prefix + "enabled",
                spec.default,
                boolean,
                "run this collector",
                variable + "ENABLED",
            ),
            Setting(
                prefix + "interval",
                float(spec.interval),
                duration,
                "time between two collections",
                variable + "INTERVAL",
            ),
            *settings_of(spec.options, prefix),
        ]
    return groups


def add_arguments(parser: argparse.ArgumentParser, command: AgentCommand) -> None:
    """All flags of an agent."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=os.environ.get("STAGEWATCH_CONFIG"),
        help=f"TOML file with a table [{command.name}] [STAGEWATCH_CONFIG]",
    )
    for title, settings in agent_settings(command).items():
        add_flags(parser.add_argument_group(title), settings)


def configure(
    command: AgentCommand, arguments: argparse.Namespace, environ: Mapping[str, str]
) -> AgentConfig:
    """The agent's configuration.  Raises `ConfigError` with one line saying what to mend."""
    settings = [item for group in agent_settings(command).values() for item in group]
    file = Path(arguments.config) if arguments.config else None
    values = resolve(
        settings,
        flags=vars(arguments),
        environ=environ,
        file=read_file(file, command.name) if file else {},
        where=f"{file} [{command.name}]",
    )
    collectors = tuple(
        (
            spec,
            values[f"collector.{spec.name}.interval"],
            fill(spec.options, values, f"collector.{spec.name}."),
        )
        for spec in command.specs()
        if values[f"collector.{spec.name}.enabled"]
    )
    options = fill(command.options, values)
    command.validate(options, {spec.name: chosen for spec, _, chosen in collectors})
    return AgentConfig(options, collectors, tuple(settings), values)


def check(config: AgentConfig) -> None:
    """Look into the files that the configuration names.  Raises `ConfigError`."""
    if (web_config := getattr(config.options, "web_config", None)) is not None:
        from stagewatch.web.security import WebSecurity

        WebSecurity(web_config)


def describe(config: AgentConfig) -> str:
    """The values that differ from their defaults, one `key = value` a line."""
    lines = [
        f"{setting.key} = {setting.show(config.values[setting.key])}"
        for setting in config.settings
        if config.values[setting.key] != setting.default
    ]
    return "\n".join(lines)


def run(command: AgentCommand, config: AgentConfig) -> int:
    """Serve until SIGTERM or SIGINT, then stop within five seconds."""
    # A scrape must not wait the default 5 ms for a collector that is computing.
    sys.setswitchinterval(0.0005)
    signals = incoming(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    context = command.context(config.options)
    jobs = [
        Job(spec.name, spec.build(options, context), interval)
        for spec, interval, options in config.collectors
    ]
    runner = Runner(jobs)
    server = AgentServer(
        config.options.listen,
        runner,
        node=getattr(config.options, "node_name", "") or os.uname().nodename,
        record_dir=getattr(config.options, "record_dir", None),
        routes=command.routes(context),
        web_config=getattr(config.options, "web_config", None),
    )
    runner.start()
    server.start()
    url = f"{server.scheme}://{show((config.options.listen[0] or '::', server.port))}/"
    log.info("stagewatch %s agent on %s, %d collectors", command.name, url, len(jobs))
    for number in signals:
        if number != signal.SIGUSR1:
            break
        _release(job.collector for job in jobs)
    log.info("stopping")
    server.close()
    runner.close()
    return 0


def _release(collectors: Any) -> None:
    """SIGUSR1: let go of devices, so that a reset or a MIG change can go ahead."""
    for collector in collectors:
        release: Callable[[], None] | None = getattr(collector, "release", None)
        if isinstance(collector, Collector) and release is not None:
            release()


__all__: Sequence[str] = (
    "AgentCommand",
    "AgentConfig",
    "add_arguments",
    "check",
    "configure",
    "describe",
    "run",
)
