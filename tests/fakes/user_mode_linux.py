"""Another kernel, as an ordinary process: Debian's user-mode-linux on this machine's own files.

For what this machine's kernel lacks.  Everything is read-only but for the directory of the test.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

KERNEL = "linux.uml"
MODULES = Path("/usr/lib/uml/modules")

_INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /run
mount -t hostfs -o {directory} none {directory}
ip link set lo up
cd {directory}
./body > output 2>&1
echo $? > status
sync
echo o > /proc/sysrq-trigger
sleep 60
"""
_INSERT = """
import ctypes, os, sys
for path in sys.argv[1:]:
    file = os.open(path, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).syscall(313, file, b"", 0):  # finit_module, on x86-64
        sys.exit(f"{path}: {os.strerror(ctypes.get_errno())}")
"""


def missing() -> str:
    """What this machine lacks for it, empty if nothing."""
    if shutil.which(KERNEL) is None or not MODULES.is_dir():
        return "needs linux.uml (Debian package user-mode-linux)"
    return ""


def module(name: str) -> Path:
    """The file of a module of that kernel."""
    return next(MODULES.rglob(f"{name}.ko"))


def run(directory: Path, body: str, modules: tuple[str, ...] = (), limit: float = 240) -> str:
    """Boot, run a shell script as root with these modules, and power off; returns its output."""
    (directory / "insert.py").write_text(_INSERT)
    loaded = " ".join(str(module(name)) for name in modules)
    (directory / "body").write_text(
        f"#!/bin/sh\nset -e\n{sys.executable} insert.py {loaded}\n{body}\n"
    )
    (directory / "init").write_text(_INIT.format(directory=directory))
    for name in ("body", "init"):
        (directory / name).chmod(0o755)
    done = subprocess.run(
        [
            *("setpriv", "--pdeathsig", "KILL", KERNEL, "mem=384M", "rootfstype=hostfs"),
            *("rootflags=/", "ro", f"init={directory}/init", f"uml_dir={directory}/uml/"),
            *("con=null", "con0=null,fd:1"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit,
        check=False,
    )
    output = directory / "output"
    said = output.read_text() if output.exists() else done.stdout[-3000:]
    status = directory / "status"
    assert status.exists() and status.read_text().strip() == "0", said
    return said
