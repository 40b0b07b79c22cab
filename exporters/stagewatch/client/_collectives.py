"""Records where a rank is inside of PyTorch's collectives, per process group.

It wraps the methods of `torch.distributed.ProcessGroup` and `Work.wait`.  All collectives in Python
go through them: those of `torch.distributed`, of frameworks, FSDP and DeepSpeed.  It also wraps
functional collectives (DTensor), the creation of groups, and the backward of
DistributedDataParallel, which reduces its buckets below Python.

A blocking call ends when it returns.  A call on a device goes on after that, so its end is unknown.
An asynchronous call counts when it is launched; the rank is inside during `wait`.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client import _api
from stagewatch.client._device import watch_device
from stagewatch.client._groups import Group, Launch, forget, model_key, shown_name
from stagewatch.client._harmless import step_aside, swallow, warn_once
from stagewatch.client._imports import when_imported
from stagewatch.client._replacing import Replaced
from stagewatch.record import POINT_TO_POINT, call_of

METHODS = {
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_single_coalesced": "all_gather_coalesced",
    "all_to_all_single": "all_to_all_single",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_coalesced",
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "gather": "gather",
    "monitored_barrier": "monitored_barrier",
    "recv": "recv",
    "recv_anysource": "recv",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_single_coalesced": "reduce_scatter_coalesced",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_coalesced",
    "scatter": "scatter",
    "send": "send",
}
"""Operations by the method of `ProcessGroup`; versions of PyTorch have different methods."""

FUNCTIONAL = {
    "all_gather_into_tensor_coalesced": "all_gather_coalesced",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_single_coalesced": "all_gather_coalesced",
    "all_gather_tensor": "all_gather_into_tensor",
    "all_gather_tensor_autograd": "all_gather_into_tensor",
    "all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce_coalesced",
    "all_to_all_single": "all_to_all_single",
    "all_to_all_single_autograd": "all_to_all_single",
    "broadcast": "broadcast",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_single_coalesced": "reduce_scatter_coalesced",
    "reduce_scatter_tensor": "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_coalesced",
}
"""Operation by the function of `torch.distributed._functional_collectives`."""

EQUAL = {
    "all_gather_into_tensor": 1,
    "all_reduce": 0,
    "broadcast": 0,
    "reduce": 0,
    "reduce_scatter_tensor": 0,
}
"""The argument whose number of elements must be the same in all members' calls."""

_BLOCKING = ("gloo", "mpi")
"""Backends whose `wait` returns once the operation is done, wherever the tensors are."""
_MAX_PENDING = 4096
_SUBJECT = "watch_collectives"


def watch_collectives(distributed: ModuleType) -> Callable[[], None]:
    """Record every collective, send and receive of `torch.distributed` before it can block, and the
    waits of the training thread for its device.

    The default group is called `world`, other groups by their description and name, which are the
    same on all ranks.  A second call changes nothing.  Returns a function that stops recording.
    Never raises.
    """
    watch = _Watch(distributed)
    try:
        watch.start()
    except Exception as error:
        warn_once(_SUBJECT, f"collectives are not recorded: {error}", _SUBJECT)
        watch.stop()
    stop_device = watch_device(sys.modules.get("torch"))

    def stop() -> None:
        stop_device()
        watch.stop()

    return stop


