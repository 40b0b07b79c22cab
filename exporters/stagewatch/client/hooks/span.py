"""Records a framework's own timed spans as stages, when they are entered.

Spans of one task nest.  A span inside a span of the same stage is a substage and is not counted
again.  Inside `train` and `eval` every span is a part of these: the same functions run there for
another purpose.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from stagewatch.client import _api
from stagewatch.client._harmless import step_aside, swallow, whole_step
from stagewatch.client._recorder import Recorder
from stagewatch.record import SUBSTAGE_SIZE, pad
from stagewatch.stages import CODES, OTHER

_ABSORBING = (CODES["train"], CODES["eval"])
_SILENT = -1
_UNLISTED = -2
_MAX_NAMES = 1024

_innermost: ContextVar[Span | None] = ContextVar("stagewatch_span", default=None)
_known: dict[tuple[str, str], tuple[int, bytes]] = {}
_began = False


@dataclass(frozen=True, slots=True)
class Names:
    """A framework's own names for stages and metrics."""

    framework: str
    stages: Mapping[str, str | None]
    """The canonical stage by the framework's own name, which becomes the substage.  None marks a
    span without a stage: it wraps a whole step, or waits for others.  An unlisted name belongs to
    the stage in which it runs, and is `other` if none is open."""
    scalars: Mapping[str, str] = field(default_factory=dict)
    """The name of the scalar by the name of a logged metric."""
    single_controller: bool = False
    """Whether one process without a rank drives workers that have one."""
    rank_variables: tuple[str, ...] = ("STAGEWATCH_RANK", "RANK")
    """The variables that the framework's workers have and its controller lacks.  Slurm's are not
    among them: a Ray cluster that was started by `srun` hands them down to every process."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The role by a name that only processes of this role use."""


def by_stage(*, silent: str = "", **stages: str) -> dict[str, str | None]:
    """`Names.stages` from the names of every canonical stage, with blanks between them; `silent`
    names record no stage."""
    listed = {name: stage for stage, names in stages.items() for name in names.split()}
    return dict.fromkeys(silent.split()) | listed


class Span(_api.Stage):
    """One pass through a span that the framework calls `name`.  Never raises.

    Use it as a context manager, or call `begin` and `end`; spans may end in any order.
    """

    __slots__ = ("_handled", "_name", "_names", "_outer", "_step")
    _handled: int
    _outer: Span | None

    def __init__(self, names: Names, name: str, step: Any = None) -> None:
        self._names = names
        self._name = name
        self._step = step
        self.lane = None

    def begin(self) -> None:
        """Open the stage in the record."""
        try:
            self._begin()
            return
        except BaseException as error:  # a span that raised at its start is never ended
            self._abandon()
            swallow("a span was not recorded", error)

    def end(self, error: BaseException | None = None) -> None:
        """Close the stage; an exception counts as its failure."""
        try:
            if self.lane is None:
                return
            _api.Stage.__exit__(self, None, error, None)
            if _innermost.get() is self:
                _innermost.set(_open(self._outer))
        except BaseException as problem:
            self._abandon()
            swallow("the end of a span was not recorded", problem)

    def finish(self) -> None:
        """Close the stage for a caller, like a timer's `stop`, that does not know of an
        exception."""
        if self.lane is not None:
            error = sys.exc_info()[1]
            self.end(error if error is not None and id(error) != self._handled else None)

    def __enter__(self) -> Span:
        try:
            self.begin()
            return self
        except BaseException:
            self._abandon()
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            step_aside(error)
        self.end(error)

    def _begin(self) -> None:
        code, label = _resolve(self._names, self._name)
        recorder = _record_of(self._names, self._name)
        if code == _SILENT or recorder is None or self.lane is not None:
            return
        outer = _open(_innermost.get())
        if outer is not None and (code == _UNLISTED or outer.label[0] in _ABSORBING):
            code = outer.label[0]
        elif code == _UNLISTED:
            code = OTHER
        self.step = None if self._step is None else whole_step(self._step)
        self._outer = outer
        self._handled = id(sys.exc_info()[1])  # an exception that is already being handled
        self.label = code, label, _api.event_name(code, label)
        _api.Stage.__enter__(self)
        if self.lane is not None:
            if _within(outer, code):
                self.started = -self.started
            _innermost.set(self)

    def _abandon(self) -> None:
        if self.lane is not None:
            self.lane.settle(without=self)
        self.lane = None


def inside(stage: str) -> bool:
    """Whether a span of the canonical stage is open in this task."""
    return _within(_open(_innermost.get()), CODES[stage])


def mark(names: Names, step: Any = None) -> None:
    """Record progress, at the step that the framework reports."""
    if _record_of(names, "") is not None:
        _api.heartbeat(step)


def publish(names: Names, values: Any) -> None:
    """Record the logged values that have a canonical name.  Never raises."""
    try:
        if _record_of(names, "") is not None:
            for own, name in names.scalars.items():
                value = values.get(own)
                if value is not None:
                    _api.scalar(name, value)
    except Exception as error:
        swallow("values were not recorded", error)


def count(names: Names, *, stage: str = "train", own: str = "", **amounts: float) -> None:
    """Count tokens, samples or FLOPs of a stage; `own` is the framework's name of it."""
    if _record_of(names, own) is not None:
        _api.throughput(stage=stage, **amounts)


def record_value(names: Names, scalar: str, value: Any, own: str = "") -> None:
    """Record a value of the framework, if it has one."""
    if value is not None and _record_of(names, own) is not None:
        _api.scalar(scalar, value)


def calling(names: Names, own: str, name: str) -> _api.call:
    """A call that the framework waits for, in a process whose record may not have begun.

    `own` is the framework's name of it; it sets the role of the process.
    """
    _record_of(names, own)
    return _api.call(name)


def _resolve(names: Names, name: str) -> tuple[int, bytes]:
    key = (names.framework, name)
    known = _known.get(key)
    if known is None:
        stage = names.stages.get(name, "")
        code = _SILENT if stage is None else CODES.get(stage, _UNLISTED)
        known = code, pad(name, SUBSTAGE_SIZE)
        if len(_known) < _MAX_NAMES:
            _known[key] = known
    return known


def _record_of(names: Names, name: str) -> Recorder | None:
    """This process' record; it begins here unless `init` was called, since a worker now has its
    rank.

    It begins only once: a closed record stays closed, and forked children are not the rank.
    """
    global _began  # noqa: PLW0603
    if not _began:
        _began = True
        if _api._recorder is None:
            _api.init(framework=names.framework, **_part(names, name))
    recorder = _api._recorder
    if recorder is not None and names.framework and not recorder.framework:
        recorder.name_framework(names.framework)
    return recorder


def _part(names: Names, name: str) -> dict[str, Any]:
    """The role and rank of a process without ones from its launcher.

    A process without a rank is the controller, which drives the workers, or a helper; a helper's
    rank is its pid.
    """
    ranked = any(os.environ.get(variable) for variable in names.rank_variables)
    part: dict[str, Any] = {}
    role = names.roles.get(name)
    if names.single_controller and not ranked:
        if role is not None:
            part["rank"] = os.getpid()
        role = role or "controller"
    if role is not None and not os.environ.get("STAGEWATCH_ROLE"):
        part["role"] = role
    return part


def _open(span: Span | None) -> Span | None:
    """The innermost span that is still open, from this one outwards."""
    while span is not None and span.lane is None:
        span = span._outer
    return span


def _within(span: Span | None, code: int) -> bool:
    while span is not None:
        if span.lane is not None and span.label[0] == code:
            return True
        span = span._outer
    return False
