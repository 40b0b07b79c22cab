"""The GPUs and MIG instances of a session, and their identity."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stagewatch.gpu.nvml.answers import Codes, SessionBroken, blank
from stagewatch.gpu.nvml.gpm import Gpm, Profile


@dataclass(slots=True)
class Gpu:
    """A GPU or a MIG instance, with the session's knowledge about it."""

    index: int
    handle: Any = None
    uuid: str = ""
    mig: str = ""
    instance: int | None = None
    """Id of the GPU instance that a MIG instance is part of."""
    parent: Gpu | None = None
    info: dict[str, str] = field(default_factory=dict)
    profile: Profile | None = None
    lost: bool = False
    errors: int = 0
    refused: dict[Hashable, int] = field(default_factory=dict)
    """Calls that the driver refuses, with the round of the last attempt."""


class Inventory:
    """All GPUs of a session, in order of their index, each followed by its MIG instances."""

    def __init__(self, nvml: Any, codes: Codes, gpm: Gpm) -> None:
        self._nvml = nvml
        self._codes = codes
        self._gpm = gpm
        self.gpus: list[Gpu] = []

    def enumerate(self) -> None:
        """Look for all GPUs again. A missing GPU stays in the list, as lost.

        Indices change: when a GPU falls off the bus, those behind it move up by one.
        """
        before = {gpu.uuid: gpu for gpu in self.gpus if gpu.parent is None and gpu.uuid}
        gpus = [Gpu(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        for gpu in gpus:
            self._identify(gpu)
            if gpu.uuid in before:
                gpu.errors += before.pop(gpu.uuid).errors
        self._name_silent(gpus, before)
        for gpu in before.values():
            gpu.lost = True
        whole = sorted(gpus + list(before.values()), key=lambda gpu: gpu.index)
        self.gpus = [part for gpu in whole for part in (gpu, *self._instances(gpu))]

    @staticmethod
    def _name_silent(gpus: list[Gpu], before: dict[str, Gpu]) -> None:
        """Identify a GPU without a UUID as the missing one with the same index."""
        for gpu in gpus:
            old = next((old for old in before.values() if old.index == gpu.index), None)
            if not gpu.uuid and old is not None:
                gpu.uuid, gpu.info = old.uuid, old.info
                del before[old.uuid]

    def refresh_instances(self) -> None:
        """Look for MIG instances again, since they come and go with the jobs."""
        before = {gpu.uuid: gpu for gpu in self.gpus if gpu.parent is not None}
        whole = [gpu for gpu in self.gpus if gpu.parent is None]
        now: list[Gpu] = []
        for gpu in whole:
            now.append(gpu)
            for instance in self._instances(gpu):
                old = before.pop(instance.uuid, None)
                if old is not None:  # keep what was learnt, but not a handle that may be stale
                    old.handle = instance.handle
                now.append(old or instance)
        for gone in before.values():
            if gone.profile is not None:
                self._gpm.close(gone.profile)
        self.gpus = now

    def failed(self, gpu: Gpu, error: Any) -> None:
        """Count a failed call. Raises `SessionBroken` if the session is unusable."""
        if error.value in self._codes.fatal:
            raise SessionBroken(error)
        gpu.errors += 1
        if error.value in self._codes.lost:
            gpu.lost = True

    def _identify(self, gpu: Gpu) -> None:
        nvml = self._nvml
        try:
            gpu.handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
            gpu.uuid = text(nvml.nvmlDeviceGetUUID(gpu.handle))
            gpu.info = dict(self._info(gpu.handle))
            gpu.profile = self._profile(gpu.handle)
        except nvml.NVMLError as error:
            self.failed(gpu, error)

    def _info(self, handle: Any) -> Iterator[tuple[str, str]]:
        nvml = self._nvml
        for name, read in (
            ("model", nvml.nvmlDeviceGetName),
            ("minor", nvml.nvmlDeviceGetMinorNumber),
            ("vbios", nvml.nvmlDeviceGetVbiosVersion),
            ("serial", nvml.nvmlDeviceGetSerial),
            ("pci_bus_id", lambda gpu: nvml.nvmlDeviceGetPciInfo(gpu).busId),
        ):
            try:
                value = read(handle)
            except nvml.NVMLError as error:
                if error.value not in self._codes.absent:
                    raise
                continue
            if not (isinstance(value, int) and blank(value, 32)):
                yield name, text(value)

    def _instances(self, gpu: Gpu) -> list[Gpu]:
        nvml = self._nvml
        instances: list[Gpu] = []
        if gpu.lost or gpu.handle is None:
            return instances
        try:
            if not nvml.nvmlDeviceGetMigMode(gpu.handle)[0]:
                return instances
            for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)):
                try:
                    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, place)
                except nvml.NVMLError_NotFound:
                    continue  # places are not filled from the front
                instances.append(self._instance(gpu, handle))
        except nvml.NVMLError as error:
            if error.value not in self._codes.absent:
                self.failed(gpu, error)
        return instances

    def _instance(self, gpu: Gpu, handle: Any) -> Gpu:
        nvml = self._nvml
        instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
        compute = nvml.nvmlDeviceGetComputeInstanceId(handle)
        info = {**gpu.info, "model": text(nvml.nvmlDeviceGetName(handle))}
        return Gpu(
            gpu.index,
            handle,
            text(nvml.nvmlDeviceGetUUID(handle)),
            f"{instance}:{compute}",
            instance,
            gpu,
            info,
            self._profile(gpu.handle),
        )

    def _profile(self, handle: Any) -> Profile | None:
        try:
            return self._gpm.open(handle)
        except self._nvml.NVMLError as error:
            if error.value in self._codes.absent:
                return None
            raise


def text(value: Any) -> str:
    """A string of NVML as text; some versions of pynvml give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
