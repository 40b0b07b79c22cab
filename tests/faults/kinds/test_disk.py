"""A file system that fills up, but for its floor, and competing writers; nothing stays behind."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.faults.kinds.disk import remove
from tests.faults.injecting import Injector
from tests.waiting import wait_for

MIB = 1 << 20


@dataclass
class Small:
    """A tmpfs of 32 MiB that only processes in its mount namespace see."""

    pid: int
    path: Path

    @property
    def enter(self) -> tuple[str, ...]:
        return ("nsenter", f"--mount=/proc/{self.pid}/ns/mnt", "--")

    @property
    def seen(self) -> Path:
        """The same from outside."""
        return Path(f"/proc/{self.pid}/root{self.path}")

    @property
    def free(self) -> int:
        found = os.statvfs(self.seen)
        return found.f_bavail * found.f_frsize


@pytest.fixture
def small(children: Children, tmp_path: Path) -> Iterator[Small]:
    """The file system; gone with its process."""
    probe = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip(f"needs to make mount namespaces: {probe.stderr.decode().strip()}")
    path = tmp_path / "small"
    path.mkdir()
    script = f"mount -t tmpfs -o size=32m none {path} && touch {path}/ready && exec sleep infinity"
    process = children.start(["unshare", "--mount", "sh", "-c", script])
    small = Small(process.pid, path)
    wait_for(lambda: (small.seen / "ready").exists(), "the file system")
    yield small


def test_a_checkpoint_finds_no_space_while_the_fault_lasts(
    injector: Injector, small: Small
) -> None:
    before = small.free
    script = injector.hold(
        "disk-fill", f"--target={small.path}", "--leave=2MiB", prefix=small.enter
    )
    assert 0 < small.free <= 2 * MIB
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (small.seen / "checkpoint").write_bytes(bytes(4 * MIB))
    (small.seen / "checkpoint").unlink()
    script.process.terminate()
    script.finish(143)
    injector.gone()
    assert small.free == before
    assert [path.name for path in small.seen.iterdir()] == ["ready"]


def test_a_file_system_at_its_floor_is_not_filled(injector: Injector, small: Small) -> None:
    said = injector.run(
        *("inject", "disk-fill", f"--target={small.path}", "--leave=40MiB", "--for=5s"),
        prefix=small.enter,
        status=1,
    )
    assert "nothing to fill" in said


def test_what_already_has_the_files_name_is_left_alone(injector: Injector, tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    trap = place / ".stagewatch-fault-x"
    trap.symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("kept")
    argv = ("inject", "disk-fill", f"--target={place}", "--size=1MiB", "--for=5s", "--id=x")
    assert "File exists" in injector.run(*argv, status=1)
    assert (tmp_path / "precious").read_text() == "kept"
    assert trap.is_symlink()
    assert not injector.left() and not injector.markers()


def test_a_link_or_a_strangers_file_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    assert "left alone" in remove(tmp_path / "link")[0]
    if os.geteuid() == 0:
        os.chown(tmp_path / "precious", 65534, 65534)
        assert "left alone" in remove(tmp_path / "precious")[0]
    assert (tmp_path / "precious").exists()
    assert remove(tmp_path / "absent") == []


def test_writers_write_and_leave_nothing(injector: Injector, tmp_path: Path) -> None:
    if shutil.which("stress-ng") is None:
        pytest.skip("needs stress-ng (Debian package stress-ng)")
    place = tmp_path / "checkpoints"
    place.mkdir()
    script = injector.hold("disk-io", f"--target={place}", "--size=8MiB")

    def written() -> int:
        total = 0
        for helper in injector.helpers():
            lines = Path(f"/proc/{helper.pid}/io").read_text().splitlines()
            total += int(dict(line.split(": ") for line in lines)["wchar"])
        return total

    wait_for(lambda: written() > 32 * MIB, "bytes written")
    assert list(place.iterdir())
    script.process.send_signal(signal.SIGKILL)
    script.finish(-signal.SIGKILL)
    injector.gone()
    assert not list(place.iterdir())


def test_no_more_is_taken_than_was_asked_for(injector: Injector, small: Small) -> None:
    before = small.free
    injector.hold(
        "disk-fill", f"--target={small.path}", "--size=8MiB", "--leave=1MiB", prefix=small.enter
    )
    assert before - small.free == 8 * MIB
    (taken,) = small.seen.glob(".stagewatch-fault-*")
    assert taken.stat().st_mode & 0o077 == 0
