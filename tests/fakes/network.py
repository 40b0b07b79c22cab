"""Two network namespaces with a link between them, as on two hosts.

Nothing has a name outside: the namespaces belong to two sleeping processes and are gone, link and
rules included, as soon as these end; and they end with this process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from stagewatch.core.processes import Children
from tests.waiting import wait_for


def missing() -> str:
    """What this machine lacks for it, empty if nothing."""
    for tool, package in (("ip", "iproute2"), ("iptables", "iptables"), ("nsenter", "util-linux")):
        if shutil.which(tool) is None:
            return f"needs {tool} (Debian package {package})"
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    probe = subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True)
    if probe.returncode:
        return f"needs to make network namespaces: {probe.stderr.decode().strip()}"
    return ""


class Hosts:
    """Host `a` (10.77.0.1) and host `b` (10.77.0.2), joined by a veth pair."""

    def __init__(self) -> None:
        self._children = Children()
        try:
            self.a = self._host()
            self.b = self._host()
            self.run(
                self.a, *f"ip link add name wire type veth peer name wire netns {self.b}".split()
            )
            for pid, address in ((self.a, "10.77.0.1/16"), (self.b, "10.77.0.2/16")):
                self.run(pid, "ip", "address", "add", address, "dev", "wire")
                self.run(pid, "ip", "link", "set", "wire", "up")
        except BaseException:
            self.close()
            raise

    def enter(self, pid: int) -> tuple[str, ...]:
        """What to put before a command for it to run on a host."""
        return ("nsenter", f"--net=/proc/{pid}/ns/net", "--")

    def run(self, pid: int, *command: str) -> str:
        """Run a command on a host; its output."""
        done = subprocess.run(
            [*self.enter(pid), *command], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def close(self) -> None:
        """End everything."""
        self._children.stop(patience=0.1)

    def _host(self) -> int:
        process = self._children.start(["unshare", "--net", "sleep", "infinity"])
        own = Path("/proc/self/ns/net").stat().st_ino

        def apart() -> bool:
            assert process.poll() is None, "no network namespace"
            return Path(f"/proc/{process.pid}/ns/net").stat().st_ino != own

        wait_for(apart, "a network namespace")
        self.run(process.pid, "ip", "link", "set", "lo", "up")
        return process.pid
