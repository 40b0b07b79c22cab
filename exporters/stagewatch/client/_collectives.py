"""Counts a rank's entries into collectives, per process group.

It wraps the functions of `torch.distributed`, so it counts callers that go through that module:
the frameworks, FSDP, DeepSpeed.  It cannot count what happens below Python: the buckets that
DistributedDataParallel reduces during backward.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client import _api
from stagewatch.client._harmless import warn_once

# Every member of the group must enter each of these equally often; point-to-point calls are not
# among them.
COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "_all_gather_base",
    "_reduce_scatter_base",
)

_NAME_SIZE = 32
_SUBJECT = "watch_collectives"


def watch_collectives(distributed: ModuleType) -> Callable[[], None]:
    """Count each entry into a collective of `torch.distributed`, before it can block.

    The default group is called `world`, any other by its description and its name, which PyTorch
    keeps equal on all its ranks.  A second call changes nothing.  Returns a function that stops
    the counting.  Never raises.
    """
    replaced: list[tuple[str, Any, Any]] = []

    def stop() -> None:
        while replaced:
            name, old, new = replaced.pop()
            if vars(distributed).get(name) is new:
                setattr(distributed, name, old)

    try:
        is_compiling = _compiler_check()
        for name in COLLECTIVES:
            old = getattr(distributed, name, None)
            if callable(old) and not hasattr(old, "__stagewatch__"):
                new = _counting(distributed, old, is_compiling)
                if new is not None:
                    setattr(distributed, name, new)
                    replaced.append((name, old, new))
    except Exception as error:
        warn_once(_SUBJECT, f"collectives are not counted: {error}", _SUBJECT)
        stop()
    return stop


def _counting(
    distributed: ModuleType, function: Callable[..., Any], is_compiling: Callable[[], bool]
) -> Callable[..., Any] | None:
    """A function that counts each call first; None if the original takes no group."""
    parameters = list(inspect.signature(function).parameters)
    if "group" not in parameters:
        return None
    position = parameters.index("group")
    name_of = _namer(distributed)

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():  # tracing enters nothing, and the compiler handles the original
            return function(*args, **kwargs)
        try:
            name = name_of(kwargs.get("group") if len(args) <= position else args[position])
            if name is not None:
                _api.collective(name)
        except Exception as error:
            warn_once(_SUBJECT, f"a collective was not counted: {error}", _SUBJECT)
        return function(*args, **kwargs)

    counted.__stagewatch__ = True  # type: ignore[attr-defined]
    counted.__module__ = distributed.__name__  # where pickle finds it
    return counted


def _namer(distributed: ModuleType) -> Callable[[Any], str | None]:
    groups = getattr(distributed, "group", None)

    def name_of(group: Any) -> str | None:
        """None where this rank is not a member and PyTorch does nothing."""
        if group is None or group is getattr(groups, "WORLD", None):
            return "world"
        if isinstance(group, str):
            return _short("", group)
        name = getattr(group, "group_name", None)
        return None if name is None else _short(getattr(group, "group_desc", ""), name)

    return name_of


@functools.lru_cache(maxsize=256)
def _short(description: str, name: str) -> str:
    """The name, shortened to what the record holds so that groups stay distinct."""
    described = description and description != "undefined"
    full = f"{description}:{name}" if described else name
    if len(full.encode()) <= _NAME_SIZE:
        return full
    import hashlib

    digest = hashlib.sha256(full.encode()).hexdigest()[:12]
    return f"{description[:16] if described else 'group'}:{digest}"


def _compiler_check() -> Callable[[], bool]:
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    check: Callable[[], bool] = getattr(compiler, "is_compiling", lambda: False)
    return check
