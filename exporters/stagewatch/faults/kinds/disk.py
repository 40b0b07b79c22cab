"""A full file system (fallocate), and competing input and output on one (stress-ng)."""

from __future__ import annotations

import argparse
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stagewatch.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.kinds.hogs import Helper
from stagewatch.faults.plan import Kind, Plan, Request, Step, human, size
from stagewatch.faults.tools import Commands, require, shown

_FILL_LIMIT_SECONDS = 3600.0
"""Where blocks must be written one by one, as on NFS version 3."""


@dataclass(frozen=True, slots=True)
class Fill(Step):
    """One new file that takes up room."""

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
        try:  # through the descriptor: nobody can put a link in the file's place meanwhile
            commands.run(*self._argv, stdin=file, limit=_FILL_LIMIT_SECONDS)
        finally:
            os.close(file)

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
    """Remove what we made; never follows a link, never touches what another user owns."""
    try:
        found = path.lstat()
        if found.st_uid != os.geteuid() or stat.S_ISLNK(found.st_mode):
            return [f"left alone: {path} is not the one that was made"]
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(path)
            return [shown(["rm", "-rf", str(path)])]
        path.unlink()
        return [shown(["rm", "-f", str(path)])]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SourceError(f"cannot remove {path}: {error.strerror}") from error


def _directory(target: str) -> Path:
    path = Path(target)
    if not path.is_absolute():
        raise ConfigError(f"--target {target!r}: must be the absolute path of a directory")
    try:
        path = path.resolve(strict=True)
    except OSError as error:
        raise StagewatchError(f"--target {target}: {error.strerror}") from error
    if not path.is_dir():
        raise StagewatchError(f"--target {target}: not a directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise StagewatchError(f"--target {target}: you may not write there")
    return path


def _room(path: Path) -> int:
    """Bytes that a user may still write there; root could take more, and does not."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _add_leave(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--leave",
        default="64MiB",
        metavar="SIZE",
        help="leave at least this much free [default: 64MiB]",
    )


def _fill_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size", metavar="SIZE", help="take at most so much [default: all but --leave]"
    )
    _add_leave(parser)


def _fill(request: Request) -> Plan:
    directory = _directory(request.target)
    leave = size("--leave", request.options.leave)
    room = _room(directory)
    wanted = room - leave
    if request.options.size is not None:
        wanted = min(wanted, size("--size", request.options.size))
    if wanted <= 0:
        raise StagewatchError(
            f"nothing to fill: {human(room)} are free in {directory} and {human(leave)} are to "
            "be left (--leave)"
        )
    require("fallocate")
    name = f".stagewatch-fault-{request.id}"
    step = Fill(str(directory / name), wanted)
    return Plan((step,), f"{human(wanted)} of {human(room)} free in {directory}")


FILL = Kind(
    name="disk-fill",
    help="take up the room of a file system, but for a floor (fallocate)",
    target="a directory of that file system, by its absolute path",
    plan=_fill,
    add_options=_fill_options,
)


def _io_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--writers", type=int, default=2, metavar="N", help="writing processes [default: 2]"
    )
    parser.add_argument(
        "--size", default="256MiB", metavar="SIZE", help="room for each [default: 256MiB]"
    )
    _add_leave(parser)


def _io(request: Request) -> Plan:
    directory = _directory(request.target)
    writers = request.options.writers
    if not 1 <= writers <= 256:
        raise ConfigError(f"--writers {writers}: must be from 1 to 256")
    each = size("--size", request.options.size)
    if each < 1 << 20:
        raise ConfigError(f"--size {request.options.size}: must be at least 1MiB")
    leave = size("--leave", request.options.leave)
    room = _room(directory)
    if writers * each + leave > room:
        raise StagewatchError(
            f"{human(room)} are free in {directory}: too little for {writers} times {human(each)} "
            f"(--size) with {human(leave)} to be left (--leave)"
        )
    require("stress-ng")
    scratch = directory / f".stagewatch-fault-{request.id}"
    argv = (
        *("stress-ng", "--hdd", str(writers), "--hdd-bytes", str(writers * each)),
        *("--hdd-opts", "wr-seq,fsync", "--temp-path", str(scratch)),
        *("--timeout", f"{request.tool_seconds}s", "--keep-name", "--quiet"),
    )
    steps = (Scratch(str(scratch)), Helper(request.id, argv, str(request.log)))
    return Plan(steps, f"{writers} writers in {directory}")


IO = Kind(
    name="disk-io",
    help="write and sync all the time beside the job (stress-ng)",
    target="a directory of the file system or disk, by its absolute path",
    plan=_io,
    add_options=_io_options,
)
