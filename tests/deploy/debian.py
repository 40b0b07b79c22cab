"""A Debian in a directory: commands run there, and systemd boots it as process 1.

No engine is needed: unshare(1) gives it namespaces of its own, as `systemd-nspawn --boot` does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from stagewatch.core.processes import Children
from tests.deploy.engine import ROOT, need
from tests.running import output
from tests.waiting import wait_for

T = TypeVar("T", bound="Debian")

_ENVIRON = {
    "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
}

_GET = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
    print(answer.read().decode())
"""

_ALONE = """
mount -t proc proc "$0/proc"
mount -t tmpfs tmp "$0/tmp"
exec chroot "$0" "$@"
"""

# What concerns the whole kernel can be read, and not written, as in a container.
_BOOT = """
cd "$0"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
find run -mindepth 1 -delete
mount -t tmpfs -o mode=755 run run
mount -t tmpfs tmp tmp
mount -t tmpfs -o mode=755 dev dev
for device in null zero full random urandom tty kmsg; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs shm dev/shm
ln -s pts/ptmx dev/ptmx
pivot_root . mnt
umount --lazy /mnt
exec env -i container=namespaces PATH="$PATH" /lib/systemd/systemd
"""


class Debian:
    """A Debian of nothing but the required packages."""

    def __init__(self, root: Path) -> None:
        """Unpacked from .cache: to make one is most of what trying a package costs."""
        self.root = root
        self._init = 0
        bare = ROOT / ".cache" / "debian-12.tar"
        if not bare.exists():
            bare.parent.mkdir(exist_ok=True)
            made = root / bare.name
            output(
                "mmdebstrap", "--quiet", "--variant=minbase", "--components=main", "bookworm", made
            )
            shutil.move(made, bare)
        output("tar", "--extract", "--file", bare, "--directory", root)
        shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
        (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (root / "usr/sbin/policy-rc.d").chmod(0o755)

    @classmethod
    @contextlib.contextmanager
    def made(cls: type[T], root: Path) -> Iterator[T]:
        """One in memory, since dpkg waits for disks, for as long as the context lasts."""
        if os.geteuid() != 0:
            pytest.skip("needs root, for a Debian in a directory")
        need("mmdebstrap")
        for parent in list(root.parents)[:3]:
            parent.chmod(parent.stat().st_mode | 0o055)
        output("mount", "-t", "tmpfs", "-o", "mode=755", "debian", root)
        try:
            yield cls(root)
        finally:
            output("umount", "--lazy", root)

    def command(self, *words: str) -> list[str]:
        """A command in there: beside systemd where that runs, else with processes of its own.

        Its network is that of this machine, where packages come from.
        """
        if self._init:
            namespaces = ["--mount", "--uts", "--ipc", "--pid", "--cgroup"]
            return ["nsenter", f"--target={self._init}", *namespaces, *words]
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"]
        return [*inside, _ALONE, str(self.root), *words]

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a shell script there."""
        return subprocess.run(
            self.command("sh", "-euc", script),
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=_ENVIRON,
        )  # fmt: skip

    def __call__(self, script: str) -> str:
        """Its output."""
        done = self.run(script)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    @contextlib.contextmanager
    def booted(self) -> Iterator[None]:
        """While the context lasts, systemd runs in it as process 1, in a cgroup of its own."""
        with _cgroup() as cgroup, Children() as children:
            enter = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
            alone = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
            boot = [*alone, "--fork", "--kill-child", "sh", "-euc", _BOOT, str(self.root)]
            unshare = children.start(["sh", "-euc", enter, str(cgroup), *boot], environ=_ENVIRON)
            child = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
            try:
                wait_for(lambda: child.read_text(), "namespaces")
                self._init = int(child.read_text())
                wait_for(self._runs, "systemd runs")
                yield
            finally:
                self._init = 0
                unshare.kill()  # it takes no notice of SIGTERM; those in its namespace go too

    def _runs(self) -> bool:
        return self.run("systemctl is-system-running").stdout.strip() in ("running", "degraded")

    def left(self) -> set[str]:
        """Whatever bears our name, but for what dpkg knows of a package, and what brought it."""
        others = "-not -path '/var/lib/dpkg/*' -not -path '/ansible/*' -not -path '/root/*'"
        return set(self(f"find / -xdev -name '*stagewatch*' {others}").split())

    def metrics(self, port: int) -> str:
        """What an agent that systemd has started serves; nothing while it does not."""
        there = ["nsenter", f"--target={self._init}", "--net", sys.executable, "-c", _GET]
        command = [*there, f"http://127.0.0.1:{port}/metrics"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def pid(self, agent: str) -> int:
        """The process of an agent that systemd has started, 0 if there is none."""
        return int(self(f"systemctl show --property=MainPID --value stagewatch-{agent}"))

    def status(self, agent: str) -> dict[str, str]:
        """/proc/<pid>/status of it."""
        text = self(f"cat /proc/{self.pid(agent)}/status")
        return dict(re.findall(r"^(\w+):\t(.*)$", text, re.MULTILINE))


@contextlib.contextmanager
def _cgroup() -> Iterator[Path]:
    """A new control group of version 2, without limits."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    where = next((Path(each[1]) for each in mounts if each[2] == "cgroup2"), None)
    [own] = re.findall(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE) or [""]
    if where is None or not os.access(where / own, os.W_OK):
        pytest.skip("needs control groups of version 2, for systemd")
    cgroup = where / own / f"stagewatch-test-{os.getpid()}"
    cgroup.mkdir()

    def gone() -> bool:
        for directory, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
        return not cgroup.exists()

    try:
        yield cgroup
    finally:
        wait_for(gone, "the end of all that systemd has started")
