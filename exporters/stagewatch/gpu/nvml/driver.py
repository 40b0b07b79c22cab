"""One session with the driver: readings of all GPUs, tier by tier."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from stagewatch.core.errors import NoData
from stagewatch.gpu.nvml.calls import MIG_TIERS, TIERS, Call
from stagewatch.gpu.nvml.errors import Errors, SessionBroken
from stagewatch.gpu.nvml.events import Events, address
from stagewatch.gpu.nvml.fields import ask, fields_by_tier
from stagewatch.gpu.nvml.gpm import METRICS as GPM_METRICS
from stagewatch.gpu.nvml.gpm import Gpm
from stagewatch.gpu.nvml.inventory import Gpu, Inventory, text
from stagewatch.gpu.nvml.sanity import plausible
from stagewatch.gpu.readings import Key, Reading

Frame = dict[str, Any]


class Driver:
    """The NVML session of this process; every method may block for as long as the driver likes."""

    def __init__(self) -> None:
        import pynvml

        self._nvml: Any = pynvml
        self._errors = Errors(pynvml)
        self._gpm = Gpm(pynvml)
        self._inventory = Inventory(pynvml, self._errors, self._gpm)
        self._events = Events(pynvml)
        self._fields = fields_by_tier("")
        self._version = ""
        self._round = 0

    def start(self) -> None:
        """Load the library and enumerate.

        Raises `NoData` where there is no driver or no GPU, `SourceError` for all other failures.
        """
        nvml = self._nvml
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

        Raises `SourceError` when the session as a whole is of no use any more.
        """
        frame: Frame = {"time": time.time(), "driver": self._version, "tiers": {}}
        if "slow" in tiers:
            self._look_again()
        for tier in tiers:
            started = time.monotonic()
            rows = [self._row(gpu, tier) for gpu in self._inventory.gpus]
            if tier == "fast":
                frame["xids"] = self._xids()
            frame["tiers"][tier] = {"seconds": time.monotonic() - started, "gpus": rows}
        return frame

    def _enumerate(self) -> None:
        self._inventory.enumerate()
        self._open_events()

    def _open_events(self) -> None:
        whole = [gpu for gpu in self._inventory.gpus if gpu.parent is None and not gpu.lost]
        self._events.open([gpu.handle for gpu in whole])

    def _look_again(self) -> None:
        """Start over where a GPU was lost, since only that finds one that is back.

        What was not supported is asked once more: some calls are only so for a while.
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
            self._call(gpu, call, values)
        if gpu.parent is None:
            self._ask_fields(gpu, tier, values)
        if tier == "fast":
            self._sample_profile(gpu, values)
        kept = {key: float(value) for key, value in values.items() if plausible(key, value)}
        if gpu.lost or (gpu.parent is not None and gpu.parent.lost):
            return row | {"lost": True, "info": gpu.info, "values": {}}
        if tier == "slow":
            row["info"] = gpu.info
        if tier == "fast":
            kept[Reading.CALL_ERRORS.key()] = gpu.errors
            profile = None if "gpm" in gpu.refused else gpu.profile
            lacking = GPM_METRICS if profile is None else profile.refused
            kept[Reading.UNSUPPORTED.key()] = len(gpu.refused.keys() - {"gpm"}) + len(lacking)
        return row | {"values": kept}

    def _call(self, gpu: Gpu, call: Call, values: dict[Key, float]) -> None:
        if gpu.lost or gpu.refused.get(call) == self._round:
            return
        try:
            values.update(call(self._nvml, gpu.handle))
            gpu.refused.pop(call, None)
        except self._nvml.NVMLError as error:
            if self._errors.is_absent(error):
                gpu.refused[call] = self._round
            else:
                self._inventory.failed(gpu, error)

    def _ask_fields(self, gpu: Gpu, tier: str, values: dict[Key, float]) -> None:
        wanted = [field for field in self._fields[tier] if gpu.refused.get(field) != self._round]
        if gpu.lost or not wanted:
            return
        try:
            answers = ask(self._nvml, gpu.handle, wanted)
        except self._nvml.NVMLError as error:
            if self._errors.is_absent(error):
                gpu.refused.update(dict.fromkeys(wanted, self._round))
            else:
                self._inventory.failed(gpu, error)
            return
        for field, code, value in answers:
            if code == 0:
                gpu.refused.pop(field, None)
            elif self._errors.absent_code(code):
                gpu.refused[field] = self._round
            else:
                gpu.errors += 1
            if value is not None:
                values.setdefault(field.key, value)

    def _sample_profile(self, gpu: Gpu, values: dict[Key, float]) -> None:
        profile = gpu.profile
        if gpu.lost or profile is None or gpu.refused.get("gpm") == self._round:
            return
        whole = gpu if gpu.parent is None else gpu.parent
        try:
            values.update(self._gpm.sample(profile, whole.handle, gpu.instance, self._round))
            gpu.refused.pop("gpm", None)
        except self._nvml.NVMLError as error:
            if self._errors.is_absent(error):
                gpu.refused["gpm"] = self._round
            else:
                self._inventory.failed(gpu, error)

    def _xids(self) -> list[dict[str, Any]]:
        """The XIDs announced since the last time."""
        owners = {
            address(gpu.handle): gpu
            for gpu in self._inventory.gpus
            if gpu.parent is None and gpu.handle is not None
        }
        found = []
        for handle, xid in self._events.take():
            gpu = owners.get(handle)
            if gpu is not None:
                bus = gpu.info.get("pci_bus_id", "")
                row = {"gpu": str(gpu.index), "uuid": gpu.uuid, "pci_bus_id": bus, "xid": xid}
                found.append({**row, "time": time.time()})
        return found
