"""The GPU reader process: what an operator sees when the driver hangs, dies or must be let go."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData, SourceError, Stuck
from tests.fakes.nvml import FakeNvml
from tests.gpu.readers import FAST, FOREVER, Make
from tests.waiting import wait_for


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


HOLD = """
import ctypes, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(1, signal.SIGKILL)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, STOP_AT_EXIT = 0x4206, 0x40
failed = libc.ptrace(SEIZE, int(sys.argv[1]), None, STOP_AT_EXIT)
print(ctypes.get_errno() if failed else 0, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(pid: int) -> Iterator[None]:
    """Keeps a process from being reaped once killed, as an uninterruptible driver call does.

    A tracer that stops it on its way out; it lets go by ending.
    """
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as tracer:
        assert tracer.stdout is not None
        if error := int(tracer.stdout.readline()):
            pytest.skip(f"needs leave to trace its own child ({os.strerror(error)})")
        yield


def test_second_child_is_not_started_while_the_first_does_not_die(
    nvml: FakeNvml, make_reader: Make
) -> None:
    reader = make_reader()
    reader.read(FAST)
    first = reader.pid
    assert first is not None
    with held(first):
        reader._timeout = 0.2
        nvml.set("hang.nvmlDeviceGetTemperature", 1)
        with pytest.raises(Stuck, match="has not answered"):
            reader.read(FAST)
        nvml.clear()
        for _ in range(5):
            with pytest.raises(Stuck, match=f"pid {first}.*does not end"):
                reader.read(FAST)
            assert reader.pid == first

    reader._timeout = 20.0

    def read() -> bool:
        try:
            return bool(reader.read(FAST))
        except Stuck:
            return False

    wait_for(read, "a new child answers once the old one is gone")
    assert reader.pid != first


def test_killed_child_is_replaced(nvml: FakeNvml, make_reader: Make) -> None:
    reader = make_reader()
    reader.read(FAST)
    first = reader.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    with pytest.raises(SourceError, match="ended"):
        reader.read(FAST)

    def read() -> bool:
        try:
            return bool(reader.read(FAST))
        except SourceError:
            return False

    wait_for(read, "a new child answers")
    assert reader.pid != first


def test_child_has_no_socket_and_only_pipes_and_the_device(
    nvml: FakeNvml, make_reader: Make
) -> None:
    with socket.create_server(("127.0.0.1", 0)):
        reader = make_reader()
        reader.read(FAST)
        files = [str(file.readlink()) for file in Path(f"/proc/{reader.pid}/fd").iterdir()]
    assert not [file for file in files if file.startswith("socket:")]
    assert [file for file in files if not file.startswith("pipe:")] == [str(nvml.device)]


def test_child_dies_with_a_parent_that_was_killed(nvml: FakeNvml) -> None:
    script = (
        "import sys, time; from stagewatch.gpu.reader import GpuReader\n"
        "r = GpuReader(); r.read(('fast',)); print(r.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        nvml.set("hang.nvmlDeviceGetTemperature", 1)
        parent.kill()
    wait_for(lambda: gone(child), "the kernel ends the orphan")


def test_close_does_not_wait_for_a_hanging_driver(nvml: FakeNvml, make_reader: Make) -> None:
    reader = make_reader(timeout=FOREVER)
    reader.read(FAST)
    pid = reader.pid
    assert pid is not None
    nvml.set("hang.nvmlDeviceGetTemperature", 1)
    failed: list[Exception] = []

    def read() -> None:
        try:
            reader.read(FAST)
        except SourceError as error:
            failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    wait_for(lambda: "S" in Path(f"/proc/{pid}/stat").read_text(), "the call is in flight")
    reader.close()
    thread.join(60)
    assert not thread.is_alive()
    assert failed
    wait_for(lambda: gone(pid), "the child is gone")
    with pytest.raises(SourceError, match="closed"):
        reader.read(FAST)


def test_machine_without_a_driver_has_no_data(
    make_reader: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(NoData, match="no NVIDIA driver"):
        make_reader().read(FAST)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('nonsense', flush=True); input(); input()", "something else than JSON"),
        ("import sys; sys.exit('out of memory')", "ended: out of memory"),
        ("while True: print('x' * 65536, end='', flush=True)", "no end"),
    ],
)
def test_child_that_misbehaves_is_one_clear_error(
    make_reader: Make, script: str, message: str
) -> None:
    reader = make_reader(command=lambda: [sys.executable, "-c", script])
    with pytest.raises(SourceError, match=message) as caught:
        reader.read(FAST)
    assert not isinstance(caught.value, Stuck)