class _Watch:
    """The replaced functions, and the calls that the program may still wait for."""

    def __init__(self, distributed: Any) -> None:
        self._distributed = distributed
        self._c10d = getattr(distributed, "distributed_c10d", distributed)
        self._replaced = Replaced()
        self._works: dict[int, tuple[Launch, weakref.ref[Any]]] = {}
        """Calls by the `id` of a work that may be waited for; removed when the work is freed."""
        self._pending: dict[int, Launch] = {}
        """Functional calls by the address of the tensor that will hold the result."""
        self._models: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()
        self._give_up: Callable[[], None] = lambda: None
        self._kinds: set[type] = set()
        """Classes of works whose `wait` is recorded."""
        self._within: set[int] = set()
        """Threads that are in a functional collective."""
        self._point_to_point = Group(POINT_TO_POINT, 0, waits=True)
        compiler = getattr(sys.modules.get("torch"), "compiler", None)
        self._is_compiling: Callable[[], bool] = getattr(compiler, "is_compiling", lambda: False)

    def start(self) -> None:
        """Replace all functions, and record the groups that exist."""
        process_group: Any = self._distributed.ProcessGroup
        for name, op in METHODS.items():
            self._replaced.replace(process_group, name, functools.partial(self._method, op))
        self._replaced.replace(process_group, "_end_coalescing", self._end_coalescing)
        self._replaced.replace(getattr(self._c10d, "Work", None), "wait", self._wait)
        self._replaced.replace(self._c10d, "_register_process_group", self._register)
        self._replaced.replace(self._c10d, "_unregister_process_group", self._unregister)
        self._replaced.replace(self._c10d, "_unregister_all_process_groups", self._unregister)
        for owner in {id(owner): owner for owner in (self._c10d, self._distributed)}.values():
            self._replaced.replace(owner, "init_process_group", self._init_process_group)
        functional = f"{self._distributed.__name__}._functional_collectives"
        self._give_up = when_imported(functional, self._start_functional)
        parallel = getattr(
            sys.modules.get("torch.nn.parallel.distributed"), "DistributedDataParallel", None
        )
        self._replaced.replace(parallel, "_post_forward", self._post_forward)
        self._replaced.replace(parallel, "_match_all_reduce_for_bwd_pass", self._joined)
        if self._replaced:
            world = getattr(self._c10d, "_world", None)
            for group, name in dict(getattr(world, "pg_names", {})).items():
                self._group(name, group)

    def _start_functional(self, module: ModuleType) -> None:
        try:
            for name, op in FUNCTIONAL.items():
                self._replaced.replace(
                    module, name, functools.partial(self._functional, module, op)
                )
            self._replaced.replace(module, "wait_tensor", self._wait_tensor)
        except Exception as error:
            warn_once(_SUBJECT, f"functional collectives are not recorded: {error}", "functional")

    def stop(self) -> None:
        """Restore all functions that nobody else has replaced since."""
        self._give_up()
        if self._replaced:
            _api.groups.clear()
        self._replaced.restore()

    def _group(self, name: str, process_group: Any) -> Group:
        """The group of that name; it is in the record from now on."""
        group: Group | None = _api.groups.get(name)
        if group is None:
            default = getattr(getattr(self._c10d, "_world", None), "default_pg", None)
            # While the default group is being made, it does not exist yet.
            is_world = default is None or process_group is default
            shown = "world" if is_world else shown_name(process_group.group_desc, name)
            backend = str(getattr(process_group, "name", str)()).lower()
            group = Group(shown, process_group.size(), backend in _BLOCKING).show(name)
        return group

    def _register(self, old: Any) -> Any:
        def register(name: str, process_group: Any) -> Any:
            result = old(name, process_group)
            try:
                self._group(name, process_group)
            except Exception as error:
                swallow("a process group was not recorded", error)
            return result

        return register

    def _unregister(self, old: Any) -> Any:
        """Forget one group, or all groups if no name is given."""

        def unregister(*names: str) -> Any:
            try:
                for name in names or list(_api.groups):
                    forget(name)
            except Exception as error:
                swallow("the end of a process group was not recorded", error)
            return old(*names)

        return unregister

    def _init_process_group(self, old: Any) -> Any:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            size = kwargs.get("world_size", -1)
            if not isinstance(size, int) or size < 1:
                given = os.environ.get("WORLD_SIZE", "")
                size = int(given) if given.isdecimal() else 0
            try:
                if _api.begins is not None:
                    _api.begins(kwargs)
            except BaseException as error:
                swallow("no record began", error)
            with _api.collective("init", op="init_process_group", size=size):
                return old(*args, **kwargs)

        return init_process_group

    def _method(self, op: str, old: Any) -> Any:
        point_to_point = op in ("send", "recv")
        plain = call_of(op)
        equal = EQUAL.get(op)

        def method(process_group: Any, *args: Any, **kwargs: Any) -> Any:
            launch = None
            try:
                group = self._group(process_group.group_name, process_group)
                end_known = group.waits or op == "barrier" or _on_cpu(args)
                if point_to_point:
                    call = call_of(op, self._peer(process_group, args))
                    launch = group.last = Launch(self._point_to_point, call, end_known=end_known)
                else:
                    elements = 0 if equal is None else _elements(args, equal)
                    launch = Launch(group, plain, elements, end_known)
            except BaseException as error:
                swallow("a collective was not recorded", error)
            if launch is None:
                return old(process_group, *args, **kwargs)
            work = over = None
            try:
                launch.tell()
                work = old(process_group, *args, **kwargs)
                over = work is not None
                if hasattr(work, "wait"):
                    self._remember(work, launch)
                return work
            except BaseException as error:
                step_aside(error)
                raise
            finally:
                launch.back(over is not False)

        return method

    def _remember(self, work: Any, launch: Launch) -> None:
        """Keep the call of a work object: its own class, from pybind11, takes no attributes."""
        try:
            if type(work) not in self._kinds:  # the works of some backends have their own wait
                self._kinds.add(type(work))
                for owner in type(work).__mro__:
                    self._replaced.replace(owner, "wait", self._wait)
            key = id(work)
            self._works[key] = launch, weakref.ref(work, lambda _: self._works.pop(key, None))
        except Exception as error:
            swallow("a wait will not be recorded", error)

    def _end_coalescing(self, old: Any) -> Any:
        def end_coalescing(process_group: Any, *args: Any, **kwargs: Any) -> Any:
            work = old(process_group, *args, **kwargs)
            group = _api.groups.get(process_group.group_name)
            if group is not None and group.last is not None and hasattr(work, "wait"):
                self._remember(work, group.last)
            return work

        return end_coalescing

    def _wait(self, old: Any) -> Any:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            known = self._works.get(id(work))
            if known is None:
                return old(work, *args, **kwargs)
            try:
                result = known[0].wait(old, work, *args, **kwargs)
            except BaseException as error:
                step_aside(error)
                raise
            self._works.pop(id(work), None)
            return result

        return wait

    def _peer(self, process_group: Any, args: tuple[Any, ...]) -> int:
        """The global rank of the peer of a send or receive; -1 for any rank."""
        if len(args) < 2 or not isinstance(args[1], int):
            return -1
        try:
            return int(self._c10d.get_global_rank(process_group, args[1]))
        except Exception:
            return -1

    def _functional(self, module: Any, op: str, old: Any) -> Any:
        """A functional collective, launched below Python; the first use of its result waits for
        it."""
        call = call_of(op)
        equal = EQUAL.get(op)
        import inspect  # takes a quarter of the client's time to import

        position = list(inspect.signature(old).parameters).index("group")
        is_compiling, is_tracing = self._is_compiling, module._are_we_tracing

        def functional(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or is_tracing():  # tracing enters nothing
                return old(*args, **kwargs)
            thread = threading.get_ident()
            if thread in self._within:
                return old(*args, **kwargs)
            launch = None
            try:
                given = kwargs["group"] if "group" in kwargs else args[position]
                if not isinstance(given, list):  # a deprecated form, and resolving it warns
                    name = module._resolve_group_name(given, kwargs.get("tag", ""))
                    group = self._group(name, self._c10d._resolve_process_group(name))
                    end_known = group.waits or _on_cpu(args)
                    # Here the input is reduced and scattered.
                    elements = 0 if equal is None else _elements(args, 0)
                    launch = Launch(group, call, elements, end_known)
            except BaseException as error:
                swallow("a functional collective was not recorded", error)
            if launch is None:
                return old(*args, **kwargs)
            try:
                self._within.add(thread)  # some call one another
                launch.tell()
                result = old(*args, **kwargs)
                self._expect_use(result, launch)
                return result
            except BaseException as error:
                step_aside(error)
                raise
            finally:
                self._within.discard(thread)
                launch.back(over=True)

        return functional

    def _wait_tensor(self, old: Any) -> Any:
        is_compiling = self._is_compiling

        def wait_tensor(tensor: Any) -> Any:
            if is_compiling():
                return old(tensor)
            launch = self._pending.pop(_address(tensor), None) if self._pending else None
            if launch is None:
                return old(tensor)
            return launch.wait(old, tensor)

        return wait_tensor

    def _expect_use(self, result: Any, launch: Launch) -> None:
        if len(self._pending) >= _MAX_PENDING:  # results that were never used
            self._pending.clear()
        for tensor in result if isinstance(result, (list, tuple)) else [result]:
            address = _address(getattr(tensor, "elem", tensor))
            if address:
                self._pending[address] = launch

    def _post_forward(self, old: Any) -> Any:
        """Count one virtual collective when the backward of this forward begins."""
        torch = sys.modules["torch"]
        find_tensors = sys.modules["torch.nn.parallel.distributed"]._find_tensors

        def post_forward(model: Any, output: Any) -> Any:
            output = old(model, output)
            try:
                prepared = model.require_backward_grad_sync and torch.is_grad_enabled()
                if prepared and not self._is_compiling():
                    group = self._model(model)
                    entered: list[bool] = []

                    def begins(_: Any) -> None:
                        if not entered:
                            entered.append(True)
                            self._backward(group)

                    for tensor in find_tensors(output):
                        if tensor.requires_grad:
                            tensor.register_hook(begins)
            except BaseException as error:
                swallow("a backward will not be recorded", error)
            return output

        return post_forward

    def _joined(self, old: Any) -> Any:
        """A rank without further inputs takes part in the backward of the others."""

        def match_all_reduce(model: Any) -> Any:
            try:
                Launch(self._model(model), call_of("backward"))
            except BaseException as error:
                swallow("a backward was not recorded", error)
            return old(model)

        return match_all_reduce

    def _model(self, model: Any) -> Group:
        """The virtual group of a data-parallel model, numbered in the order of first use."""
        group = self._models.get(model)
        name = model.process_group.group_name
        of = self._group(name, model.process_group)
        if group is None or group not in _api.groups.values():
            of.models += 1
            shown = shown_name("ddp", of.name if of.models == 1 else f"{of.name}#{of.models}")
            group = self._models[model] = Group(shown, of.size, of.waits)
            group.show(model_key(name, of.models))
        return group

    def _backward(self, group: Group) -> None:
        try:
            launch = Launch(group, call_of("backward"))
            engine = sys.modules["torch"].autograd.Variable._execution_engine

            def last() -> None:
                # Queued by a callback, it runs after the one that waits for the buckets; this one
                # was queued before the reducer's, so all gradients of this rank are computed.
                if group.waits:
                    launch.blocks()
                    engine.queue_callback(lambda: launch.back(over=True))

            engine.queue_callback(last)
        except BaseException as error:
            swallow("a backward was not recorded", error)


def _tensor(args: tuple[Any, ...], index: int) -> Any:
    """The argument, or the first tensor of a list; None if there is none."""
    value = args[index] if index < len(args) else None
    while isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return value


def _on_cpu(args: tuple[Any, ...]) -> bool:
    device = getattr(_tensor(args, 0), "device", None)
    return getattr(device, "type", "cpu") == "cpu"


def _elements(args: tuple[Any, ...], index: int) -> int:
    count = getattr(_tensor(args, index), "numel", None)
    return 0 if count is None else int(count())


def _address(tensor: Any) -> int:
    """The address of the tensor's storage, which its views share; 0 without one."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except Exception:
        return 0
