"""Python stacks of real processes by the real py-spy, and of those that do their worst."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.ranks import stacks
from stagewatch.ranks.model import Rank
from stagewatch.ranks.stacks import MAX_FRAME, Frame, Stack, StackTaker, Take, stack, users_own
from tests.running import Python, Script
from tests.waiting import wait_for

STUCK = """
import sys, time

def length_reward():
    time.sleep(600)

def wait_for_peers():
    time.sleep(600)

def main(where):
    print("ready", flush=True)
    where()

main(length_reward if "reward" in sys.argv else wait_for_peers)
"""


@pytest.fixture
def taker() -> Iterator[StackTaker]:
    real = StackTaker()
    assert real.installed, "the extra `evidence` belongs to `dev`"
    yield real
    real.close()


def rank(pid: int, start: int | None = None) -> Rank:
    return Rank("7", "train", 0, pid, start_ticks=start)


def ready(script: Script) -> Script:
    script.said("ready")
    return script


def both(taker: StackTaker, *scripts: Script) -> list[Stack]:
    """The stacks of processes, out of two looks."""
    ranks = [rank(script.pid) for script in scripts]
    first, second = taker.take(ranks), taker.take(ranks)
    return [stack(first[one.pid], second[one.pid]) for one in ranks]


def test_the_frame_of_the_users_code_has_file_line_and_function(
    taker: StackTaker, python: Python
) -> None:
    program = STUCK.replace('if "reward" in sys.argv', "if True")
    (found,) = both(taker, ready(python(program)))
    line = STUCK.splitlines().index("def length_reward():") + 2
    assert found.frame.endswith(f":{line} in length_reward")
    assert found.still
    assert found.problem == ""


def test_ranks_in_the_same_place_are_of_one_group_and_another_is_not(
    taker: StackTaker, children: Children, tmp_path: Path
) -> None:
    file, log = tmp_path / "run.py", tmp_path / "log"
    file.write_text(STUCK)
    pids = [
        children.start([sys.executable, str(file), *where], log=log).pid
        for where in ([], [], ["reward"])
    ]
    wait_for(lambda: log.exists() and log.read_text().count("ready") == 3, "all are stuck")
    takes = taker.take([rank(pid) for pid in pids])
    wait, again, other = (stack(takes[pid], takes[pid]).group for pid in pids)
    assert wait == again != other
    assert len(wait) == 8


def test_a_process_that_ends_meanwhile_costs_a_line(taker: StackTaker, python: Python) -> None:
    script, alive = ready(python(STUCK)), ready(python(STUCK))
    script.kill()
    takes = taker.take([rank(script.pid), rank(alive.pid)])
    assert takes[script.pid].problem == "it has ended"
    assert takes[alive.pid].threads


def program(directory: Path, body: str) -> StackTaker:
    """A taker whose py-spy is another program."""
    path = directory / "py-spy"
    path.write_text(f"#!{sys.executable} -S\n{body}\n")
    path.chmod(0o755)
    return StackTaker(program=str(path))


ENDLESS = '[{"thread_id": 1, "frames": [{"name": "f", "filename": "/x/rank.py", "line": 1e999}]}]'
THREAD = {"thread_id": 1, "frames": [{"name": "f", "filename": "/x/rank.py", "line": 7}]}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("import time; time.sleep(600)", "did not answer within 5 s"),
        ("while True: print('x' * 4096)", "wrote without end"),
        ("x = bytearray(2 << 30); print('[]')", "MemoryError"),
        ("print('no JSON')", "no JSON that can be read"),
        (f"print({ENDLESS!r})", "no JSON that can be read"),
        (
            "import sys; sys.exit('Error: Permission Denied: Try running again with sudo')",
            "not permitted: run as",
        ),
        (
            "import sys; sys.exit('Error: Failed to find\\nPython version')",
            "py-spy: Error: Failed to find Python",
        ),
    ],
)
def test_what_stands_in_the_way_is_said(tmp_path: Path, body: str, problem: str) -> None:
    taker = program(tmp_path, body)
    told = taker.take([rank(os.getpid())])[os.getpid()]
    taker.close()
    assert problem in told.problem
    assert told.problem.isprintable()
    assert stack(Take(), told) == Stack(problem=told.problem)


def test_py_spy_runs_with_the_least_priority_and_little_memory(tmp_path: Path) -> None:
    body = f"""
