"""`stagewatch check` on a node: what its agent tells, and when things hang."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

from stagewatch.check.command import run
from stagewatch.check.facts import agent_users, gpus_on_bus
from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.fakes.nvml import FakeNvml
from tests.ranks.record_scene import as_root
from tests.records import SECOND_USER
from tests.running import Python
from tests.waiting import wait_for
from tests.web.certificates import Authority

OURS = ("--skip", "clock,agent")  # not the business of the machine that runs the tests


def check(*arguments: str, port: int = 1, **environ: str) -> subprocess.CompletedProcess[str]:
    return check_as_is("--agent", f"127.0.0.1:{port}", *arguments, **environ)


def check_as_is(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stagewatch.check.command", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=120,
    )


def slow(*arguments: str, port: int = 1) -> subprocess.CompletedProcess[str]:
    """With more time than a busy test machine can need."""
    return check(*arguments, "--timeout", "60s", port=port)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--skip", "everything"], "--skip = 'everything'"),
        (["--gpus", "many"], "--gpus = 'many'"),
        (["--config", "/nowhere.toml"], "--config /nowhere.toml"),
        (["--nonsense"], "unrecognized arguments"),
    ],
)
def test_bad_options_never_drain_a_node(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 3
    assert message in capsys.readouterr().err


def test_missing_mount_drains(tmp_path: Path) -> None:
    done = slow(*OURS, "--mounts", f"/,{tmp_path}")
    assert (done.stdout, done.returncode) == (f"drain: {tmp_path} is not mounted\n", 2)
    assert slow(*OURS, "--mounts", "/").returncode == 0


def test_mount_that_hangs_drains_in_time(tmp_path: Path) -> None:
    (stat := tmp_path / "stat").write_text("#!/bin/sh\nexec sleep 600\n")
    stat.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = check("--mounts", "/", "--skip", "clock,agent,driver,gpu_count", PATH=path)
    assert done.stdout == "drain: / does not answer\n"


@pytest.fixture
def agent(nvml: FakeNvml, tmp_path: Path) -> Iterator[int]:
    """The port of a node agent on the fake driver."""
    port = free_port()
    with Children() as children:
        children.start(
            [sys.executable, "-m", "stagewatch.cli", "node", "--listen", f"127.0.0.1:{port}",
             "--collector.gpu.timeout", "500ms",
             "--collector.gpu.release-file", str(tmp_path / "release"),
             "--no-collector.kmsg.enabled"],  # this machine's own may be unreadable
            log=tmp_path / "agent.log",
        )  # fmt: skip
        yield port


def test_an_agent_that_cannot_read_the_kernel_log_is_a_warning(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    port = free_port()
    with Children() as children:
        children.start(
            [sys.executable, "-m", "stagewatch.cli", "node", "--listen", f"127.0.0.1:{port}",
             "--collector.kmsg.path", "/nope",
             "--collector.kmsg.state-file", str(tmp_path / "kmsg.json")],
            log=tmp_path / "agent.log",
        )  # fmt: skip
        done = wait_for(
            lambda: (
                found
                if (found := slow("--skip", "clock", port=port)).stdout.startswith(
                    "warn: the kernel log"
                )
                else None
            ),
            "the check tells of it",
        )
    assert done.returncode == 1
    assert done.stdout.startswith("warn: the kernel log cannot be read")


def told(port: int, verdict: str, *arguments: str) -> int:
    """Wait for a verdict; its exit status."""
    arguments = ("--skip", "clock", *arguments)
    done = wait_for(
        lambda: done if (done := slow(*arguments, port=port)).stdout.startswith(verdict) else None,
        f"the verdict is {verdict}",
    )
    return done.returncode


def test_healthy_node_is_fit_and_a_lost_gpu_drains_with_one_line(
    agent: int, nvml: FakeNvml
) -> None:
    assert told(agent, "ok: 8 GPUs\n", "--gpus", "8", "--gpu-type", "h200") == 0
    nvml.set("gpu.3.lost", 1)
    assert told(agent, "drain: the driver has lost GPU 3\n") == 2


IMPOSTOR = r"""
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
if len(sys.argv) > 1:
    os.setgroups([])
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
    server.close()
    server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
page = b'stagewatch_collector_stuck_seconds{collector="gpu"} 99\n'
while True:
    link, _ = server.accept()
    try:
        if len(sys.argv) > 1:
            link.sendall(head + page.ljust(1000000, b"\n"))
            print("asked:", link.recv(4096), flush=True)
        else:
            for byte in head + page:
                link.send(bytes([byte]))
                time.sleep(0.3)
    except OSError:
        pass
    link.close()
