"""A stand-in for `libnvidia-ml.so.1`, built from the C files beside this one.

The real `pynvml` loads it through LD_LIBRARY_PATH.  A test changes what it does while it runs::

    fake.set("gpu.3.lost", 1)                        GPU 3 falls off the bus
    fake.set("hang.nvmlDeviceGetTemperature", 1)     the call never returns
    fake.set("gpu.0.return.nvmlDeviceGetName", 3)    not supported on GPU 0
    fake.set("clock.video.return", 3)                the same for one argument of a call
    fake.set("delay.nvmlDeviceGetMemoryInfo_v2", 20) takes 20 us longer (`spin.` burns CPU)
    fake.set("temperature", 91)                      a reading of every GPU

Keys without `gpu.INDEX.` hold for every GPU.  `count` is what the next start of the driver finds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

SOURCES = Path(__file__).parent
LIBRARY = "libnvidia-ml.so.1"
FLAGS = (
    *("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Werror"),
)


def build(directory: Path, *defines: str) -> Path:
    """Compile the library into a directory.

    `FAKE_OLD` leaves newer functions out, `nvmlDeviceGetName=unknown` one under its name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sources = sorted(map(str, SOURCES.glob("*.c")))
    options = [f"-D{name}" for name in defines]
    subprocess.run(
        ["gcc", *FLAGS, *options, "-o", str(directory / LIBRARY), *sources, "-lpthread"], check=True
    )
    return directory


class FakeNvml:
    """One fake driver: its environment for a process, and its controls."""

    def __init__(self, library: Path, work: Path) -> None:
        self.control = work / "nvml-control"
        self.log = work / "nvml-calls"
        self.device = work / "nvidia0"
        self._library = library
        self._lines: dict[str, str] = {}
        self._changes = 0
        self.control.with_name(self.control.name + ".changes").write_bytes(bytes(8))
        self._write()

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs in its environment to load this driver."""
        return {
            "LD_LIBRARY_PATH": str(self._library),
            "FAKE_NVML": str(self.control),
            "FAKE_NVML_DEVICE": str(self.device),
        }

    def set(self, key: str, value: object) -> None:
        """Change one setting; holds from the next call on, and for calls that hang."""
        self._lines[key] = str(value)
        self._write()

    def replace(self, lines: Mapping[str, str]) -> None:
        """Change to exactly these settings."""
        self._lines = dict(lines)
        self._write()

    def clear(self, *keys: str) -> None:
        """Back to the default for these settings, or for all."""
        for key in keys or tuple(self._lines):
            self._lines.pop(key, None)
        self._write()

    def calls(self) -> Iterable[tuple[str, int]]:
        """What was called so far, with the GPU's index; needs FAKE_NVML_LOG set to `log`."""
        for line in self.log.read_text().splitlines():
            name, _, gpu = line.partition(" ")
            yield name, int(gpu)

    def _write(self) -> None:
        new = self.control.with_suffix(".new")
        new.write_text("".join(f"{key} {value}\n" for key, value in self._lines.items()))
        new.replace(self.control)
        self._changes += 1  # only now: the library reads the control file when it sees this
        with self.control.with_name(self.control.name + ".changes").open("r+b") as counter:
            counter.write(self._changes.to_bytes(8, "little"))
