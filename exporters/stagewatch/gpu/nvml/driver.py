"""One session with the driver: readings of all GPUs, tier by tier, in a process of its own.

`python -m stagewatch.gpu.nvml.driver` is the reader process: it answers each line of JSON on its
input with one on its output.  Only `stagewatch.gpu.reader` starts it. It may hang in the driver for
good, so it owns nothing important: no socket, no file, no lock. It ends when its input ends, when
its parent dies, or on SIGTERM as soon as the current call returns. It does not shut NVML down
first, since that can hang too and the kernel cleans up anyway.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Collection, Hashable
from typing import Any, BinaryIO

from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.processes import die_with_parent
from stagewatch.gpu.nvml.answers import Codes, SessionBroken, plausible
from stagewatch.gpu.nvml.calls import MIG_TIERS, TIERS
from stagewatch.gpu.nvml.fields import ask, fields_by_tier
from stagewatch.gpu.nvml.gpm import METRICS as GPM_METRICS
from stagewatch.gpu.nvml.gpm import Gpm
from stagewatch.gpu.nvml.inventory import Gpu, Inventory, text
from stagewatch.gpu.readings import Key, Reading

Frame = dict[str, Any]

WAIT_MILLISECONDS = 1
"""How long to wait for an event; the meaning of zero is not documented."""

MOST = 256
"""Most events read in one call: a GPU that floods the queue must not block the readings."""


class Driver:
    """The NVML session of this process; every method may block for as long as the driver likes.

    Making one loads the library and looks for GPUs.  Raises `NoData` where there is no driver or no
    GPU, `SourceError` for all other failures.
    """

    def __init__(self) -> None:
        import pynvml as nvml

        self._nvml: Any = nvml
        self._codes = Codes(nvml)
        self._gpm = Gpm(nvml)
        self._inventory = Inventory(nvml, self._codes, self._gpm)
        self._events = Events(nvml)
        self._round = 0
        try:
            nvml.nvmlInit()
            self._version = text(nvml.nvmlSystemGetDriverVersion())
            self._fields = fields_by_tier(self._version)
            self._enumerate()
        except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded) as error:
            raise NoData(f"no NVIDIA driver: {error}") from error
        except nvml.NVMLError as error:
            raise SessionBroken(error) from error
        if not self._inventory.gpus:
            raise NoData("the NVIDIA driver knows no GPU")

    def read(self, tiers: Collection[str]) -> Frame:
        """A frame of these tiers (see the package's docstring).

        Raises `SourceError` where the whole session is at an end.
        """
        frame: Frame = {"time": time.time(), "driver": self._version, "tiers": {}}
        if "slow" in tiers:
            self._look_again()
        for tier in tiers:
            started = time.monotonic()
            rows = [self._row(gpu, tier) for gpu in self._inventory.gpus]
            if tier == "fast":
                frame["xids"] = self._events.take()
            frame["tiers"][tier] = {"seconds": time.monotonic() - started, "gpus": rows}
        return frame

    def _enumerate(self) -> None:
        self._inventory.enumerate()
        self._open_events()

    def _open_events(self) -> None:
        whole = [gpu for gpu in self._inventory.gpus if gpu.parent is None and not gpu.lost]
        self._events.open(whole)

    def _look_again(self) -> None:
        """Look for GPUs and MIG instances; where a GPU is lost, only a new start finds it again.

        A new round also asks once more for what the driver refused: some refusals are temporary.
        """
        nvml = self._nvml
        try:
            if self._round and any(gpu.lost for gpu in self._inventory.gpus):
                nvml.nvmlShutdown()
                nvml.nvmlInit()
                self._enumerate()
            else:
                self._inventory.refresh_instances()
                if self._events.closed:
                    self._open_events()
        except nvml.NVMLError as error:
            raise SessionBroken(error) from error
        self._round += 1

    def _row(self, gpu: Gpu, tier: str) -> dict[str, Any]:
        row: dict[str, Any] = {"gpu": str(gpu.index), "uuid": gpu.uuid, "mig": gpu.mig}
        values: dict[Key, float] = {}
        for call in (TIERS if gpu.parent is None else MIG_TIERS)[tier]:
            if self._may_have(gpu, call):
                try:
                    values.update(call(self._nvml, gpu.handle))
                    gpu.refused.pop(call, None)
                except self._nvml.NVMLError as error:
                    self._failed(gpu, error, call)
        if gpu.parent is None:
            self._ask_fields(gpu, tier, values)
        if tier == "fast" and gpu.profile is not None and self._may_have(gpu, "gpm"):
            whole = gpu.parent or gpu
            try:
                values |= self._gpm.sample(gpu.profile, whole.handle, gpu.instance, self._round)
                gpu.refused.pop("gpm", None)
            except self._nvml.NVMLError as error:
                self._failed(gpu, error, "gpm")
        kept = {key: float(value) for key, value in values.items() if plausible(key, value)}
        if gpu.lost or (gpu.parent is not None and gpu.parent.lost):
            return row | {"lost": True, "info": gpu.info, "values": {}}
        if tier == "slow":
            row["info"] = gpu.info
        if tier == "medium":
            kept[Reading.CALL_ERRORS.key()] = gpu.errors
            profile = None if "gpm" in gpu.refused else gpu.profile
            lacking = GPM_METRICS if profile is None else profile.refused
            kept[Reading.UNSUPPORTED.key()] = len(gpu.refused.keys() - {"gpm"}) + len(lacking)
        return row | {"values": kept}

    def _may_have(self, gpu: Gpu, what: Hashable) -> bool:
        """Whether to ask the GPU for it: a refusal stands until the next round."""
        return not gpu.lost and gpu.refused.get(what) != self._round

    def _failed(self, gpu: Gpu, error: Any, *what: Hashable) -> None:
        """Note what the driver refuses, or count what it fails; the other readings go on."""
        if error.value in self._codes.absent:
            gpu.refused.update(dict.fromkeys(what, self._round))
        else:
            self._inventory.failed(gpu, error)

    def _ask_fields(self, gpu: Gpu, tier: str, values: dict[Key, float]) -> None:
        wanted = [field for field in self._fields[tier] if self._may_have(gpu, field)]
        if not wanted:
            return
        try:
            answers = ask(self._nvml, gpu.handle, wanted)
        except self._nvml.NVMLError as error:
            self._failed(gpu, error, *wanted)
            return
        for field, code, value in answers:
            if code == 0:
                gpu.refused.pop(field, None)
            elif code in self._codes.absent:
                gpu.refused[field] = self._round
            else:
                gpu.errors += 1
            if value is not None:
                values.setdefault(field.key, value)


class Events:
    """The queue in which the driver announces XIDs.

    The fast tier polls it instead of a thread of its own that waits: the library keeps the queue,
    and profiling allows one thread only.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._owners: dict[int, Gpu] = {}
        """The GPUs by what their handles point to."""

    @property
    def closed(self) -> bool:
        """Whether nothing is announced, after an error or for lack of support."""
        return self._set is None

    def open(self, gpus: list[Gpu]) -> None:
        """Ask for the XIDs of these GPUs, in a new queue."""
        nvml = self._nvml
        self._set = None
        self._owners = {_address(gpu.handle): gpu for gpu in gpus}
        try:
            queue = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return
        wanted = nvml.nvmlEventTypeXidCriticalError
        for gpu in gpus:
            try:
                if nvml.nvmlDeviceGetSupportedEventTypes(gpu.handle) & wanted:
                    nvml.nvmlDeviceRegisterEvents(gpu.handle, wanted, queue)
                    self._set = queue
            except nvml.NVMLError:
                continue

    def take(self) -> list[dict[str, Any]]:
        """The XIDs announced since the last call, as a frame holds them.

        Any error but an empty queue closes the queue until it is opened anew: for a lost GPU the
        driver answers at once every time, and would be asked in a loop.
        """
        nvml = self._nvml
        xids: list[dict[str, Any]] = []
        for _ in range(MOST):
            if self._set is None:
                break
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, WAIT_MILLISECONDS)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    self._close()
                break
            gpu = self._owners.get(_address(event.device))
            if gpu is not None and event.eventType & nvml.nvmlEventTypeXidCriticalError:
                bus = gpu.info.get("pci_bus_id", "")
                row = {"gpu": str(gpu.index), "uuid": gpu.uuid, "pci_bus_id": bus}
                xids.append({**row, "xid": int(event.eventData), "time": time.time()})
        return xids

    def _close(self) -> None:
        nvml, queue = self._nvml, self._set
        self._set = None
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlEventSetFree(queue)


def _address(handle: Any) -> int:
    """The address in a device handle, which all handles of a GPU share."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def serve(requests: BinaryIO, replies: int) -> None:
    """Answer until the input ends or the session with the driver is of no use any more.

    The first request opens the driver.
    """
    driver: Driver | None = None
    while line := requests.readline():
        try:
            driver = driver or Driver()
            reply = driver.read(json.loads(line)["tiers"])
        except NoData as error:
            reply = {"error": str(error), "kind": "no_data"}
        except SourceError as error:
            reply = {"error": str(error), "kind": "failed"}
        text = json.dumps(reply, separators=(",", ":")).encode() + b"\n"
        while text:
            text = text[os.write(replies, text) :]
        if "error" in reply:
            return


def main() -> None:
    """Run as `python -m stagewatch.gpu.nvml.driver PARENT_PID`."""
    die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's business
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    replies = os.dup(1)
    os.dup2(2, 1)  # what the driver prints must not end up among the replies
    os.set_blocking(2, False)  # and is rather lost than waits for a reader
    with os.fdopen(0, "rb", closefd=False) as requests:
        serve(requests, replies)
    os._exit(0)


if __name__ == "__main__":
    main()