"""
"""Serves a page as another user, or as the same a byte now and then."""


@as_root
def test_who_has_taken_the_port_of_an_agent_that_is_down_is_not_believed(
    python: Python, tmp_path: Path
) -> None:
    impostor = python(IMPOSTOR, SECOND_USER)
    impostor.said("\n")
    (password := tmp_path / "password").write_text("slurm:s3cret\n")
    port = int(impostor.output().split()[0])
    done = slow("--skip", "clock", "--basic-auth-file", str(password), port=port)
    assert (done.stdout, done.returncode) == (
        f"warn: port {port} is held by user {SECOND_USER}, and not by the node agent's: nothing of "
        "what answers there is believed\n",
        1,
    )
    assert "Authorization" not in impostor.output(), "nor is he told the password"
    done = slow("--skip", "clock", "--agent-user", str(SECOND_USER), port=port)
    assert done.stdout.startswith("drain: the NVIDIA driver has not answered for 99 s")
    done = slow("--agent-user", "nobody-of-that-name", port=port)
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_the_agents_user_is_whom_root_gave_the_directory_of_records(
    tmp_path: Path, mode: int
) -> None:
    (records := tmp_path / "ranks").mkdir()
    if os.geteuid() != 0:
        pytest.skip("giving a directory away needs root")
    os.chown(records, SECOND_USER, SECOND_USER)
    tmp_path.chmod(mode)  # where others may write, one of them may have made it
    expected = {0, SECOND_USER} if mode == 0o755 else {0}
    assert agent_users("", records) == expected


@pytest.fixture
def secured(nvml: FakeNvml, tmp_path: Path, authority: Authority) -> Iterator[int]:
    """The port of a node agent behind TLS and a password."""
    server = authority.issue()
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(5)).decode()
    (tmp_path / "web.yml").write_text(
        f"tls_server_config:\n  cert_file: {server.certificate}\n  key_file: {server.key}\n"
        f"basic_auth_users:\n  slurm: {hashed}\n"
    )
    (tmp_path / "password").write_text("slurm:s3cret\n")
    port = free_port()
    with Children() as children:
        children.start(
            [sys.executable, "-m", "stagewatch.cli", "node", "--listen", f"127.0.0.1:{port}",
             "--web-config", str(tmp_path / "web.yml"),
             "--collector.gpu.timeout", "500ms", "--no-collector.kmsg.enabled"],
            log=tmp_path / "agent.log",
        )  # fmt: skip
        yield port


def test_an_agent_behind_tls_and_a_password_is_asked_like_any(
    secured: int, nvml: FakeNvml, authority: Authority, tmp_path: Path
) -> None:
    """Also of what it alone knows: how long the driver has been hanging."""
    file = tmp_path / "stagewatch.toml"
    file.write_text(
        f'[check]\nagent = "https://localhost:{secured}"\nca_file = "{authority.file}"\n'
        f'basic_auth_file = "{tmp_path / "password"}"\nskip = ["clock"]\ntimeout = "60s"\n'
    )

    def verdict() -> str:
        return check_as_is("--config", str(file), "--driver-stuck", "1s").stdout

    wait_for(lambda: verdict() == "ok: 8 GPUs\n", "it is healthy")
    nvml.set("hang.nvmlDeviceGetUtilizationRates", 1)
    wait_for(
        lambda: verdict().startswith("drain: the NVIDIA driver has not answered for "),
        "it is to be drained",
    )


def test_gpus_on_the_bus_are_counted(tmp_path: Path) -> None:
    for number, (vendor, kind) in enumerate(
        [("0x10de", "0x030200"), ("0x10de", "0x030000"), ("0x10de", "0x040300"),
         ("0x10de", "0x068000"), ("0x8086", "0x030000")]
    ):  # fmt: skip
        device = tmp_path / f"bus/pci/devices/0000:{number:02x}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    assert gpus_on_bus(tmp_path) == 2
    assert gpus_on_bus(tmp_path / "nothing") == 0


def test_an_agent_that_sends_a_byte_now_and_then_does_not_hold_up_the_check(python: Python) -> None:
    """Each read comes back in time; what counts is all of them together."""
    impostor = python(IMPOSTOR)
    impostor.said("\n")
    done = check("--skip", "clock", port=int(impostor.output().split()[0]))
    assert done.stdout == "warn: the node agent does not answer\n"
