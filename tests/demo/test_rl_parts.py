"""The parts of the RL system by themselves: its device, checkpoints, calls, proxy and storage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.cli import main
from stagewatch.core.processes import Children
from stagewatch.gpu.recording import load
from stagewatch_lab.rl import checkpoint, controller_log, memory_limit, storage
from stagewatch_lab.rl.addresses import AddressBook
from stagewatch_lab.rl.controller_log import CLEANED_UP, STAGE_STARTS, STEP_DONE
from stagewatch_lab.rl.device import CAPACITY, Device, OutOfDeviceMemory
from stagewatch_lab.rl.gpu_readings import write
from stagewatch_lab.rl.memory_limit import MemoryLimit
from stagewatch_lab.rl.messages import Content, RemoteError, Server, call
from stagewatch_lab.rl.plan import GIB, MIB, Plan
from stagewatch_lab.rl.scenarios import SCENARIOS
from stagewatch_lab.rl.storage import MountNamespace, SmallTmpfs
from tests.running import Python
from tests.waiting import wait_for


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(job_id="7", directory=tmp_path, checkpoints=tmp_path / "checkpoints")


def test_every_scenario_is_listed_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--scenario", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    assert names[: 1 + len(SCENARIOS)] == ["sync-stall", *SCENARIOS]
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--scenario", "meteor"], "--scenario meteor: must be list or one of sync-stall, "),
        (["--scenario", "masked-oom", "--train", "1"], "--train 1: must be from 2 to 32"),
        (["--scenario", "masked-oom", "--pace", "0"], "--pace = '0': must be a number above zero"),
        (["--scenario", "masked-oom", "--pace", "0.5"], "--pace 0.5: must be from 1 to 120"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(
    flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *flags]) == 2
    assert complaint in capsys.readouterr().err


def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    assert Plan.load(plan.save()) == plan
    assert plan.seconds(3600) == 60


def test_a_device_is_shared_and_says_no_in_pytorchs_words(tmp_path: Path, python: Python) -> None:
    device = Device(tmp_path / "0")
    other = python(
        """
        import sys
        from pathlib import Path
        from stagewatch_lab.rl.device import Device
        from stagewatch_lab.rl.plan import GIB
        Device(Path(sys.argv[1])).take(75 * GIB)
        print("taken", flush=True)
        import time
        time.sleep(600)
        """,
        tmp_path / "0",
    )
    other.said("taken")
    device.take(4 * GIB)
    with pytest.raises(OutOfDeviceMemory, match=r"CUDA out of memory. Tried to allocate 2.00 GiB"):
        device.take(2 * GIB)
    assert device.state() == (79 * GIB, 0.0, [other.pid, os.getpid()])
    other.kill()
    wait_for(lambda: device.state()[0] == 4 * GIB, "what the dead held is free again")


def test_the_agent_can_replay_what_the_devices_say(tmp_path: Path) -> None:
    devices = tmp_path / "devices"
    devices.mkdir()
    device = Device(devices / "3")
    device.take(GIB)
    device.work(0.5)
    write(devices, tmp_path / "gpus.jsonl")
    (frame,) = load(tmp_path / "gpus.jsonl").frames
    (row,) = frame["tiers"]["fast"]["gpus"]
    assert (row["gpu"], row["values"]["gpu_memory_used_bytes"]) == ("3", GIB)
    assert row["values"]["gpu_memory_total_bytes"] == CAPACITY
    assert "no GPU" in frame["tiers"]["slow"]["gpus"][0]["info"]["model"]


def test_a_checkpoint_is_read_as_written_and_the_two_newest_are_kept(tmp_path: Path) -> None:
    content = os.urandom(3 * MIB)
    assert checkpoint.read_part(tmp_path, 0, 10) is None
    for step in range(3):
        checkpoint.save(tmp_path, step, content, 0)
    assert checkpoint.read_part(tmp_path, 2 * MIB, MIB) == content[2 * MIB :]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step_000001.pt", "step_000002.pt"]


@pytest.mark.parametrize("size", [0, 5, 100, 2 * MIB])
def test_a_checkpoint_that_was_cut_short_is_not_taken_for_whole(tmp_path: Path, size: int) -> None:
    file = checkpoint.save(tmp_path, 1, os.urandom(3 * MIB), 0)
    os.truncate(file, size)
    with pytest.raises(EOFError, match=f"Checkpoint corrupted: EOFError at position {size}"):
        checkpoint.read_part(tmp_path, 2 * MIB, MIB)


def test_the_controllers_log_is_read_as_it_is_written() -> None:
    lines = [
        STAGE_STARTS % ("rollout", 1),
        STEP_DONE % (1, 2.345),
        STAGE_STARTS % ("rollout", 2),
        STAGE_STARTS % ("update weights", 12),
    ]
    log = "".join(f"2026-01-01 00:00:00,000 INFO {line}\n" for line in lines)
    assert controller_log.started(log, "update weights", 12)
    assert not controller_log.started(log, "update weights", 1)
    assert controller_log.starts(log, "rollout") == 2
    assert controller_log.steps_done(log) == {1: 2.3}
    assert not controller_log.cleaned_up(log)
    assert controller_log.cleaned_up(log + CLEANED_UP)


def test_an_address_is_waited_for_and_the_nearer_one_is_taken(plan: Plan) -> None:
    book = AddressBook(plan.directory)
    found: list[tuple[str, int]] = []
    waiting = threading.Thread(target=lambda: found.append(book.wait("proxy", "target")))
    waiting.start()
    book.publish("target", ("127.0.0.1", 80))
    waiting.join()
    book.publish("proxy", ("127.0.0.1", 81))
    assert [*found, book.wait("proxy", "target")] == [("127.0.0.1", 80), ("127.0.0.1", 81)]
    book.remove("proxy")
    assert book.wait("proxy", "target") == ("127.0.0.1", 80)


@pytest.fixture
def server() -> Iterator[Server]:
    """Doubles numbers, in a thread."""

    def double(content: Content) -> Content:
        return {"twice": 2 * content["number"]}

    with Server(("127.0.0.1", 0), {"/double": double}) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_call_is_answered_and_an_exception_comes_back_by_name(server: Server) -> None:
    address = ("127.0.0.1", server.server_port)
    assert call(address, "double", {"number": 4}, 30) == {"twice": 8}
    with pytest.raises(RemoteError, match="HTTP 500 KeyError: 'number'"):
        call(address, "double", {}, 30)


def test_a_message_held_up_for_too_long_never_arrives(
    plan: Plan, server: Server, children: Children
) -> None:
    book = AddressBook(plan.directory)
    book.publish("target", ("127.0.0.1", server.server_port))
    control = plan.directory / "control"
    module = [sys.executable, "-m", "stagewatch_lab.rl.slow_proxy"]
    children.start([*module, str(plan.save()), "proxy", "target", str(control)])
    proxy = book.wait("proxy")
    assert call(proxy, "double", {"number": 4}, 30) == {"twice": 8}
    control.write_text(json.dumps({"delay": 60, "jitter": 0}))
    with pytest.raises(TimeoutError):
        call(proxy, "double", {"number": 4}, 0.2)
    control.unlink()
    assert call(proxy, "double", {"number": 5}, 30) == {"twice": 10}


@pytest.mark.skipif(bool(storage.missing()), reason=f"a small tmpfs: {storage.missing()}")
def test_a_small_tmpfs_fills_up_for_real_and_is_gone_with_its_namespace(tmp_path: Path) -> None:
    with Children() as children:
        namespace = MountNamespace(children)
        small = SmallTmpfs(namespace, tmp_path)
        small.fill(2 * MIB)
        write = ("head", "--bytes=8M", "/dev/zero")
        command = [*namespace.around, "sh", "-c", f"{' '.join(write)} > {tmp_path}/file"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "No space left on device" in done.stderr
        assert list(tmp_path.iterdir()) == [], "nobody else sees it"
        namespace.run("rm", f"{tmp_path}/file")
        small.empty()
        namespace.run("sh", "-c", f"{' '.join(write)} > {tmp_path}/file")
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.skipif(bool(memory_limit.missing()), reason=memory_limit.missing())
def test_a_memory_limit_ends_its_largest_process_and_is_removed(python: Python) -> None:
    limit = MemoryLimit(f"stagewatch-demo-test-{os.getpid()}", 48 * MIB)
    hog = python("held = [bytearray(b'x') * 2**20 for _ in range(200)]", prefix=limit.wrapper)
    wait_for(lambda: hog.process.poll() is not None, "the OOM killer strikes")
    assert hog.process.returncode == -9
    limit.close()
    assert not limit.directory.exists()
