"""The journal of what must be undone, written to disk before anything is done.

It has one file per injection.  Only its owner may write there, since its commands are run, perhaps
as root.  The process that undoes an injection holds the lock of its file, and then removes the
file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.descriptors import closing
from stagewatch.core.errors import SourceError
from stagewatch.core.files import write_atomically
from stagewatch.core.state_file import BROKEN, parse
from stagewatch.faults.plan import Step, StepTypes
from stagewatch.faults.processes import Identity

ROOT_DIRECTORY = Path("/var/lib/stagewatch-faults")
MAX_BYTES = 256 * 1024
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})\.undo")


@dataclass(frozen=True, slots=True)
class Entry:
    """One injection: its steps, and the facts that undoing them needs."""

    id: str
    fault_dir: str
    """The directory of its marker."""
    boot_id: str
    network_namespace: int
    """The inode of the namespace that its network rules are in."""
    owner: Identity
    """The process that holds the fault; once it has ended, the fault must be undone."""
    steps: tuple[Step, ...]
    environ: dict[str, str]


def encode(step: Step) -> dict[str, Any]:
    """A step as JSON."""
    return {"step": type(step).__name__, **asdict(step)}


def decode(content: dict[str, Any], types: StepTypes) -> Step:
    """The step of that JSON.  Raises `ValueError` or `TypeError`."""
    fields = {key: _frozen(value) for key, value in content.items()}
    name = fields.pop("step", None)
    if name not in types:
        raise ValueError(f"no step {name!r}")
    return types[name](**fields)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def default_directory() -> Path:
    """The journal's directory, which survives a reboot as files and drained nodes do."""
    if os.geteuid() == 0:
        return ROOT_DIRECTORY
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(f"{state}/stagewatch/undo").expanduser()


class Journal:
    """The entries of one directory, which must be the caller's own.

    `types` are the steps that an entry may have; others make it unreadable.
    """

    def __init__(self, directory: Path, types: StepTypes) -> None:
        self.directory = directory
        self._types = types

    def prepare(self) -> None:
        """Make the directory.  Raises `SourceError` if others could write to it."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SourceError(f"{self.directory}: {error.strerror}") from error
        self._check()

    def write(self, entry: Entry) -> None:
        """Write an entry to disk, whole or not at all."""
        content = asdict(entry) | {"steps": [encode(step) for step in entry.steps]}
        write_atomically(self.path(entry.id), json.dumps(content).encode())

    def path(self, id: str) -> Path:
        """The file of an entry."""
        return self.directory / f"{id}.undo"

    def ids(self) -> list[str]:
        """The ids of all entries; none without a journal.  Raises `SourceError`."""
        try:
            self._check()
            names = [_NAME.fullmatch(path.name) for path in self.directory.iterdir()]
        except FileNotFoundError:
            return []
        except PermissionError as error:
            raise SourceError(f"{self.directory}: {error.strerror}") from error
        return sorted(match[1] for match in names if match)

    def read(self, id: str) -> Entry | None:
        """An entry; None once it is undone.  Raises `SourceError` if it cannot be read."""
        with self._open(id) as file:
            return None if file is None else self._parse(id, os.pread(file, MAX_BYTES, 0))

    @contextlib.contextmanager
    def locked(self, id: str) -> Iterator[tuple[Entry | None, int]]:
        """The entry and the descriptor with its lock; None once it is undone."""
        with self._open(id) as file:
            if file is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file).st_nlink:
                    yield self._parse(id, os.pread(file, MAX_BYTES, 0)), file
                    return
        yield None, -1

    def remove(self, id: str) -> None:
        """Remove an entry, after all of it is undone."""
        self.path(id).unlink(missing_ok=True)

    def _check(self) -> None:
        status = self.directory.lstat()
        mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not mine or stat.S_IMODE(status.st_mode) & 0o022:
            raise SourceError(
                f"{self.directory} must be a directory of yours that nobody else may write to "
                "(--undo-dir)"
            )

    @contextlib.contextmanager
    def _open(self, id: str) -> Iterator[int | None]:
        try:
            file = os.open(self.path(id), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise SourceError(f"{self.path(id)}: {error.strerror}") from error
        with closing(file):
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise SourceError(f"{self.path(id)} is not a file of yours")
            yield file

    def _parse(self, id: str, raw: bytes) -> Entry:
        try:
            content = parse(raw)
            return Entry(
                **{
                    **content,
                    "id": id,
                    "owner": Identity(**content["owner"]),
                    "steps": tuple(decode(step, self._types) for step in content["steps"]),
                }
            )
        except BROKEN as error:
            raise SourceError(f"{self.path(id)} cannot be read: {error}") from error
