"""The functions a trainer calls.  None of them raises, blocks or starts anything."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stagewatch.client import _calls
from stagewatch.client._harmless import MAX_STEP, step_aside, swallow, warn_once, whole_step
from stagewatch.client._lane import Label, Lane, Opened
from stagewatch.client._places import begin_record
from stagewatch.client._recorder import Entry, Recorder
from stagewatch.identity import identify
from stagewatch.record import (
    CODE_SHIFT,
    END_KNOWN,
    NAME_SHIFT,
    NAMES,
    OP_CODES,
    SUBSTAGE_SIZE,
    call_of,
    pad,
)
from stagewatch.stages import CODES, IDLE, OTHER

MAX_NAMES = 1024
"""Most stage names whose code is remembered; names with a counter in them would fill memory."""

_F = TypeVar("_F", bound=Callable[..., Any])

_names: dict[tuple[object, object], Label] = {}
"""Labels by the name and substage that a caller gave."""

_numbers: dict[bytes, int] = {bytes(SUBSTAGE_SIZE): 0}
"""The number that stands for each label in the events of this process' records."""
_next_number = itertools.count(1)
_next_call = itertools.count()

_recorder: Recorder | None = None

groups: dict[str, Any] = {}
"""Process groups that `watch_collectives` knows, with `name`, `size` and `sequence`: a record that
begins later, or anew, shows them too."""

begins: Callable[[Mapping[str, Any]], None] | None = None
"""If the record begins by itself: what `init_process_group` calls with its arguments."""


