"""The few ways in which a framework's function becomes a stage."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from stagewatch.client._api import decorated
from stagewatch.client.hooks.names import Names
from stagewatch.client.hooks.patching import Wrapping
from stagewatch.client.hooks.span import Span


def as_stage(names: Names, name: str, step: Callable[..., Any] | None = None) -> Wrapping:
    """A call is a span; `step` finds the step in the call's arguments."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with Span(names, name, _found(step, args, kwargs)):
                return original(*args, **kwargs)

        return wrapped

    return wrap


def with_stage(names: Names, step: Callable[..., Any] | None = None) -> Wrapping:
    """The function makes a context manager for the span that its first argument names."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            inner = original(*args, **kwargs)
            name = next((a for a in (*args, *kwargs.values()) if isinstance(a, str)), None)
            if name is None:
                return inner
            return _Within(Span(names, name, _found(step, args, kwargs)), inner)

        return wrapped

    return wrap


def starts(names: Names, open_spans: dict[tuple[int, str], Span]) -> Wrapping:
    """A timer's `start(name)`."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(self: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, name, *args, **kwargs)  # it may refuse to start twice
            key = (id(self), str(name))
            if key in open_spans:  # of a timer that is gone, at the same address
                open_spans[key].end()
            open_spans[key] = Span(names, str(name))
            open_spans[key].begin()
            return result

        return start

    return wrap


def stops(names: Names, open_spans: dict[tuple[int, str], Span]) -> Wrapping:
    """The same timer's `stop(name)`."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def stop(self: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            span = open_spans.pop((id(self), str(name)), None)
            if span is not None:
                span.finish()
            return original(self, name, *args, **kwargs)

        return stop

    return wrap


class _Within:
    """A span around a framework's own context manager, sync or async as that one is."""

    __slots__ = ("_inner", "_span")

    def __init__(self, span: Span, inner: Any) -> None:
        self._span = span
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Any:
        self._span.begin()
        try:
            return self._inner.__enter__()
        except BaseException as error:
            self._span.end(error)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        try:
            suppressed = self._inner.__exit__(kind, error, traceback)
        except BaseException as problem:
            self._span.end(problem)
            raise
        self._span.end(None if suppressed else error)
        return suppressed

    async def __aenter__(self) -> Any:
        self._span.begin()
        try:
            return await self._inner.__aenter__()
        except BaseException as error:
            self._span.end(error)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        try:
            suppressed = await self._inner.__aexit__(kind, error, traceback)
        except BaseException as problem:
            self._span.end(problem)
            raise
        self._span.end(None if suppressed else error)
        return suppressed

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Used as a decorator, as context managers made by `contextlib` may be."""
        return self._inner(decorated(self._span.again, function))


def _found(step: Callable[..., Any] | None, args: Any, kwargs: Any) -> Any:
    if step is None:
        return None
    try:
        return step(*args, **kwargs)
    except Exception:  # called in a way this hook does not know: the stage counts, not the step
        return None
