"""What logs say of a job's death: whose first line it is, and what is an echo of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.cli import main
from stagewatch.core.errors import StagewatchError
from stagewatch.died.command import judged, of_accounting
from stagewatch.died.log import Log, of_lines, read
from tests.bench.bench_died import PARTS, cases, played

CASES = [case for part in sorted(PARTS.glob("*_part.toml")) for case in cases(part)]


def test_logs_of_public_issues_are_told_their_class_rank_and_node() -> None:
    for case in CASES:
        record = played(case)
        assert record["class"] == case.get("told", case["class"]), case["source"]
        for key in {"rank", "node", "came_last"} & case.keys():
            assert record[key] == case[key], case["source"]


def told(*lines: str) -> tuple[object, object]:
    """Class and first rank."""
    record = judged([of_lines("log", lines)])
    return record["class"], record.get("rank")


TIMED_OUT = (
    "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout"
)
RAISED = ("[rank3]: Traceback (most recent call last):", '[rank3]:   File "t.py", line 3, in f')


@pytest.mark.parametrize(
    ("prefix", "rank", "node"),
    [
        ("[rank3]: ", 3, ""),
        ("3: ", 3, ""),
        ("trainer-1  | [rank3]: ", 3, ""),
        ("[1,3]<stderr>: ", 3, ""),
        ("[3]<stderr>:", 3, ""),
        ("(RayWorker pid=77, ip=10.0.0.7) ", None, "10.0.0.7"),
        ("node-a7: [rank3]: ", 3, "node-a7"),
        ("2026-11-27T04:00:00.123Z [rank3]: ", 3, ""),
        ("", None, ""),
    ],
)
def test_a_line_has_its_rank_and_node_by_its_launchers_prefix(
    prefix: str, rank: int | None, node: str
) -> None:
    lines = ("Traceback (most recent call last):", '  File "t.py", line 3, in f', "queue.Empty")
    record = judged([of_lines("log", [prefix + line for line in lines])])
    assert (record["class"], record["rank"], record["node"]) == ("code", rank, node)
    assert record["line"] == "queue.Empty"


def test_a_timeout_in_the_end_does_not_hide_what_came_first() -> None:
    assert told(*RAISED, "[rank3]: ValueError: bad batch", TIMED_OUT) == ("code", 3)


def test_what_a_timeouts_clean_up_raises_does_not_hide_the_timeout() -> None:
    class_, rank = told(TIMED_OUT, *RAISED, "[rank3]: AttributeError: 'NoneType' has no 'destroy'")
    assert (class_, rank) == ("collective_timeout", 0)


def test_an_echo_that_is_printed_first_gives_way_to_its_cause() -> None:
    lost = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"
    assert told(lost, *RAISED, "[rank3]: ValueError: bad") == ("code", 3)
    assert told(lost) == ("network", 0)


def test_an_error_that_the_job_went_on_after_ended_nothing() -> None:
    steps = [f"step {step} loss 0.5" for step in range(5)]
    caught = ["RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB; halving the batch"]
    assert told(*caught, *steps, "KeyError: 'reward'") == ("code", None)
    assert told(*caught, *steps) == ("gpu_memory", None)  # nothing else tells of an end


def test_the_first_exception_of_a_chain_is_told_unless_a_later_one_says_more() -> None:
    then = "During handling of the above exception, another exception occurred:"
    trace = ("Traceback (most recent call last):", '  File "t.py", line 3, in f')
    killed = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."
    assert told(*trace, "queue.Empty", "", then, "", *trace, killed)[0] == "host_memory"
    full = "OSError: [Errno 28] No space left on device"
    assert told(*trace, full, "", then, "", *trace, "RuntimeError: bad zip")[0] == "storage"


def test_what_the_kernel_and_slurm_are_sure_of_explains_a_kill() -> None:
    lines = ["step 1", "bash: line 1: 77 Killed    python train.py"]
    assert judged([of_lines("log", lines)])["sure"] is False
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=540.0."
    record = judged([of_lines("log", [*lines, oom])])
    assert (record["class"], record["sure"]) == ("host_memory", True)
    record = judged([of_lines("log", lines)], [of_accounting("TIMEOUT", 0)])
    assert (record["class"], record["sure"]) == ("time_limit", True)


@pytest.mark.parametrize(
    ("state", "class_"),
    [
        ("OUT_OF_MEMORY", "host_memory"),
        ("TIMEOUT", "time_limit"),
        ("PREEMPTED", "preemption"),
        ("NODE_FAIL", "node"),
        ("CANCELLED", "user"),
        ("FAILED", "code"),
    ],
)
def test_accounting_alone_tells_the_class(state: str, class_: str) -> None:
    assert judged([], [of_accounting(state, 1)])["class"] == class_


def test_of_several_files_the_earliest_time_wins(tmp_path: Path) -> None:
    for rank, second, error in ((0, 9, "ConnectionError: x"), (3, 5, "ValueError: bad")):
        (tmp_path / f"rank{rank}.log").write_text(f"2026-11-27 04:00:0{second},000 {error}\n")
    logs = [read(tmp_path / name) for name in ("rank0.log", "rank3.log")]
    assert (judged(logs)["rank"], judged(logs)["place"]) == (3, "rank3.log:1")


def test_lines_with_and_without_a_time_keep_their_order() -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"
    assert told(f"[rank0]: {lost}", "[rank3]: 2026-11-27 04:00:05 ValueError: bad") == ("code", 3)


def test_torchrun_names_the_rank_and_node_of_a_failure_without_a_line() -> None:
    summary = ("Root Cause (first observed failure):", "[0]:", "  time      : 2026-11-27_04:00:00")
    rest = ("  host      : node-b", "  rank      : 5 (local_rank: 1)", "  exitcode  : -9 (pid: 7)")
    record = judged([of_lines("log", [*summary, *rest])])
    assert (record["class"], record["rank"], record["node"]) == ("host_memory", 5, "node-b")


def test_who_has_not_timed_out_is_who_the_others_waited_for() -> None:
    lines = [f"[rank{n}]: step 7" for n in range(4)] + ["ValueError"]
    waits = [
        TIMED_OUT.replace("[rank0]", f"[rank{n}]").replace("Rank 0", f"Rank {n}") for n in (0, 1, 3)
    ]
    record = judged(
        [
            of_lines(
                "log",
                [f"{line} error" for line in lines[:4]]
                + [f"{one}: WorkNCCL(SeqNum=7)" for one in waits],
            )
        ]
    )
    assert record["came_last"] == [2]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=4000))
def test_no_bytes_break_the_reader_or_reach_the_terminal(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    file = tmp_path_factory.mktemp("log") / "log"
    file.write_bytes(garbage + b"\nRuntimeError: \x1b]0;title\x07\xff\x00" + garbage)
    record = judged([read(file)])
    assert str(record["line"]).isprintable()


def test_of_a_huge_log_head_and_tail_are_read_in_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "huge.log"
    with file.open("wb") as log:
        log.truncate(10 << 30)
        log.seek(0, os.SEEK_END)
        log.write(b"\n[rank3]: ValueError: bad\n")
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20));"
        "from stagewatch.cli import main; sys.exit(main(['died', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("the program failed, rank 3 first\n"), done.stderr
    assert "9.9 GiB between head and tail were not read" in done.stdout


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "absent", "."):
        with pytest.raises(StagewatchError):
            read(tmp_path / name)


def test_a_flood_of_errors_takes_a_bounded_share_of_memory(tmp_path: Path) -> None:
    flood = [f"[rank{n % 100000}]: ValueError: {n}" for n in range(50_000)]
    log: Log = of_lines("log", flood)
    assert len(log.causes) <= 2048
    assert log.causes[0].rank == 0


RANKS = """
import os, socket, sys, time
rank, place = int(sys.argv[1]), sys.argv[2]
link = socket.socket(socket.AF_UNIX)
if rank == 3:
    link.bind(place + ".new")
    link.listen()
    os.rename(place + ".new", place)
    peers = [link.accept()[0] for _ in range(3)]
    raise ValueError("bad batch")
