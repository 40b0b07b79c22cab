"""A full file system (fallocate), and competing writers on one (stress-ng)."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stagewatch.core import words
from stagewatch.core.config import option
from stagewatch.core.config import size as parse_size
from stagewatch.core.descriptors import closing
from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.kinds.hogs import stress_ng
from stagewatch.faults.plan import Kind, Plan, Request, Step
from stagewatch.faults.tools import Commands, require, shown

_FILL_LIMIT_SECONDS = 3600.0
"""The time limit for a file system that writes blocks one by one, such as NFS version 3."""


@dataclass(frozen=True, slots=True)
class Fill(Step):
    """A new file that takes up room."""

    survives_reboot: ClassVar[bool] = True

    path: str
    size: int

    def doing(self) -> list[str]:
        return [f"touch {self.path}", f"{shown(self._argv)} <>{self.path}"]

    def undoing(self) -> list[str]:
        return [shown(["rm", "-f", self.path])]

    def do(self, commands: Commands) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise StagewatchError(f"{self.path}: {error.strerror}") from error
        with closing(file):  # its descriptor: nobody can replace the file by a link meanwhile
            commands.run(*self._argv, stdin=file, limit=_FILL_LIMIT_SECONDS)

    def undo(self, commands: Commands) -> list[str]:
        return remove(Path(self.path))

    def over(self) -> str:
        return "" if os.path.lexists(self.path) else "somebody has removed the file"

    @property
    def _argv(self) -> tuple[str, ...]:
        return ("fallocate", "--posix", "--length", str(self.size), "/dev/stdin")


@dataclass(frozen=True, slots=True)
class Scratch(Step):
    """A new directory for a helper to write in."""

    survives_reboot: ClassVar[bool] = True

    path: str

    def doing(self) -> list[str]:
        return [shown(["mkdir", "-m", "700", self.path])]

    def undoing(self) -> list[str]:
        return [shown(["rm", "-rf", self.path])]

    def do(self, commands: Commands) -> None:
        try:
            Path(self.path).mkdir(mode=0o700)
        except OSError as error:
            raise StagewatchError(f"{self.path}: {error.strerror}") from error

    def undo(self, commands: Commands) -> list[str]:
        return remove(Path(self.path))


def remove(path: Path) -> list[str]:
    """Remove our files; never follow a link, never touch another user's file."""
    try:
        status = path.lstat()
        if status.st_uid != os.geteuid() or stat.S_ISLNK(status.st_mode):
            return [f"left alone: {path} is not the one that was made"]
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path)
            return [shown(["rm", "-rf", str(path)])]
        path.unlink()
        return [shown(["rm", "-f", str(path)])]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SourceError(f"cannot remove {path}: {error.strerror}") from error


def _directory(target: str) -> tuple[Path, int]:
    """The directory, and the bytes that a user may still write there; root could take more, but
    does not."""
    path = Path(target)
    if not path.is_absolute():
        raise ConfigError(f"--target {target!r}: must be the absolute path of a directory")
    try:
        path = path.resolve(strict=True)
        status = os.statvfs(path)
    except OSError as error:
        raise StagewatchError(f"--target {target}: {error.strerror}") from error
    if not path.is_dir():
        raise StagewatchError(f"--target {target}: not a directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise StagewatchError(f"--target {target}: you may not write there")
    return path, status.f_bavail * status.f_frsize


@dataclass(frozen=True, slots=True)
class FillOptions:
    """Options of `disk-fill`."""

    size: int | None = option(
        None, "take at most this much; all but --leave if none", parse=parse_size
    )
    leave: int = option(64 << 20, "leave at least this much free", parse=parse_size)


def _fill(request: Request, options: FillOptions) -> Plan:
    directory, room = _directory(request.target)
    wanted = room - options.leave
    if options.size is not None:
        wanted = min(wanted, options.size)
    if wanted <= 0:
        raise StagewatchError(
            f"nothing to fill: {words.size(room)} are free in {directory} and "
            f"{words.size(options.leave)} are to be left (--leave)"
        )
    require("fallocate")
    step = Fill(str(directory / f".stagewatch-fault-{request.id}"), wanted)
    return Plan((step,), f"{words.size(wanted)} of {words.size(room)} free in {directory}")


FILL = Kind(
    name="disk-fill",
    help="fill a file system, but leave a floor free (fallocate)",
    target="a directory of that file system, by its absolute path",
    plan=_fill,
    options=FillOptions,
)


@dataclass(frozen=True, slots=True)
class IoOptions:
    """Options of `disk-io`."""

    writers: int = option(2, "writing processes")
    size: int = option(256 << 20, "room for each writer", parse=parse_size)
    leave: int = option(64 << 20, "leave at least this much free", parse=parse_size)


def _io(request: Request, options: IoOptions) -> Plan:
    directory, room = _directory(request.target)
    writers, size = options.writers, options.size
    if not 1 <= writers <= 256:
        raise ConfigError(f"--writers {writers}: must be from 1 to 256")
    if size < 1 << 20:
        raise ConfigError(f"--size {size}: must be at least 1MiB")
    if writers * size + options.leave > room:
        raise StagewatchError(
            f"{words.size(room)} are free in {directory}: too little for {writers} times "
            f"{words.size(size)} (--size) with {words.size(options.leave)} to be left (--leave)"
        )
    scratch = directory / f".stagewatch-fault-{request.id}"
    hogs = stress_ng(
        request,
        *("--hdd", str(writers), "--hdd-bytes", str(writers * size)),
        *("--hdd-opts", "wr-seq,fsync", "--temp-path", str(scratch)),
    )
    return Plan((Scratch(str(scratch)), hogs), f"{writers} writers in {directory}")


IO = Kind(
    name="disk-io",
    help="write and sync without pause, next to the job (stress-ng)",
    target="a directory of the file system or disk, by its absolute path",
    plan=_io,
    options=IoOptions,
)
