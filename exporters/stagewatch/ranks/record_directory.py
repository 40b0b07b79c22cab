"""Finds the stage records of a node, and whether their writers live.

A record stays open until its rank has ended.  An open descriptor survives the file's removal, so
a rank's last totals are read even when it exited and removed its record between two looks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import itertools
import operator
import os
import re
import resource
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import NoData, SourceError
from stagewatch.host.mounts import mount_id, pin, reopen
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.owners import contradicts, of_another, slurm_job
from stagewatch.ranks.places import pinned
from stagewatch.ranks.records import (
    Busy,
    CorruptRecord,
    Life,
    OtherVersion,
    RankRecord,
    Recording,
    copy_record,
    copy_rest,
    copy_ring,
    parse,
    version_of,
)
from stagewatch.record import FILE_SIZE, RECORD_SIZE, VERSION

MAX_ENTRIES = 65_536
"""Most directory entries looked at in one pass."""
MAX_LISTED = 4 * MAX_ENTRIES
"""The most names that are listed; beyond `MAX_ENTRIES`, only those with a locked file count."""
MAX_LOCKS = 65_536
"""The most locks of the machine that are read."""
MAX_RECORDS_PER_USER = 256
"""So that one user's files cannot crowd out another's ranks."""
QUOTA_BYTES = MAX_RECORDS_PER_USER * FILE_SIZE
"""Bytes in files of one user above which the user is reported."""
MAX_QUOTA_ENTRIES = 8192
"""The most files that count for the quota; a directory with a file system of its own has room for
half as many."""
BYTES_OF_A_FILE = 16_384
"""A smaller file counts as so many bytes, since the number of files is limited too."""
MAX_RECORDS = 768
"""The most records, each of which takes a descriptor; fewer if the process may open only few."""
GRACE_SECONDS = 600.0
"""How long a dead rank's record is kept before the agent removes it."""
LINGER_SECONDS = 5.0
"""How long a closed record is still returned, so that a reader every few seconds gets it once."""
HALTED_SECONDS = 2.0
"""A writer that stays in the middle of a store for so long is stopped or dead, and not busy."""
RECHECK_SECONDS = 10.0
"""How long a refused file is not opened again, and how long a list of directories is kept."""
MAX_RECHECK_SECONDS = 640.0
"""A file that is refused again is left alone twice as long, up to this time."""
ADMISSION_SECONDS = 0.25
"""How long one look opens files that may be records; the others wait for the next look."""
ADMITTED_AT_LEAST = 64
"""One look opens so many files even if that takes longer, or a busy machine might show no rank."""
MAX_PRIVATE_ENTRIES = 1024
"""Most entries of a private directory looked at in one pass."""

UNSEEN = 0
"""The pid of a writer whose PID namespace is not visible from the agent's."""

_LOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux
_NAME = re.compile(r"[0-9]{1,10}-[0-9a-f]{8}\.rank")
NCCL_NAME = re.compile(r"[0-9]{1,10}-[0-9a-f]{8}\.nccl")
"""What our profiler plugin for NCCL keeps beside the records; `ranks.nccl` reads it."""

_identity = operator.attrgetter(
    *("job_id", "role", "rank", "local_rank", "world_size", "gpu", "host", "created"),
    *("pid", "pid_namespace", "boot_id", "start_ticks"),
)
"""The fields that a writer states once, when it begins."""


class WrongOwner(Exception):
    """The process that the record claims as its writer belongs to another user."""


class OtherJob(Exception):
    """Slurm has put the writer into another job than the record states."""


_REASONS: dict[type[Exception], str] = {
    WrongOwner: "wrong_owner",
    OtherVersion: "version",
    OtherJob: "other_job",
}


@dataclass(slots=True)
class _Open:
    fd: int
    uid: int
    good: RankRecord | None = None
    copied: int = 0
    """The hash of the bytes of `good`."""
    shown: RankRecord | None = None
    """What the last look returned."""
    halted: tuple[Busy, float] | None = None
    """The parts that its writer is in the middle of storing, and since when."""
    ended: float | None = None
    removed: bool = False
    slurm_job: str | None = None
    """The job into which Slurm has put its writer; empty if none, `None` before the first look."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refused file."""

    reason: str
    at: float
    wait: float = RECHECK_SECONDS
    uid: int | None = None
    """The owner of the file, if there was no room for more of his records."""