while not os.path.exists(place):
    time.sleep(0.01)
link.connect(place)
if not link.recv(1):
    raise RuntimeError("Connection closed by peer")
"""


def test_real_ranks_lose_their_connection_to_one_that_has_raised(tmp_path: Path) -> None:
    """The log is as `srun --label` has it; the peers' lines may stand before the cause's."""
    script, log = tmp_path / "ranks.py", tmp_path / "job.log"
    script.write_text(RANKS)
    shell = " & ".join(
        f"{{ {sys.executable} {script} {rank} {tmp_path}/socket 2>&1 | sed -u 's/^/{rank}: /'; }}"
        for rank in range(4)
    )
    with log.open("wb") as out:
        subprocess.run(["sh", "-c", f"{shell} & wait"], stdout=out, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "stagewatch", "died", str(log)],
        capture_output=True,
        text=True,
        check=False,
    )
    first, line, *_ = done.stdout.splitlines()
    assert first == "the program failed, rank 3 first"
    assert re.fullmatch(r"  job\.log:\d+: ValueError: bad batch", line)
    assert "3 more lines are echoes" in done.stdout


def test_the_record_is_json_with_slurms_accounting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sacct = tmp_path / "sacct"
    runs = (("PREEMPTED", "1796010000"), ("TIMEOUT", "1796011300"))
    times = ("1796000000", "1796000000", "1796000001")
    lines = (("540", "540", state, "0:0", *times, end, "gpu", "") for state, end in runs)
    output = "\n".join("\x1f".join(line) for line in lines)
    sacct.write_text(f"#!/bin/sh\nprintf '%s\\n' '{output}'\n")
    sacct.chmod(0o755)
    log = tmp_path / "slurm-540.out"
    log.write_text("step 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["died", "--json", "--job", "540", str(log)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["job"], record["class"], record["place"]) == ("540", "time_limit", "accounting")


def test_nothing_told_has_a_status_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("step 1\nall done\n")
    assert main(["died", str(log)]) == 3
    assert main(["died"]) == 2
