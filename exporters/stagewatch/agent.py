"""An agent as a command: its options, and the life of its process.

`stagewatch node` and `stagewatch slurm` differ only in their options and collectors.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from stagewatch.core.collector import CollectorSpec
from stagewatch.core.config import (
    PREFIX,
    Setting,
    add_config_flag,
    add_flags,
    fill,
    settings_of,
    show,
    values_of,
)
from stagewatch.core.context import AgentOptions, Context, Lookup, Route
from stagewatch.core.runner import Job, Runner
from stagewatch.web.agent_server import AgentServer
from stagewatch.web.facts import Judged

log = logging.getLogger(__name__)

GARBAGE = 10_000
"""The garbage collector runs once so many more objects were made than freed."""

OptionsT = TypeVar("OptionsT", bound=AgentOptions)
ContextT = TypeVar("ContextT", bound=Context)


@dataclass(frozen=True, slots=True)
class AgentConfig(Generic[OptionsT]):
    """Resolved values of one agent."""

    options: OptionsT
    settings: tuple[Setting, ...]
    values: Mapping[str, object]

    def check(self) -> None:
        """Check the files that the configuration names.  Raises `ConfigError`."""
        if self.options.web_config is not None:
            from stagewatch.web.security import WebSecurity

            WebSecurity(self.options.web_config)

    def describe(self) -> str:
        """The values that differ from their defaults, one `key = value` on each line."""
        return "\n".join(
            f"{setting.key} = {setting.show(self.values[setting.key])}"
            for setting in self.settings
            if self.values[setting.key] != setting.default
        )


@dataclass(frozen=True, slots=True)
class AgentCommand(Generic[OptionsT, ContextT]):
    """The parts of one kind of agent."""

    name: str
    """The subcommand, and the table in the configuration file."""
    help: str
    options: type[OptionsT]
    specs: Callable[[], tuple[CollectorSpec[ContextT], ...]]
    context: Callable[[OptionsT], ContextT]
    routes: Callable[[ContextT], Mapping[str, Route]] = lambda context: {}
    lookups: Callable[[ContextT], Mapping[str, Lookup]] = lambda context: {}
    """Pages by the path before the last slash, slash included."""
    warnings: Callable[[OptionsT], Iterable[str]] = lambda options: ()
    """The warnings of `check-config` about this machine."""
    judged: Callable[[ContextT], Judged | None] = lambda context: None
    """Returns the findings on jobs for the status page."""
    env: str = PREFIX
    """The prefix of the variables of its own options."""

    def settings(self) -> dict[str, tuple[Setting, ...]]:
        """All settings by their group in `--help`."""
        groups: dict[str, tuple[Setting, ...]] = {"agent": ()}
        for setting in settings_of(self.options, env=self.env):
            groups[setting.group] = (*groups.get(setting.group, ()), setting)
        for spec in self.specs():
            groups[f"collector {spec.name}: {spec.help}"] = spec.settings()
        return groups

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add all flags."""
        add_config_flag(parser, self.name)
        for title, settings in self.settings().items():
            add_flags(parser.add_argument_group(title), settings)

    def configure(
        self, arguments: argparse.Namespace, environ: Mapping[str, str]
    ) -> AgentConfig[OptionsT]:
        """The configuration.  Raises `ConfigError` with a line that says what to mend."""
        settings = tuple(item for group in self.settings().values() for item in group)
        values = values_of(arguments, settings, self.name, environ)
        options = fill(self.options, values)
        return AgentConfig(options, settings, values)

    def jobs(self, values: Mapping[str, object], context: ContextT) -> list[Job]:
        """The enabled collectors, each with its interval."""
        planned = [(spec, spec.schedule(values)) for spec in self.specs()]
        return [
            Job(spec.name, spec.make(values, context), schedule.interval, page=spec.page)
            for spec, schedule in planned
            if schedule.enabled
        ]

    def run(self, config: AgentConfig[OptionsT]) -> int:
        """Serve until SIGTERM or SIGINT, then stop within five seconds.

        Raises `ModuleNotFoundError` if the packages for its page are not installed.
        """
        if importlib.util.find_spec("jinja2") is None:  # imported once somebody looks
            raise ModuleNotFoundError(name="jinja2")
        # A scrape must not wait the default 5 ms for a collector that is computing.
        sys.setswitchinterval(0.0005)
        # What a collection makes and drops has no cycles; most of the rest stays until the end.
        gc.freeze()
        gc.set_threshold(GARBAGE)
        signals = incoming(signal.SIGTERM, signal.SIGINT)
        options = config.options
        context = self.context(options)
        runner = Runner(self.jobs(config.values, context))
        server = AgentServer(
            options.listen,
            runner,
            node=options.title(),
            record_dir=options.records(),
            routes=self.routes(context),
            lookups=self.lookups(context),
            judged=self.judged(context),
            web_config=options.web_config,
        )
        runner.start()
        server.start()
        url = f"{server.scheme}://{show((options.listen[0] or '::', server.port))}/"
        log.info("stagewatch %s agent on %s, %d collectors", self.name, url, len(runner.jobs))
        next(signals)
        log.info("stopping")
        server.close()
        runner.close()
        context.close()
        leave(0)


def leave(status: int) -> NoReturn:
    """End the process at once, after writing out the log.

    Threads of the server and of collectors may still be in native code.  If such a thread returns
    during the shutdown of CPython, its stack is unwound (`pthread_exit` in `PyEval_RestoreThread`),
    and frames of Rust, such as bcrypt's, abort the process then: "FATAL: exception not rethrown".
    So the interpreter is not shut down.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()
    os._exit(status)


def incoming(*numbers: signal.Signals) -> Iterator[signal.Signals]:
    """These signals from now on, as they come; call it in the main thread.

    A handler that sets an Event does not work: it may run while the main thread holds the event's
    lock on its way into `wait`, and never return; or it may run before the thread sleeps, and be
    missed.  The interpreter's wake-up descriptor has neither problem: what is written stays there.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)

    def stream() -> Iterator[signal.Signals]:
        while True:
            yield signal.Signals(os.read(reader, 1)[0])

    return stream()