class RecordDirectory:
    """The records of one node.  Not thread-safe.

    `private` lists the private directories of users, whose files are named in full.
    One that cannot be listed, or is a symbolic link, is passed over.
    """

    def __init__(
        self,
        directory: Path,
        proc: Procfs,
        *,
        private: Callable[[], list[Path]] = list,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._proc = proc
        self._list_private = private
        self._clock = clock
        self._private: list[Path] = []
        self._listed_at = float("-inf")
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(MAX_RECORDS, max(descriptors - 256, descriptors // 4))
        self._open: dict[str, _Open] = {}
        self._turned_away: dict[str, _Refusal] = {}
        self._done: set[str] = set()
        """Files of ended ranks that we may not remove; they are not read again."""
        self._owners: dict[str, int] = {}
        """The user of each job that had a live rank."""
        self.skipped: Counter[str] = Counter()
        """The number of files skipped at the last look, by reason."""

    def read(self, *, copy: bool = True) -> list[RankRecord]:
        """All records; those of ended ranks for a while longer.

        Unless `copy`, a rank that lives is shown as it was last copied.
        Once returned, a record is returned every time until it is forgotten for good.  Raises
        `NoData` if the directory is missing and there is no other record, and `SourceError` if it
        cannot be listed.
        """
        self.skipped.clear()
        names: dict[str, int] = dict.fromkeys(self._private_names(), 0)
        try:
            names |= self._names()
        except NoData:
            if not (self._open or names):
                raise  # else it was removed, but a rank that has mapped its record writes on
        for name, entry in self._open.items():
            entry.removed = name not in names
        self._done &= names.keys()
        for name in self._turned_away.keys() - names.keys():
            del self._turned_away[name]
        closed = names.keys() - self._open.keys() - self._done
        self._admit({name: names[name] for name in closed})
        looks = [self._look(name, copy=copy) for name in list(self._open)]
        self.skipped.update(refusal.reason for refusal in self._turned_away.values())
        if self._done:
            self.skipped["not_removable"] = len(self._done)
        return self._of_their_owners([record for record in looks if record is not None])

    def recording(self, record: RankRecord) -> Recording | None:
        """The present content of a record that `read` has returned, with its events.

        `None` if the record was forgotten since, or cannot be read.
        """
        entry = self._open.get(record.name)
        if entry is None:
            return None
        try:
            head, _ = copy_record(entry.fd)
            raw = head.ljust(RECORD_SIZE, b"\0") + copy_ring(entry.fd)
        except (CorruptRecord, OSError):
            return None
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return Recording(record, raw, boot, time.time_ns())

    def available_bytes(self) -> int | None:
        """Room for further records in bytes, 0 if no file can be made; `None` if unknown.

        It is the room for users without privileges; see `f_bavail` and `f_favail` in statvfs(3).
        """
        try:
            room = os.statvfs(self._directory)
        except OSError:
            return None
        no_file = room.f_files and not room.f_favail
        return 0 if no_file else room.f_bavail * room.f_frsize

    def over_quota(self) -> dict[int, int]:
        """Bytes in the directory by user, for users above `QUOTA_BYTES`.

        Any user may fill the directory, and so keep others from making a record.
        """
        used: Counter[int] = Counter()
        with (
            contextlib.suppress(OSError),
            _opened_directory(self._directory) as directory,
            os.scandir(self._directory) as entries,
        ):
            here = mount_id(directory)
            for entry in itertools.islice(entries, MAX_QUOTA_ENTRIES):
                with contextlib.suppress(OSError):
                    fd = pin(Path(entry.name), dir_fd=directory)
                    try:
                        if mount_id(fd) == here:  # another's file system might not answer
                            status = os.fstat(fd)
                            size = max(status.st_blocks * 512, BYTES_OF_A_FILE)
                            used[status.st_uid] += size
                    finally:
                        os.close(fd)
        return {uid: size for uid, size in used.items() if size > QUOTA_BYTES}

    def close(self) -> None:
        """Close all descriptors."""
        for entry in self._open.values():
            os.close(entry.fd)
        self._open.clear()

    def _names(self) -> dict[str, int]:
        """The files by name, with their inodes."""
        names: dict[str, int] = {}
        held: dict[int, int] = {}
        try:
            with os.scandir(self._directory) as entries:
                for number, entry in enumerate(itertools.islice(entries, MAX_LISTED)):
                    if number == MAX_ENTRIES:
                        self.skipped["too_many"] += 1
                        held = locks()
                    if number >= MAX_ENTRIES and entry.inode() not in held:
                        continue
                    if _NAME.fullmatch(entry.name):
                        names[entry.name] = entry.inode()
                    elif not NCCL_NAME.fullmatch(entry.name):
                        self.skipped["name"] += 1
        except FileNotFoundError as error:
            raise NoData(f"{self._directory} does not exist") from error
        except OSError as error:
            raise SourceError(f"{self._directory}: {error.strerror}") from error
        return names

    def _private_names(self) -> set[str]:
        """Full names of the records in private directories."""
        now = self._clock()
        if now - self._listed_at >= RECHECK_SECONDS:
            self._listed_at = now
            self._private = [place for place in self._list_private() if place != self._directory]
        names: set[str] = set()
        for place in self._private:
            with contextlib.suppress(OSError), pinned(place) as fd:
                with os.scandir(f"/proc/self/fd/{fd}") as entries:
                    first = [entry.name for entry in itertools.islice(entries, MAX_PRIVATE_ENTRIES)]
                names |= {str(place / name) for name in first if _NAME.fullmatch(name)}
        return names

    @contextlib.contextmanager
    def _above(self, name: str) -> Iterator[tuple[int, Path]]:
        """The directory of a file, opened anew, and the file's name in it, so that the owner of a
        private directory cannot redirect us."""
        path = self._directory / name
        if path.parent == self._directory:
            with _opened_directory(self._directory) as fd:
                yield fd, Path(name)
        else:
            with pinned(path.parent) as fd:
                yield fd, Path(path.name)

    def _admit(self, names: dict[str, int]) -> None:
        """Open files that may be records: new ones first, then those that have waited longest.

        If there are many, files whose lock a live process holds come first, in turn of each user.
        """
        now = self._clock()
        users = Counter(entry.uid for entry in self._open.values())
        full: set[int | None] = set()
        before = {name: self._turned_away.get(name) for name in names}
        due = [name for name, last in before.items() if last is None or now - last.at >= last.wait]
        due.sort(key=lambda name: (last.at if (last := before[name]) else 0.0, name))
        if len(due) > ADMITTED_AT_LEAST:
            places = self._places_of_writers(due, names)
            due.sort(key=lambda name: places.get(name, MAX_LISTED))
        began = self._clock()
        for done, name in enumerate(due):
            if done >= ADMITTED_AT_LEAST and self._clock() - began > ADMISSION_SECONDS:
                self.skipped["not_yet"] = len(due) - done
                break
            last = before[name]
            if last is not None and last.uid in full:
                continue
            entry = self._opened(name)
            uid = None
            if isinstance(entry, _Open) and (
                entry.uid in full or not self._make_room(entry.uid, users)
            ):
                uid = entry.uid
                full.add(uid)
                os.close(entry.fd)
                entry = "too_many"
            if isinstance(entry, str):
                wait = RECHECK_SECONDS
                if last is not None and entry != "too_many":
                    wait = min(2 * last.wait, MAX_RECHECK_SECONDS)
                self._turned_away[name] = _Refusal(entry, now, wait, uid)
                continue
            self._turned_away.pop(name, None)
            users[entry.uid] += 1
            self._open[name] = entry

    def _places_of_writers(self, due: list[str], inodes: dict[str, int]) -> dict[str, int]:
        """For each file whose lock a process holds, the number of its user's files before it."""
        held = locks()
        before: Counter[int | None] = Counter()
        places = {}
        for name in due:
            if (pid := held.get(inodes[name])) is not None:
                user = self._proc.uid(pid)
                places[name] = before[user]
                before[user] += 1
        return places

    def _make_room(self, uid: int, users: Counter[int]) -> bool:
        """Whether there is room for a record of this user, perhaps after dropping another one.

        The record of the user, or else of the user with most, whose rank ended longest ago is
        dropped; without ended ranks, a record of the user with most.
        """
        crowded = users[uid] >= MAX_RECORDS_PER_USER
        if not crowded and len(self._open) < self._most:
            return True
        most = uid if crowded else max(users, key=users.__getitem__)
        rivals = [(entry.ended, name) for name, entry in self._open.items() if entry.uid == most]
        ended = [(at, name) for at, name in rivals if at is not None]
        if ended:
            self._forget(min(ended)[1])
        elif crowded or users[most] <= users[uid] + 1:
            return False
        else:
            name = rivals[-1][1]
            os.close(self._open.pop(name).fd)
            self._turned_away[name] = _Refusal("too_many", self._clock(), uid=most)
        users[most] -= 1
        return True

    def _opened(self, name: str) -> _Open | str:
        """The opened file, or the reason why it cannot be a record."""
        try:
            with self._above(name) as (directory, file):
                fd = open_inside(directory, file)
        except OSError as error:
            return _refused(error)
        if isinstance(fd, str):
            return fd
        status = os.fstat(fd)
        if status.st_size == FILE_SIZE:
            return _Open(fd, status.st_uid)
        reason = "size" if version_of(fd) in (None, VERSION) else "version"
        os.close(fd)
        return reason

    def _look(self, name: str, *, copy: bool) -> RankRecord | None:
        entry = self._open[name]
        if not copy and entry.shown and lock_holder(entry.fd) == (True, entry.shown.pid):
            return entry.shown
        entry.shown = None
        try:
            record = self._copy(entry)
            if record is None:
                self.skipped["torn"] += 1
                return None
            if entry.good is not None:
                _check_same(entry.good, record)
            life, pid = life_of(record, entry.fd, entry.uid, self._proc)
            if entry.slurm_job is None and life is Life.ALIVE and pid:
                entry.slurm_job = slurm_job(self._proc, pid)
            if contradicts(record.job_id, entry.slurm_job or ""):
                raise OtherJob
        except (CorruptRecord, WrongOwner, OtherJob, OSError) as error:
            self.skipped[_REASONS.get(type(error), "corrupt")] += 1
            if entry.good is not None or entry.removed:
                self._forget(name)
            return None
        entry.good = record
        if life is Life.ALIVE:
            entry.ended = None
        elif self._expired(entry, life):
            self._forget(name)
            return None
        entry.shown = dataclasses.replace(record, life=life, pid=pid, name=name, uid=entry.uid)
        return entry.shown

    def _copy(self, entry: _Open) -> RankRecord | None:
        """The present record; while its writer is in the middle of a store, the last good one."""
        raw, busy = copy_record(entry.fd)
        if busy:
            now = self._clock()
            if entry.halted is None or entry.halted[0] != busy:
                entry.halted = busy, now
            if now - entry.halted[1] < HALTED_SECONDS:
                return entry.good
        else:
            entry.halted = None
        rest = copy_rest(entry.fd, raw)
        before, entry.copied = entry.copied, hash((raw, rest))
        return entry.good if entry.good and entry.copied == before else parse(raw, rest)

    def _expired(self, entry: _Open, life: Life) -> bool:
        now = self._clock()
        if entry.ended is None:
            entry.ended = now
        keep = LINGER_SECONDS if life is Life.CLOSED or entry.removed else GRACE_SECONDS
        return now - entry.ended >= keep

    def _forget(self, name: str) -> None:
        entry = self._open.pop(name)
        os.close(entry.fd)
        if entry.removed:
            return
        try:
            with self._above(name) as (directory, file), contextlib.suppress(FileNotFoundError):
                os.unlink(file, dir_fd=directory)
        except OSError:  # another user's file in a sticky directory that is not ours
            self._done.add(name)

    def _of_their_owners(self, records: list[RankRecord]) -> list[RankRecord]:
        """The records, each under a job of its own user.

        A job belongs to the user for whom Slurm runs it, if that is known; else to the user of its
        first live rank, as long as he has a record of it.  A live rank of another user is shown
        under another job; a dead one is not shown.
        """
        present = {(record.job_id, record.uid) for record in records}
        alive = [record for record in records if record.life is Life.ALIVE]
        owners = {job: uid for job, uid in self._owners.items() if (job, uid) in present}
        for record in alive:
            owners.setdefault(record.job_id, record.uid)
        for record in alive:
            if self._open[record.name].slurm_job == record.job_id:
                owners[record.job_id] = record.uid
        self._owners = dict(owners)
        kept = []
        for record in records:
            if owners.setdefault(record.job_id, record.uid) != record.uid:
                self.skipped["intruder"] += 1
                if record.life is not Life.ALIVE:
                    continue
                name = of_another(record.job_id, record.uid)
                record = dataclasses.replace(record, job_id=name)  # noqa: PLW2901
            kept.append(record)
        return kept


@contextlib.contextmanager
def _opened_directory(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def open_inside(directory: int, file: Path) -> int | str:
    """A descriptor of a regular file in a directory, or the reason why it cannot be read.

    Mounts in the directory are never opened, since a user's file system might not answer.
    """
    try:
        path = pin(file, dir_fd=directory)
        try:
            if mount_id(path) != mount_id(directory):
                return "mount"
            fd = reopen(path, os.O_RDONLY | os.O_NONBLOCK)
        finally:
            os.close(path)
    except OSError as error:
        return _refused(error)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return fd
    os.close(fd)
    return "not_a_file"


def _refused(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "too_many"
    return "symlink" if error.errno == errno.ELOOP else "unreadable"


def _check_same(before: RankRecord, record: RankRecord) -> None:
    """Refuse a record that changes its identity, since every new name would make new series.

    Only the framework may be stated later, by a hook.  Raises `CorruptRecord`.
    """
    if _identity(before) != _identity(record) or before.framework not in ("", record.framework):
        raise CorruptRecord("the record changed its identity")


def life_of(record: RankRecord, fd: int, owner: int, proc: Procfs) -> tuple[Life, int]:
    """Whether the writer lives, and its pid in the agent's PID namespace (or `UNSEEN`).

    A claim of the record counts only if the kernel confirms it; `owner`: the owner of the file.
    Raises `WrongOwner`.
    """
    if record.closed:
        return Life.CLOSED, record.pid
    held, pid = lock_holder(fd)
    if not pid:
        # A process drops its lock when it closes any descriptor of the file, so the record's own
        # claim counts where /proc confirms it.
        if not _is_running(record, proc):
            return (Life.ALIVE, UNSEEN) if held else (Life.GONE, record.pid)
        pid = record.pid
    user = proc.uid(pid)
    if user is not None and user != owner:
        raise WrongOwner(f"process {pid} belongs to user {user}, the record to {owner}")
    return Life.ALIVE, pid


def locks(file: Path = Path("/proc/locks")) -> dict[int, int]:
    """The process that holds the write lock of each inode, on any file system; see
    proc_locks(5)."""
    found = {}
    with contextlib.suppress(OSError), file.open() as lines:
        for line in itertools.islice(lines, MAX_LOCKS):
            fields = line.split()
            if fields[1:4] == ["POSIX", "ADVISORY", "WRITE"]:
                found[int(fields[5].rpartition(":")[2])] = int(fields[4])
    return found


def _is_running(record: RankRecord, proc: Procfs) -> bool:
    boot = proc.boot_id()
    return (
        record.pid_namespace == proc.pid_namespace()
        and (not boot or record.boot_id == boot)
        and proc.is_running(record.pid, record.start_ticks)
    )


def lock_holder(fd: int) -> tuple[bool, int]:
    """Whether a process holds the writer's lock, and its pid in our namespace (0: not visible).

    See F_GETLK in fcntl(2): the kernel translates the pid into the caller's PID namespace.  Asking
    for a read lock finds only write locks, which take permission to write the file.
    """
    asked = _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return kind != fcntl.F_UNLCK, max(0, pid)
