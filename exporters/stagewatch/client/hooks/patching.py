"""Replaces functions of a framework by ones that record stages, all or none, and restores them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from types import ModuleType
from typing import Any

from stagewatch.client._harmless import step_aside, swallow
from stagewatch.client.hooks.span import Names, Span

Wrapping = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes the new function out of the old one."""


class UnknownShape(Exception):
    """The framework differs from the versions that this hook knows; the text says what is
    missing."""


class Patches:
    """Changes that are planned first, so that a surprise leaves everything as it was.

    Modules of `package` that imported a replaced function by name get the new one too.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._changes: list[tuple[Any, str, Any, Any]] = []
        self._others: list[Callable[[], Any]] = []

    def plan(self, owner: Any, name: str, wrap: Wrapping, *parameters: str) -> None:
        """Replace `owner.name`, which must take these parameters.  Raises `UnknownShape`."""
        where = f"{getattr(owner, '__name__', owner)}.{name}"
        old = vars(owner).get(name)
        function = old.__func__ if isinstance(old, (classmethod, staticmethod)) else old
        if not callable(function):
            raise UnknownShape(f"{where} is not there")
        if getattr(function, "__stagewatch__", False):
            return
        taken = _parameters(function)
        for parameter in parameters:
            if parameter not in taken:
                raise UnknownShape(f"{where} takes no {parameter!r}")
        made = functools.wraps(function)(wrap(function))
        made.__stagewatch__ = True  # type: ignore[attr-defined]
        new = type(old)(made) if isinstance(old, (classmethod, staticmethod)) else made
        self._changes.append((owner, name, old, new))

    def plan_extra(self, owner: Any, name: str, wrap: Wrapping, *parameters: str) -> None:
        """The same for a function that adds data but no stage: other versions may lack it."""
        if owner is not None:
            with suppress(UnknownShape):
                self.plan(owner, name, wrap, *parameters)

    def also(self, undo: Callable[[], Any]) -> None:
        """Also remove a hook that was set by the framework's own means."""
        self._others.append(undo)

    def apply(self) -> None:
        """Carry the plan out."""
        for owner, name, old, new in self._changes:
            setattr(owner, name, new)
            self._rename(owner, old, new)

    def undo(self) -> None:
        """Restore everything that nobody else has changed since."""
        for owner, name, old, new in reversed(self._changes):
            if vars(owner).get(name) is new:
                setattr(owner, name, old)
            self._rename(owner, new, old)
        self._changes.clear()
        while self._others:
            self._others.pop()()

    def _rename(self, owner: Any, old: Any, new: Any) -> None:
        """Replace the old function also in modules that did `from owner import name`."""
        if not inspect.ismodule(owner):
            return
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == self._package:
                for attribute, value in list(getattr(module, "__dict__", {}).items()):
                    if value is old:
                        setattr(module, attribute, new)


Plan = Callable[[ModuleType, Patches], None]
"""Plans what to replace in one module of the framework."""


def class_in(module: ModuleType, name: str) -> Any:
    """The class of that name in a module.  Raises `UnknownShape`."""
    owner = getattr(module, name, None)
    if not isinstance(owner, type):
        raise UnknownShape(f"{module.__name__}.{name} is not there")
    return owner


def as_stage(names: Names, name: str, step: Callable[..., Any] | None = None) -> Wrapping:
    """A call is a span; `step` takes the call's arguments and returns its step."""
    return within(lambda *args, **kwargs: Span(names, name, _step_of(step, args, kwargs)))


def with_stage(
    names: Names, step: Callable[..., Any] | None = None, *, asynchronous: bool = False
) -> Wrapping:
    """The function makes a context manager for the span that its first string argument names."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def span(args: Any, kwargs: Any) -> Span:
            name = next((a for a in (*args, *kwargs.values()) if isinstance(a, str)), "")
            return Span(names, name, _step_of(step, args, kwargs))

        @contextmanager
        def within(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with span(args, kwargs), original(*args, **kwargs) as value:
                yield value

        @asynccontextmanager
        async def awaited(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with span(args, kwargs):
                async with original(*args, **kwargs) as value:
                    yield value

        return awaited if asynchronous else within

    return wrap


def answered(report: Callable[..., None]) -> Wrapping:
    """Report a call, sync or async, with its result and its arguments, after it has returned."""

    def told(result: Any, args: Any, kwargs: Any) -> None:
        try:
            report(result, *args, **kwargs)
        except BaseException as error:
            swallow("a call was not reported", error)

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with _ASIDE:
                result = await original(*args, **kwargs)
            told(result, args, kwargs)
            return result

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _ASIDE:
                result = original(*args, **kwargs)
            told(result, args, kwargs)
            return result

        return awaited if inspect.iscoroutinefunction(original) else wrapped

    return wrap


def within(make: Callable[..., AbstractContextManager[Any] | None]) -> Wrapping:
    """Run a call, sync or async, inside the context that `make` makes from its arguments.

    The context must never raise; `None` means no context, for one who only reports the arguments.
    """

    def made(args: Any, kwargs: Any) -> AbstractContextManager[Any]:
        try:
            context = make(*args, **kwargs)
        except BaseException as error:
            swallow("a call was not recorded", error)
            context = None
        return nullcontext() if context is None else context

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with _ASIDE, made(args, kwargs):
                return await original(*args, **kwargs)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _ASIDE, made(args, kwargs):
                return original(*args, **kwargs)

        return awaited if inspect.iscoroutinefunction(original) else wrapped

    return wrap


def plan_timer(patches: Patches, timer: type, names: Names, start: str, stop: str) -> None:
    """Plan to hook a timer class, whose methods take a name.  Raises `UnknownShape`."""
    spans: dict[tuple[int, str], Span] = {}

    def starting(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, name, *args, **kwargs)  # it may refuse to start twice
            key = (id(self), str(name))
            if key in spans:  # of a deleted timer at the same address
                spans[key].end()
            spans[key] = Span(names, str(name))
            spans[key].begin()
            return result

        return wrapped

    def stopping(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            span = spans.pop((id(self), str(name)), None)
            if span is not None:
                span.finish()
            return original(self, name, *args, **kwargs)

        return wrapped

    patches.plan(timer, start, starting)
    patches.plan(timer, stop, stopping)


class _Aside:
    """Keeps our frames out of an exception that passes."""

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            step_aside(error)


_ASIDE = _Aside()


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def _step_of(step: Callable[..., Any] | None, args: Any, kwargs: Any) -> Any:
    if step is None:
        return None
    try:
        return step(*args, **kwargs)
    except Exception:  # called in an unknown way: the stage counts, not the step
        return None
