"""The process groups of this rank, and its calls into their collectives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stagewatch.client import _api
from stagewatch.client._harmless import swallow
from stagewatch.client._recorder import Entry
from stagewatch.record import END_KNOWN, GROUP_SIZE, POINT_TO_POINT


class Group:
    """A process group of this rank; it outlives records, so that a later record has the right
    count.

    `waits`: the CPU waits for its operations, also if the tensors are on a device.
    """

    __slots__ = ("call", "last", "models", "name", "sequence", "size", "waits")

    def __init__(self, name: str, size: int, waits: bool) -> None:
        self.name = name
        self.size = size
        self.waits = waits
        self.sequence = 0
        self.call = 0
        """The newest entry, as the record holds it."""
        self.last: Launch | None = None
        self.models = 0
        """Data-parallel models that reduce in it."""

    def show(self, key: str) -> Group:
        """Put the group into the record; returns the group.  `key`: its name in PyTorch."""
        _api.groups[key] = self
        if _api._recorder is not None:
            _api._recorder.join(self.name, self.size, self.sequence)
        return self


def forget(key: str) -> None:
    """Drop a destroyed group, by its name in PyTorch, and the models that reduce in it."""
    for one in [one for one in _api.groups if one == key or one.startswith(model_key(key, ""))]:
        group = _api.groups.pop(one)
        if _api._recorder is not None:
            _api._recorder.forget(group.name)


def model_key(key: str, number: object) -> str:
    """The key for a data-parallel model's virtual group, which has no name in PyTorch."""
    return f"ddp {key} {number}"


class Launch(Entry):
    """One call into a collective: counted when it is made, then ended, or waited for later."""

    __slots__ = ("end_known", "of")

    def __init__(self, group: Group, call: int, elements: int = 0, end_known: bool = True) -> None:
        group.sequence += 1
        group.call = call
        group.last = self
        self.of = group
        self.call = call
        self.end_known = end_known
        self.recorder, self.waits = None, 0
        recorder = _api._recorder
        if recorder is not None:
            recorder.enter(self, group.name, group.size, elements)

    def tell(self) -> None:
        """Note that the end will be recorded: `back` must follow."""
        if self.recorder is not None:
            self.recorder.wait(self, self.call | END_KNOWN, self.entered)

    def blocks(self) -> None:
        """Note that this thread begins to wait for the call; `back` may follow."""
        if self.recorder is not None:
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            self.recorder.wait(self, self.call, now)

    def back(self, over: bool) -> None:
        """The call has returned; unless it is over, it may go on on a device."""
        recorder = self.recorder
        if recorder is None or recorder is not _api._recorder:
            return  # there is no entry, or this is a forked child
        if over or self.end_known:
            recorder.leave(self)
        else:
            recorder.launched(self)

    def wait(self, wait: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Wait for the call; the record of the group's newest call stays."""
        group = self.of
        if group.name != POINT_TO_POINT:
            self.call = group.call
        try:
            self.recorder, self.waits = None, 0
            recorder = _api._recorder
            if recorder is not None:
                recorder.again(self, group.name)
        except BaseException as error:
            self.recorder = None
            swallow("a wait was not recorded", error)
        try:
            self.tell()
            return wait(*args, **kwargs)
        finally:
            self.back(over=self.end_known)


def shown_name(description: str, name: str) -> str:
    """The name of a group in the record: shortened to fit, but still unique."""
    described = description and description != "undefined"
    full = f"{description}:{name}" if described else name
    if len(full.encode()) <= GROUP_SIZE:
        return full
    import hashlib

    digest = hashlib.sha256(full.encode()).hexdigest()[:12]
    return f"{description[:16] if described else 'group'}:{digest}"