import json, os, resource
limits = [resource.getrlimit(one)[0] for one in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
print(json.dumps([{THREAD!r} | {{"thread_name": str([os.nice(0), *limits])}}]))
"""
    taker = program(tmp_path, body)
    told = taker.take([rank(os.getpid())])[os.getpid()]
    taker.close()
    assert json.loads(told.threads[0][0]) == [19, 384 << 20, 5]


def test_a_missing_program_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "py_spy", lambda: None)
    taker = StackTaker()
    assert not taker.installed
    told = taker.take([rank(os.getpid())])[os.getpid()]
    assert "pip install 'stagewatch[evidence]'" in told.problem


SITE = "/opt/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/mnt/lib/rewards/length.py", True),
        ("<string>", True),
        ("/usr/lib/python3.11/threading.py", False),
        ("<frozen importlib._bootstrap>", False),
        (f"{SITE}/torch/distributed/distributed_c10d.py", False),
        ("/src/stagewatch/client/_recorder.py", False),
        ("/tmp/torchinductor_me/ab/cab.py", False),
    ],
)
def test_libraries_are_not_the_users_own_code(file: str, own: bool) -> None:
    outer = Frame("main", "/home/me/run.py", 3)
    inner = Frame("f", file, 9)
    assert users_own([inner, outer]) == (inner if own else outer)


def take(*frames: tuple[str, int]) -> Take:
    """A look at one thread, the innermost frame first."""
    return Take((("MainThread", tuple(Frame(name, "/x/run.py", line) for name, line in frames)),))


def test_the_frames_of_the_client_are_not_shown() -> None:
    client = Frame("wrapped", "/x/site-packages/stagewatch/client/hooks/torch.py", 131)
    outer, inner = Frame("main", "/x/run.py", 3), Frame("step", "/x/run.py", 9)
    found = stack(Take((("MainThread", (inner, client, outer)),)))
    assert found.threads == (("MainThread", ("step (run.py:9)", "main (run.py:3)")),)


def test_what_both_looks_share_counts_of_a_rank_that_moves() -> None:
    moving = stack(
        take(("read", 5), ("reward", 25), ("main", 9)),
        take(("parse", 7), ("reward", 25), ("main", 9)),
    )
    assert not moving.still
    assert moving.frame == "run.py:25 in reward"
    assert (
        moving.group
        == stack(take(("reward", 25), ("main", 9)), take(("reward", 25), ("main", 9))).group
    )


def test_what_most_looks_saw_counts_of_a_rank_that_was_elsewhere_once() -> None:
    here = take(("wait", 5), ("main", 9))
    elsewhere = take(("collect", 7), ("reward", 25), ("main", 9))
    once = stack(here, elsewhere, here, here)
    assert (once.group, once.frame, once.still) == (
        stack(here, here).group,
        "run.py:5 in wait",
        False,
    )
    assert stack(here, here, here, here).still


def test_a_rank_that_goes_round_in_a_loop_stays_where_it_is() -> None:
    """`while not flag:` has two lines, and looks see either."""
    line, other = take(("poll", 367), ("main", 9)), take(("poll", 366), ("main", 9))
    looping = stack(line, line, other, line)
    assert looping.still
    assert looping == stack(line, line, line, line)
    assert stack(line, other, line, other).still
    assert not stack(line, other).still
    assert not stack(line, other, take(("poll", 365), ("main", 9))).still


def test_names_that_lie_stay_on_their_line(taker: StackTaker, python: Python) -> None:
    evil = 'x"} 1\nrl_rank_up{job_id="7"} 0\x1b[31m' + "y" * 500
    program = f"""
import time
def f():
    print("ready", flush=True)
    time.sleep(600)
f.__code__ = f.__code__.replace(co_name={evil!r}, co_filename="/a\\nb/c\\nd.py")
f()
"""
    (found,) = both(taker, ready(python(program)))
    assert found.frame.isprintable()
    assert len(found.frame) <= MAX_FRAME
    assert all(line.isprintable() for _, frames in found.threads for line in frames)
