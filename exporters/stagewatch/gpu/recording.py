"""Recordings of GPU readings: made on a machine with GPUs, replayed on one without.

A recording is JSON lines.  The first describes it, the others are frames as
`stagewatch.gpu.nvml` documents them, replayed one after the other at `interval` and then from
the start again::

    {"recording": 1, "interval": 5.0, "comment": "what, where, when; measured or made up"}
    {"driver": "...", "tiers": {"fast": {"gpus": [...]}, "slow": {"gpus": [...]}}}

A frame needs only the tiers, GPUs and values that have changed since the previous frame. Counters
continue to rise when the recording restarts.

Write one, with serial numbers and UUIDs replaced, with
`python -m stagewatch.gpu.recording --frames 60 --interval 1 FILE`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.core.state_file import BROKEN
from stagewatch.gpu.reader import GpuReader
from stagewatch.gpu.readings import parse

MAX_SIZE = 64 << 20
Frame = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole recording, with complete frames at a fixed interval in seconds."""

    interval: float
    frames: tuple[Frame, ...]

    def at(self, seconds: float) -> Frame:
        """The frame at a time after the start; counters keep rising from loop to loop."""
        loop, place = divmod(int(seconds / self.interval), len(self.frames))
        frame = self.frames[place]
        return self._raised(frame, loop) if loop else frame

    def _raised(self, frame: Frame, loop: int) -> Frame:
        first, last = self.frames[0]["tiers"], self.frames[-1]["tiers"]
        tiers = {}
        for name, tier in frame["tiers"].items():
            rows = []
            for row, start, end in zip(
                tier["gpus"], first[name]["gpus"], last[name]["gpus"], strict=True
            ):
                values = {
                    key: value + loop * self._growth(key, start["values"], end["values"])
                    for key, value in row["values"].items()
                }
                rows.append({**row, "values": values})
            tiers[name] = {**tier, "gpus": rows}
        return {**frame, "tiers": tiers}

    def _growth(self, key: str, start: dict[str, float], end: dict[str, float]) -> float:
        if not key.partition("/")[0].endswith("_total") or len(self.frames) < 2:
            return 0.0
        risen = end.get(key, 0.0) - start.get(key, 0.0)
        return risen * len(self.frames) / (len(self.frames) - 1)


class RecordedReader:
    """Replaces `GpuReader`, with a file that may change while in use."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._recording: Recording | None = None
        self._started = 0.0

    def read(self, tiers: Sequence[str]) -> Frame:
        """The current frame. Raises `ConfigError` with what is wrong with the file."""
        recording = self._current()
        frame = recording.at(time.monotonic() - self._started)
        kept = {tier: frame["tiers"][tier] for tier in tiers if tier in frame["tiers"]}
        return {**frame, "time": time.time(), "tiers": kept}

    def close(self) -> None:
        """Nothing to close."""

    def _current(self) -> Recording:
        try:
            status = self._file.stat()
        except OSError as error:
            raise ConfigError(f"{self._file}: {error.strerror}") from error
        seen = (status.st_mtime_ns, status.st_ino)
        if self._recording is None or seen != self._seen:
            self._recording = load(self._file)
            self._seen = seen
            self._started = time.monotonic()
        return self._recording


def load(file: Path) -> Recording:
    """Read and check a recording. Raises `ConfigError` with the bad line."""
    try:
        if file.stat().st_size > MAX_SIZE:
            raise ConfigError(f"{file}: over {MAX_SIZE >> 20} MiB, too large for a recording")
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text") from error
    frames: list[Frame] = []
    interval = None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if interval is None:
                if entry["recording"] != 1 or not 0.01 <= entry["interval"] <= 3600:
                    raise ValueError
                interval = float(entry["interval"])
            else:
                frames.append(_complete(entry, frames[-1] if frames else {"tiers": {}}))
        except SourceError as error:
            raise ConfigError(f"{file}: line {number}: {error}") from error
        except BROKEN as error:
            what = "the first line of a recording" if interval is None else "a frame"
            raise ConfigError(f"{file}: line {number} is not {what}") from error
    if interval is None or not frames:
        raise ConfigError(f"{file}: a recording needs a first line and at least one frame")
    return Recording(interval, tuple(frames))


def _complete(entry: Frame, before: Frame) -> Frame:
    """A frame, completed from the previous one."""
    tiers = {name: dict(tier) for name, tier in before["tiers"].items()}
    for name, tier in entry["tiers"].items():
        rows = {_key(row): row for row in tiers.get(name, {}).get("gpus", ())}
        for row in tier["gpus"]:
            old = rows.get(_key(row), {"values": {}})
            values = {**old["values"], **{_declared(k): float(v) for k, v in row["values"].items()}}
            rows[_key(row)] = {**old, **row, "values": values}
        tiers[name] = {"seconds": float(tier.get("seconds", 0.0)), "gpus": list(rows.values())}
    return {"driver": str(entry.get("driver", before.get("driver", ""))), "tiers": tiers}


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return str(row["gpu"]), str(row.get("mig", ""))


def _declared(key: str) -> str:
    """The key of a reading. Raises `SourceError` if it is not declared."""
    parse(key)
    return key


def anonymous(text: str) -> str:
    """A frame's text with made-up UUIDs and serial numbers of the same form."""
    import hashlib

    def replace(match: re.Match[str]) -> str:
        digest = hashlib.sha256(match[2].encode()).hexdigest()
        parts = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])
        return match[1] + "-".join(parts)

    text = re.sub(r"((?:GPU|MIG)-)([0-9a-f-]{36})", replace, text)
    return re.sub(r'("serial":")[^"]*', r"\g<1>0", text)


def record(reader: GpuReader, frames: int, interval: float, comment: str) -> Iterator[str]:
    """The lines of a recording of this machine, one frame each interval."""
    yield json.dumps({"recording": 1, "interval": interval, "comment": comment})
    for number in range(frames):
        if number:
            time.sleep(interval)
        frame = reader.read(("fast", "medium", "slow"))
        yield anonymous(json.dumps(frame, separators=(",", ":")))


def main(argv: Sequence[str] | None = None) -> int:
    """Record the GPUs of this machine to a file."""
    parser = argparse.ArgumentParser(
        prog="python -m stagewatch.gpu.recording", description=main.__doc__
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--frames", type=int, default=60, help="number of frames [default: 60]")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds [default: 1]")
    parser.add_argument("--comment", default="measured", help="goes into the first line")
    options = parser.parse_args(argv)
    reader = GpuReader()
    try:
        with options.file.open("w", encoding="utf-8") as out:
            for line in record(reader, options.frames, options.interval, options.comment):
                print(line, file=out, flush=True)
    except (StagewatchError, OSError) as error:
        print(f"stagewatch: {error}", file=sys.stderr)
        return 1
    finally:
        reader.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
