"""`stagewatch run` in front of a command: what passes through, and what is said in the end."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.client._flight_recorder import PIPE
from stagewatch.core.processes import Children
from stagewatch.run.causes import oom_kills
from stagewatch.run.command import LOADER, RAS, RAS_PORTS, _teller, flight_recorder, ras
from tests.running import clean_environ
from tests.waiting import wait_for

RUN = [sys.executable, "-m", "stagewatch.cli", "run"]


def run(
    *command: str, environ: dict[str, str] | None = None, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The command under watch, to its end."""
    return subprocess.run(
        [*RUN, *options, "--", *command],
        env=clean_environ(environ or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", ["TERM", "SEGV"])
def test_a_command_that_a_signal_ends_ends_us_alike(name: str) -> None:
    done = run("sh", "-c", f"ulimit -c 0; kill -{name} $$")
    assert done.returncode == -getattr(signal, f"SIG{name}")


def test_a_command_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert run(str(tmp_path / "absent")).returncode == 127
    done = run(str(tmp_path / "data"))
    assert done.returncode == 126
    assert done.stderr == f"stagewatch: {tmp_path / 'data'}: Permission denied\n"


def test_input_output_and_arguments_pass_through() -> None:
    done = subprocess.run(
        [*RUN, "--", "sh", "-c", 'cat; echo "$1" --job >&2', "sh", "--flag"],
        env=clean_environ({}),
        input="text",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "text"
    assert done.stderr.splitlines()[0] == "--flag --job"


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_a_signal_reaches_the_command_once(name: str, tmp_path: Path, children: Children) -> None:
    log = tmp_path / "log"
    script = f"""
import signal, sys, time
count = 0
def handler(*_):
    global count
    count += 1
signal.signal(signal.SIG{name}, handler)
print("ready", flush=True)
while not count:
    time.sleep(0.01)
time.sleep(0.3)
print("got", count, flush=True)
sys.exit(5)
"""
    process = children.start(
        [*RUN, "--", sys.executable, "-c", script], log=log, environ=clean_environ({})
    )
    wait_for(lambda: "ready" in log.read_text(), "the command")
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert process.wait() == 5
    assert "got 1\n" in log.read_text()


def test_the_command_does_not_outlive_a_killed_run(tmp_path: Path, children: Children) -> None:
    log = tmp_path / "log"
    process = children.start(
        [*RUN, "--", "sh", "-c", "echo pid $$; exec sleep 600"], log=log, environ=clean_environ({})
    )
    wait_for(lambda: "pid" in log.read_text(), "the command")
    pid = log.read_text().split()[1]
    process.kill()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the command")


def test_in_a_terminal_the_keys_reach_the_command_alone() -> None:
    """^Z stops and `fg` continues as without us; ^C comes once."""
    script = (
        "import signal, time\n"
        "signal.signal(signal.SIGCONT, lambda *_: print('continued', flush=True))\n"
        "print('ready', flush=True)\n"
        "try: time.sleep(600)\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [*RUN, "--", sys.executable, "-c", script], clean_environ({}))
    seen = b""

    def has(text: bytes) -> bool:
        nonlocal seen
        os.set_blocking(terminal, False)
        with contextlib.suppress(OSError):  # nothing yet, or no end to read from any more
            seen += os.read(terminal, 4096)
        return text in seen

    try:
        wait_for(lambda: has(b"ready"), "the command")
        os.write(terminal, b"\x1a")  # ^Z
        wait_for(lambda: os.waitpid(pid, os.WNOHANG | os.WUNTRACED)[0] == pid, "run itself to stop")
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: has(b"continued"), "the command to go on")
        os.write(terminal, b"\x03")  # ^C
        wait_for(lambda: has(b"interrupted"), "the interrupt")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)


LAUNCHER = """
import os, signal, subprocess, sys, time
import stagewatch
if len(sys.argv) > 1:
    stagewatch.init("train", rank=int(sys.argv[1]), world_size=2)
    for step in range(10_000):
        with stagewatch.stage("train", step=step):
            if step == 40:
                open(f"{__file__}.{sys.argv[1]}", "w").close()
            time.sleep(0.05)
ranks = [subprocess.Popen([sys.executable, __file__, str(n)]) for n in range(2)]
try:
    ranks[0].wait()
except KeyboardInterrupt:
    sys.exit(any([rank.wait() for rank in ranks]))
"""


def test_after_control_c_a_run_that_went_on_is_told_so(tmp_path: Path, record_dir: Path) -> None:
    """Launchers exit with a status of their own, which shells do not take for an interrupt."""
    script = tmp_path / "launcher.py"
    script.write_text(LAUNCHER)
    pid, terminal = pty.fork()
    if pid == 0:
        environ = clean_environ({"STAGEWATCH_DIR": str(record_dir)})
        os.execve(sys.executable, [*RUN, "--", sys.executable, str(script)], environ)
    seen = b""

    def read() -> bytes:
        nonlocal seen
        os.set_blocking(terminal, False)
        with contextlib.suppress(OSError):
            seen += os.read(terminal, 1 << 16)
        return seen

    ended = 0

    def end() -> bool:
        nonlocal pid, ended
        read()
        done, status = os.waitpid(pid, os.WNOHANG)
        pid, ended = (0, status) if done else (pid, 0)
        return bool(done)

    try:
        forty = [Path(f"{script}.{number}") for number in range(2)]
        wait_for(lambda: read() is not None and all(map(Path.exists, forty)), "forty steps")
        os.write(terminal, b"\x03")
        wait_for(end, "the end")
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        last = read().decode().splitlines()[-1]
        os.close(terminal)
    assert os.waitstatus_to_exitcode(ended) == -signal.SIGINT, "130 to a shell"
    story = r"stagewatch: stopped by Ctrl-C at step \d+, after .*; all 2 ranks made progress"
    assert re.fullmatch(story, last)


def test_an_interrupt_of_a_command_without_a_record_is_told(record_dir: Path) -> None:
    """Its launcher handles it, and exits as shells do; its own children end by another signal."""
    script = "sleep 600 & sleep 1.5; kill $!; wait; exit 130"
    done = run("sh", "-c", script, environ={"STAGEWATCH_DIR": str(record_dir)})
    assert done.returncode == 130
    story, *killed = done.stderr.splitlines()
    told = r"stagewatch: no rank kept a record; stopped by Ctrl-C, after [\d.]+ s"
    assert re.fullmatch(told, story)
    assert all(line.endswith("(sleep): killed by SIGTERM (Terminated)") for line in killed)


RANKS = """
import os, subprocess, sys, time
import stagewatch
def others_failed():
    "As gloo has it, when a peer is gone."
    while not os.path.exists("gone"):
        time.sleep(0.05)
    raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.1]:5123")
def rank(number):
    stagewatch.init("train", rank=number)
    with stagewatch.stage("reward", step=1):
        time.sleep(2)
        if number == int(sys.argv[1]):
            exec(sys.argv[2])
        if sys.argv[2] != "pass":
            others_failed()
    time.sleep(2)
if len(sys.argv) > 3:
    rank(int(sys.argv[3]))
else:
    ranks = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], str(n)]) for n in range(3)]
    if sys.argv[2] != "pass":
        ranks[int(sys.argv[1])].wait()
        open("gone", "w").close()
    sys.exit(any([process.wait() for process in ranks]))
"""
LEAVES = """
class Group:
    def __del__(self, os=os, sleep=time.sleep):
        os.close(os.open("gone", os.O_CREAT))
        sleep(1)
globals()["group"] = Group()
sys.exit(3)
"""
"""Peers lose the connection a while before its process ends, as with PyTorch."""


@pytest.mark.parametrize(
    ("does", "story"),
    [
        ("pass", r"all 3 ranks ended well after .*"),
        ("raise ValueError('no reward')", r"rank 1 failed .*: ValueError: no reward, in reward .*"),
        (
            "os.kill(os.getpid(), 9)",
            r"rank 1 \(pid \d+\) failed first, .*: killed by SIGKILL .* in reward at step 1; "
            r"(a user or a program sent it: the kernel has killed nothing|the kernel has killed) "
            r"for want of memory.*; after that, 2 ranks failed",
        ),
        (
            LEAVES,
            r"rank 1 ended first, .*: SystemExit: 3, in reward at step 1; "
            r"after that, 2 ranks failed",
        ),
        (
            "os._exit(3)",
            r"rank 1 \(pid \d+\) failed first, .*: it exited with status 3 in reward at step 1; "
            r"after that, 2 ranks failed",
        ),
    ],
    ids=["well", "exception", "kill", "leave", "exit"],
)
def test_the_end_says_which_rank_failed_first_and_how(
    does: str, story: str, tmp_path: Path, record_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exceptions that others raise for the lost connection hide nothing, however early."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    environ = {"STAGEWATCH_DIR": str(record_dir)}
    before = oom_kills()
    done = run("sh", "-c", f"ulimit -c 0; {shlex.join(command(script, does))}", environ=environ)
    assert done.returncode == (does != "pass")
    if oom_kills() != before:  # of another test beside this one
        story = f"(out of host memory: )?{story}"
    assert re.fullmatch(f"stagewatch: {story}", done.stderr.splitlines()[-1])


OUT_OF_MEMORY = """
with open("{}/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
held = bytearray(1 << 30)
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group that may use 128 MiB."""
    group = Path(f"/sys/fs/cgroup/memory/stagewatch-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(128 << 20))
    except OSError as error:
        pytest.skip(f"no cgroup of version 1 with a memory limit can be made here: {error}")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text(), "the end of its processes")
    group.rmdir()


def test_a_rank_that_the_kernel_kills_for_memory_is_told_so(
    tmp_path: Path, record_dir: Path, small_group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    does = OUT_OF_MEMORY.format(small_group)
    done = run(*command(script, does), environ={"STAGEWATCH_DIR": str(record_dir)})
    story = r"out of host memory: rank 1 \(pid \d+\) failed first, after .*"
    assert re.fullmatch(f"stagewatch: {story}", done.stderr.splitlines()[-1])


def test_the_log_tells_of_a_command_that_kept_no_record(tmp_path: Path, record_dir: Path) -> None:
    """What stood in the file before is of another run."""
    log = tmp_path / "slurm-540.out"
    log.write_text("KeyboardInterrupt\n")
    script = "echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1"
    with log.open("a") as file:
        subprocess.run(
            [*RUN, "--", "sh", "-c", script],
            env=clean_environ({"STAGEWATCH_DIR": str(record_dir)}),
            stderr=file,
            timeout=120,
            check=False,
        )
    last = log.read_text().splitlines()[-1]
    assert last == "  out of GPU memory: torch.OutOfMemoryError: CUDA out of memory."


def command(script: Path, does: str) -> list[str]:
    """Three ranks, of which rank 1 does something."""
    return [sys.executable, str(script), "1", does]


def test_the_environment_of_the_command() -> None:
    show = [sys.executable, "-S", "-c", "import os; print(dict(os.environ))"]
    environ = run(*show, environ={"PYTHONPATH": os.environ.get("PYTHONPATH", "/mine")}).stdout
    assert f"'PYTHONPATH': '{LOADER}:" in environ
    assert "'STAGEWATCH_RUN_ID': 'run-" in environ
    assert "STAGEWATCH_JOB_ID" not in environ
    assert "'STAGEWATCH_JOB_ID': 'mine'" in run(*show, options=("--job", "mine")).stdout


def test_the_flight_recorder_can_be_asked_unless_the_user_says_how() -> None:
    added = flight_recorder({})
    assert added.keys() == {PIPE}
    assert re.fullmatch("/tmp/stagewatch-fr-[0-9a-f]{16}-", added[PIPE])
    assert flight_recorder({})[PIPE] != added[PIPE]
    assert flight_recorder({PIPE: ""}) == {}


def test_ras_has_a_port_of_its_own_unless_the_user_says_how() -> None:
    host, _, port = ras({})[RAS].partition(":")
    assert (host, int(port) in RAS_PORTS) == ("localhost", True)
    assert ras({RAS: ""}) == ras({"NCCL_RAS_ENABLE": "0"}) == {}
    show = f"import os; print(os.environ[{RAS!r}])"
    assert run(sys.executable, "-S", "-c", show).stdout.startswith("localhost:2")


def test_pipes_that_killed_ranks_have_left_are_removed() -> None:
    leave = f'import os; os.mkfifo(os.environ["{PIPE}"] + "0.pipe"); print(os.environ["{PIPE}"])'
    prefix = run(sys.executable, "-S", "-c", leave).stdout.strip()
    assert prefix.startswith("/tmp/stagewatch-fr-")
    assert not Path(f"{prefix}0.pipe").exists()


def test_where_to_see_more_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    tell = _teller()
    for line in ("rank 2 has been parked", "rank 2 holds up the job", "none of its processes\n1"):
        tell(line)
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("stagewatch: rank 2 has been parked.  stagewatch inspect --evidence")
    assert others == [
        "stagewatch: rank 2 holds up the job",
        "stagewatch: none of its processes",
        "1",
    ]
