"""Hooks the timers, context managers or log of a framework that has no hook of its own.

from stagewatch.client.hooks import generic

generic.hook_timer(Timer, stages={"gen": "rollout", "upd": "train"})       # start(name), stop(name)
generic.hook_context(my_module, "timed", stages={"gen": "rollout"})        # with timed(name): ...
logging.getLogger("my.timer").addHandler(generic.TimerLog(stages={...}))   # "gen start", "gen end"
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from stagewatch.client._harmless import warn_once
from stagewatch.client.hooks.patching import Patches, plan_timer, with_stage
from stagewatch.client.hooks.span import Names, Span

Stages = Mapping[str, str | None]
"""Own name to canonical stage; None for a span that shows no stage."""

_LINE = re.compile(r"(?P<name>\S+) (?P<event>start|end|stop)\b")


def hook_timer(
    timer: type,
    *,
    stages: Stages,
    start: str = "start",
    stop: str = "stop",
    framework: str = "generic",
) -> Callable[[], None]:
    """Hook a timer class whose methods `start` and `stop` take a name.

    Returns a function that takes the hook out again.  Never raises.
    """
    names = Names(framework, stages)
    return _hook(framework, lambda patches: plan_timer(patches, timer, names, start, stop))


def hook_context(
    owner: Any, function: str, *, stages: Stages, framework: str = "generic"
) -> Callable[[], None]:
    """Hook a module's or class' function that makes a context manager for a name.

    Returns a function that takes the hook out again.  Never raises.
    """
    names = Names(framework, stages)
    return _hook(framework, lambda patches: patches.plan(owner, function, with_stage(names)))


class TimerLog(logging.Handler):
    """A log handler for a timer that says "NAME start" and "NAME end".

    `pattern` has the groups `name` and `event`, which is `start` or anything else.  The timer's
    logger must be at its level, commonly DEBUG; two tasks that time the same name are told apart
    by their thread alone.
    """

    def __init__(
        self,
        *,
        stages: Stages,
        framework: str = "generic",
        pattern: re.Pattern[str] = _LINE,
    ) -> None:
        super().__init__(logging.DEBUG)
        self._names = Names(framework, stages)
        self._pattern = pattern
        self._open: dict[tuple[int | None, str], Span] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Begin or end the span that the line names."""
        try:
            line = self._pattern.search(record.getMessage())
        except Exception:  # the other handlers complain of a line with wrong arguments
            return
        if line is None:
            return
        key = (record.thread, line["name"])
        if line["event"] == "start":
            span = self._open[key] = Span(self._names, line["name"])
            span.begin()
        elif key in self._open:
            self._open.pop(key).finish()

    def handle(self, record: logging.LogRecord) -> bool:
        """Emit without the lock of `logging.Handler`, which a trainer's thread would wait for."""
        passed = bool(self.filter(record))
        if passed:
            self.emit(record)
        return passed


def _hook(framework: str, plan: Callable[[Patches], None]) -> Callable[[], None]:
    patches = Patches("")
    try:
        plan(patches)
        patches.apply()
    except Exception as error:
        warn_once(framework, f"not hooked: {error}", framework)
        patches.undo()
    return patches.undo