def init(
    role: str | None = None,
    *,
    job_id: str | int | None = None,
    rank: int | None = None,
    local_rank: int | None = None,
    world_size: int | None = None,
    framework: str = "",
    gpu: str | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> None:
    """Begin this process' stage record.

    Missing arguments come from the environment variables of Slurm, torchrun, MPI, Ray and others;
    the directory comes from `STAGEWATCH_DIR`.  Without it the record is in the directory of this
    node's agent, or in a private directory in memory, which `stagewatch inspect` also reads.  If no
    record can be made, one warning is logged and all calls do nothing.  A second call begins a new
    record.
    """
    global _recorder  # noqa: PLW0603 - one record per process
    try:
        close()
        given = None if job_id is None else str(job_id)
        identity = identify(
            role=role,
            job_id=given,
            rank=rank,
            local_rank=local_rank,
            world_size=world_size,
            framework=framework,
            gpu=gpu,
        )
        _recorder = begin_record(identity, directory)
        _before_child_exits(_at_exit)
        for group in list(groups.values()):
            _recorder.join(group.name, group.size, group.sequence)
        for label, number in list(_numbers.items()):
            _recorder.name(number, label)
        _recorder.lane()  # lane 0 belongs to the thread that calls init: the training thread
    except Exception as error:
        remedy = "set STAGEWATCH_DIR to a directory in memory that this user may write to"
        warn_once(f"no stage record, the agent will not see this rank's stages; {remedy}", error)


def close() -> None:
    """End the record as a clean exit does; the interpreter calls this when it exits."""
    global _recorder
    recorder, _recorder = _recorder, None
    try:
        if recorder is not None:
            recorder.close()
    except Exception as error:
        warn_once("the record was not closed", error)


def heartbeat(step: int | None = None) -> None:
    """Record that this thread has made progress, and its step."""
    recorder = _recorder
    if recorder is None:
        return
    lane = None
    try:
        lane = recorder.lane()
        if lane is not None:
            if step is not None and not (type(step) is int and -1 <= step <= MAX_STEP):
                step = whole_step(step)
            lane.heartbeat(step)
    except BaseException as error:
        if lane is not None:
            lane.settle()
        swallow("a heartbeat was not recorded", error)


def scalar(name: str, value: float) -> None:
    """Record the latest value of a quantity such as reward, kl or batch_size."""
    recorder = _recorder
    if recorder is None:
        return
    try:
        recorder.scalar(name, float(value))
    except Exception as error:
        swallow("a scalar was not recorded", error)


def throughput(
    *,
    tokens: float = 0,
    flops: float = 0,
    samples: float = 0,
    stage: str | None = None,
) -> None:
    """Count work that is done: tokens, floating-point operations of the model, samples.

    Every rank counts its own work, or one rank counts that of all.  The work belongs to `stage`, or
    to the thread's current stage.  `flops` are those that the algorithm needs, without
    recomputation (about 6 times the parameters for a token in training); they give model FLOPs
    utilisation.
    """
    recorder = _recorder
    if recorder is None:
        return
    try:
        amounts = float(tokens), float(flops), float(samples)
        if not all(0 <= amount < math.inf for amount in amounts):
            raise ValueError(f"{amounts} are not all finite and positive")
        recorder.work(None if stage is None else CODES.get(str(stage), OTHER), amounts)
    except Exception as error:
        swallow("work was not recorded", error)


def expect(seconds: float) -> None:
    """Announce a pause of up to this many seconds from now: no alert until it is over.

    `expect(0)` ends it early; a heartbeat does not.
    """
    recorder = _recorder
    if recorder is None:
        return
    try:
        recorder.expect(float(seconds))
    except Exception as error:
        swallow("the pause to expect was not recorded", error)


def collective(
    group: str = "world",
    *,
    op: str = "",
    size: int | None = None,
    elements: int = 0,
    peer: int | None = None,
) -> Collective:
    """Count one call of this rank into a collective of a process group.

    As a context manager it also records the end: the rank is inside until the block ends.  After a
    call without `with`, the rank counts as inside until any thread makes a heartbeat or enters
    another collective.

    `op` is a name in `torch.distributed`, like all_reduce.  `size` is the number of ranks in the
    group.  `elements` is the number of elements of the tensor, if it must be the same on all ranks.
    `peer` is the other rank of a send or receive, in group `p2p`.
    """
    entry = Collective()
    entry.recorder = None
    entry.waits = 0
    recorder = _recorder
    if recorder is not None:
        try:
            entry.call = OP_CODES.get(op, 0) if peer is None else call_of(op, peer)
            recorder.enter(entry, group, size or 0, elements)
        except BaseException as error:
            swallow("a collective was not recorded", error)
    return entry


class Collective(Entry):
    """The result of `collective`; a class with an `__init__` would take three times as long to
    make."""

    __slots__ = ()

    def __enter__(self) -> Collective:
        recorder = self.recorder
        if recorder is not None:
            recorder.wait(self, self.call | END_KNOWN, self.entered)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            step_aside(error)
        recorder = self.recorder
        if recorder is None or recorder is not _recorder:  # in a forked child
            return
        try:
            recorder.leave(self)
        except BaseException as problem:
            recorder.leave(self)
            swallow("the end of a collective was not recorded", problem)


def stage(name: str, step: int | None = None, *, substage: str = "") -> Stage:
    """Record the stage of this thread on *enter*: a stage that hangs never exits.

    `name` is a canonical stage; another name becomes a substage of `other`.  Use it as a context
    manager, nested or not, or as a decorator of functions and coroutines.
    """
    try:
        label = _names[name, substage]
    except (KeyError, TypeError):  # a new name, or one that cannot be a key
        label = _learn_name(name, substage)
    except Exception as error:  # raised by the name's own hash
        swallow("the name of a stage cannot be used", error)
        label = _learn_name(name, substage)
    if step is not None and not (type(step) is int and -1 <= step <= MAX_STEP):
        step = whole_step(step)
    opened = Stage()
    opened.label = label
    opened.step = step
    opened.lane = None
    return opened


class Stage(Opened):
    """The result of `stage`; a class with an `__init__` would take three times as long to make."""

    __slots__ = ("lane",)
    lane: Lane | None

    def __enter__(self) -> Stage:
        lane = None
        try:
            recorder = _recorder
            # an object that is entered twice counts once
            if recorder is None or self.lane is not None:
                return self
            lane = recorder.lane()
            if lane is not None:
                lane.enter(self)
                self.lane = lane
        except BaseException as error:  # nobody will call `__exit__`
            self.lane = None
            if lane is not None:
                lane.settle(without=self)
            swallow("a stage was not recorded", error)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            step_aside(error)
        try:
            lane = self.lane
            if lane is None:
                return
            lane.leave(self)
            self.lane = None
            if error is not None:
                count_failure(self.label[0], error, lane, self.step)
        except BaseException as problem:
            lane, self.lane = self.lane, None
            if lane is not None:
                lane.settle(without=self)
            swallow("the end of a stage was not recorded", problem)

    def __call__(self, function: _F) -> _F:
        return decorated(self._again, function)  # type: ignore[return-value]

    def _again(self) -> Stage:
        """A fresh object, since calls of a decorated function may overlap."""
        again = Stage()
        again.label = self.label
        again.step = self.step
        again.lane = None
        return again


class call:
    """Record one call of a tool, an environment or a reward function.

    The agent exports how many calls of a name are in flight, the age of the oldest, how long calls
    take and how many raised an exception.  Use it in any thread or task, as a context manager or as
    a decorator of functions and coroutines.  A record has room for 15 names; others are
    counted together as `other`.
    """

    __slots__ = ("__weakref__", "_entry", "_name", "_number", "_recorder")

    def __init__(self, name: str) -> None:
        self._name = name
        self._number = -1
        self._entry: _calls.Entry | None = None

    def __enter__(self) -> call:
        entry = None
        try:
            recorder = _recorder
            # an object that is entered twice counts once
            if recorder is None or self._entry is not None:
                return self
            entry = recorder.calls.of(self._name)
            self._recorder = recorder
            self._number = next(_next_call)
            entry.begin(self._number, self)
            self._entry = entry
        except BaseException as error:  # nobody will call `__exit__`
            self._entry = None
            if entry is not None:
                entry.forget(self._number)
            swallow("a call was not recorded", error)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            step_aside(error)
        entry = self._entry
        if entry is None:
            return
        try:
            if self._recorder is _recorder:  # otherwise in a forked child, or the record was closed
                entry.end(self._number, failed=error is not None and not _is_on_purpose(error))
            self._entry = None
        except BaseException as problem:
            self._entry = None
            entry.forget(self._number)
            swallow("the end of a call was not recorded", problem)

    def __call__(self, function: _F) -> _F:
        return decorated(functools.partial(call, self._name), function)  # type: ignore[return-value]


def decorated(
    enter: Callable[[], contextlib.AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    """Wrap a function or coroutine: every call enters a fresh context, since calls may overlap."""
    import inspect  # takes a quarter of the client's time to import

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with enter():
                return await function(*args, **kwargs)

        return coroutine

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with enter():
            return function(*args, **kwargs)

    return plain


def count_failure(code: int, error: BaseException, lane: Lane, step: int | None) -> None:
    """Count an exception once, in the innermost stage that it leaves.

    Control flow (a cancelled task, `sys.exit(0)`) is not a failure.
    """
    recorder = _recorder
    if recorder is None or _is_on_purpose(error):
        return
    recorder.last_words = lane, lane.marks
    if not getattr(error, "_stagewatch_seen", False):
        step = lane.step if step is None else step
        recorder.failure(code, error, step)
        lane.fail(event_name(code, pad(type(error).__name__, SUBSTAGE_SIZE)), step)
        # an exception with slots counts in every stage that it leaves
        with contextlib.suppress(AttributeError):
            error._stagewatch_seen = True  # type: ignore[attr-defined]


def _is_on_purpose(error: BaseException) -> bool:
    """Whether an exception is control flow."""
    if isinstance(error, SystemExit):
        return error.code in (None, 0)
    if isinstance(error, (GeneratorExit, StopIteration, StopAsyncIteration, KeyboardInterrupt)):
        return True
    return type(error).__name__ == "CancelledError"  # by name: asyncio takes long to import


def event_name(code: int, label: bytes) -> int:
    """The name of a stage and label in events; that of the stage alone if there is no room."""
    number = _numbers.get(label)
    if number is None:
        if len(_numbers) >= NAMES:
            return code
        number = _numbers[label] = next(_next_number) % NAMES
        if _recorder is not None:
            _recorder.name(number, label)
    return code | number << NAME_SHIFT - CODE_SHIFT


def _learn_name(name: object, substage: object) -> Label:
    """The entry of `_names` for a stage.  Never raises."""
    try:
        own, part = str(name), str(substage)
        code = CODES.get(own, OTHER)
        label = part or (own if code == OTHER and own != "other" else "")
        stored = pad(label, SUBSTAGE_SIZE)
        known = code, stored, event_name(code, stored)
        if len(_names) < MAX_NAMES:
            with contextlib.suppress(TypeError):  # a name that cannot be a key
                _names[name, substage] = known
        return known
    except Exception as error:
        swallow("the name of a stage cannot be used", error)
        return OTHER, bytes(SUBSTAGE_SIZE), OTHER


def _before_child_exits(call: Callable[[], None]) -> None:
    """Children of multiprocessing skip `atexit`; they have finalizers of their own."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, call, exitpriority=0)


def _at_exit() -> None:
    """End the record, unless the process ends by an exception.

    Its peers may wait for this rank for ever, so the record stays, with its first failure, for the
    agent.
    """
    global _recorder  # noqa: PLW0603
    try:
        recorder = _recorder
        error = _count_fatal_error()
        if error is not None or (recorder is not None and recorder.ended_in_failure()):
            _recorder = None
    except Exception as problem:
        warn_once("the last exception was not recorded", problem)
    close()


def _before_threads_end() -> None:
    """Count the exception that ends the main thread: `atexit` waits for all other threads that are
    not daemons, and these may never end."""
    try:
        _count_fatal_error()
    except Exception as problem:
        warn_once("the last exception was not recorded", problem)


def _count_fatal_error() -> BaseException | None:
    """Count the exception that ends the interpreter, and return it; `None` if there is none."""
    error = _fatal_error()
    lane = _recorder.lane() if _recorder is not None and error is not None else None
    if lane is not None and error is not None:
        count_failure(IDLE, error, lane, None)
    return error


def _fatal_error() -> BaseException | None:
    """The exception that ends the interpreter, if it is a failure."""
    error = sys.exc_info()[1]  # in a child of multiprocessing, the exception is still being handled
    if error is None and not hasattr(sys, "ps1"):  # interactive sessions continue after errors
        error = getattr(sys, "last_value", None)
    return None if error is None or _is_on_purpose(error) else error


def _forget() -> None:
    """In a forked child: the record belongs to the parent; the child begins its own with `init`."""
    global _recorder
    recorder, _recorder = _recorder, None
    groups.clear()
    if recorder is not None:
        recorder.disown()


atexit.register(_at_exit)
if hasattr(threading, "_register_atexit"):  # private; concurrent.futures needs it likewise
    threading._register_atexit(_before_threads_end)
os.register_at_fork(after_in_child=_forget)
