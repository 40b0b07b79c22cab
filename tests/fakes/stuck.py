"""Real processes that hold a lock of the kernel's for as long as a mount is silent."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.fakes.faultfs import FaultFs
from tests.running import Python, Script
from tests.waiting import wait_for

# mmap(2) of a file opened for direct I/O first has the dirty pages of that file written, holding
# the memory map for writing (fuse_file_mmap in fs/fuse/file.c), as mmap on NFS asks its server.
# Python's mmap would ask for the file's size before, and wait there without a lock.
_SOURCE = """
import ctypes, mmap, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
path, control, how = sys.argv[1:]
if "STAGEWATCH_DIR" in os.environ:
    import stagewatch
    stagewatch.init(job_id=os.environ["STAGEWATCH_JOB_ID"], rank=int(os.environ["RANK"]))
    stagewatch.heartbeat(1)
def put_in_force(fault):
    with open(control + ".mine", "w") as file:
        file.write(fault + " 0\\n")
    os.replace(control + ".mine", control)
with open(path, "wb") as file:
    file.write(bytes(4096))
print("before", flush=True)
signal.sigwait({signal.SIGUSR1})
put_in_force("cached open")
shared = mmap.mmap(os.open(path, os.O_RDWR), 4096)
put_in_force("ok *")
direct = os.open(path, os.O_RDWR)
shared[0] = 1
put_in_force("hang write")
if how == "mmap":
    libc = ctypes.CDLL(None)
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_PRIVATE, direct, 0)
else:  # which closes both files, and writes the dirty page for that
    os.execv("/bin/sleep", ["sleep", "600"])
"""


def getting_stuck(python: Python, mount: FaultFs, how: str = "mmap", **environ: str) -> Script:
    """A process that waits for `get_stuck` to get stuck in `mmap` or `exec`.

    It ends once the mount answers, so a test asks for `python` before `faultfs`.
    """
    script = python(_SOURCE, mount.mount / "file", mount.control, how, **environ)
    script.said("before")
    return script


def get_stuck(script: Script, mount: FaultFs) -> None:
    """Tell it, and wait until it is stuck."""
    script.process.send_signal(signal.SIGUSR1)
    status = Path(f"/proc/{script.pid}/status")
    wait_for(
        lambda: mount.control.read_text().startswith("hang") and "State:\tD" in status.read_text(),
        "a process in state D",
    )
