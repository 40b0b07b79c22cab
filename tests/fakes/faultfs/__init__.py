"""A file system that misbehaves on demand; `faultfs.c` says how."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from stagewatch.core.processes import Children
from tests.waiting import wait_for

SOURCE = Path(__file__).with_name("faultfs.c")


def missing() -> str:
    """What this machine lacks to run it, empty if nothing."""
    for tool in ("gcc", "pkg-config", "fusermount3"):
        if shutil.which(tool) is None:
            return f"needs {tool} (Debian packages gcc, pkg-config, fuse3)"
    if subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode:
        return "needs the headers of FUSE (Debian package libfuse3-dev)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs /dev/fuse"
    return ""


def build(directory: Path) -> Path:
    """Compile the program into a directory."""
    program = directory / "faultfs"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
    ).stdout.split()
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCE, *flags], check=True
    )
    return program


class FaultFs:
    """One mounted instance.  Ends, and is unmounted, with this process however it ends."""

    def __init__(
        self, program: Path, directory: Path, point: Path | None = None, *, others: bool = False
    ) -> None:
        """`others`: whether users beside its own reach it, which root may decide."""
        directory.mkdir(parents=True, exist_ok=True)
        self.mount = point or directory / "mnt"
        self.mount.mkdir(exist_ok=True)
        self.control = directory / "control"
        self.ok()
        self._children = Children()
        options = "auto_unmount,allow_other" if others else "auto_unmount"
        self._server = self._children.start(
            [str(program), str(self.control), "-f", "-o", options, str(self.mount)],
            log=directory / "faultfs.log",
        )
        try:
            wait_for(self._mounted, f"mounted, see {directory / 'faultfs.log'}")
        except BaseException:
            self.close()
            raise

    def fault(self, kind: str, operation: str = "*", value: int = 0) -> None:
        """Put a fault in force, in place of the one before."""
        fresh = self.control.with_suffix(".new")
        fresh.write_text(f"{kind} {operation} {value}\n")
        fresh.replace(self.control)

    def ok(self) -> None:
        """Take the fault away."""
        self.fault("ok")

    def close(self) -> None:
        """Answer what hangs, then unmount."""
        self.ok()
        subprocess.run(["fusermount3", "-u", "-z", self.mount], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            self._children.stop()

    def _mounted(self) -> bool:
        assert self._server.poll() is None, "faultfs has ended"
        return f" {self.mount} " in Path("/proc/self/mountinfo").read_text()
