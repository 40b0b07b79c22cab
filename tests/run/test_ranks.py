"""What is told of the ranks of a command that hang, while others move, leave or end."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.host.procfs import Procfs
from stagewatch.judgement.facts import RankFacts
from stagewatch.ranks.records import Life
from stagewatch.ranks.stacks import Stack
from stagewatch.run import bare, endings, ranks, stillness
from tests.fakes.open_files import OpenFiles
from tests.running import clean_environ
from tests.waiting import wait_for

RANK = """
import os, signal, sys, time
import stagewatch
stagewatch.init()
stagewatch.heartbeat(1)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGUSR1, lambda *_: stagewatch.heartbeat(1))
signal.signal(signal.SIGUSR2, lambda *_: stagewatch.heartbeat(2))
signal.signal(signal.SIGALRM, lambda *_: sys.exit())
signal.signal(signal.SIGTERM, lambda *_: (stagewatch.close(), time.sleep(600)))
def fail(*_):
    with stagewatch.stage("train", step=1):
        raise ValueError("no such reward")
def cleanup():
    time.sleep(600)
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGHUP, fail)
    import threading
    threading.excepthook = lambda *_: None
try:
    time.sleep(600)
except ValueError:
    cleanup()
"""


@dataclass(frozen=True)
class Told:
    """A verdict, of which only the sentence counts."""

    text: str
    wrong: bool = True
    early: bool = False
    job_id: str = "1"
    culprits: tuple[RankFacts, ...] = ()


class Watched:
    """Three ranks, and whoever follows them."""

    def __init__(self, record_dir: Path, children: Children) -> None:
        environ = clean_environ({"STAGEWATCH_DIR": str(record_dir), "STAGEWATCH_JOB_ID": "1"})
        self.processes = [
            children.start([sys.executable, "-c", RANK], environ={**environ, "RANK": str(number)})
            for number in range(3)
        ]
        self.lines: list[str] = []
        self.seen = ranks.Ranks(record_dir, Procfs(), tell=self.lines.append)

    def story(self, status: int = 256) -> str:
        """What would be told if the command ended now."""
        self.seen.look(os.getpid())
        return self.seen.story(status)

    def ends(self, text: str) -> Callable[[], bool]:
        """Whether the story ends like this."""
        return lambda: self.story().endswith(text)


@pytest.fixture(autouse=True)
def no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process stands for the command, its children do, and a reader of files would."""
    monkeypatch.setattr(bare, "GuardedFiles", OpenFiles)


@pytest.fixture
def watched(
    record_dir: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Watched]:
    """Ranks that count as quiet at once, and of which the judge only tells who they are."""
    monkeypatch.setattr(ranks, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(ranks, "AGAIN_SECONDS", 0)
    monkeypatch.setattr(ranks, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(ranks, "sentence", lambda verdict: verdict.text)
    monkeypatch.setattr(ranks, "marked_early", lambda verdicts, _: verdicts)
    monkeypatch.setattr(ranks, "judge", lambda facts: [_of_ranks(fact.rank for fact in facts)])
    watched = Watched(record_dir, children)
    with closing(watched.seen):
        yield watched
    if watched.seen._judge_thread.is_alive():  # as on a busy machine; it still uses the taker
        watched.seen._judge_thread.join()
        watched.seen._taker.close()
        watched.seen._records.close()


def _of_ranks(numbers: Iterable[int]) -> Told:
    return Told(str(sorted(numbers)))


def test_ranks_that_end_after_a_hang_do_not_hide_where_it_began(watched: Watched) -> None:
    """An interrupt ends ranks one after the other, while one still hangs."""
    wait_for(watched.ends(": [0, 1, 2]"), "a verdict on all three")
    watched.processes[0].kill()
    watched.processes[0].wait()
    assert watched.story().startswith("hung for ")
    story = watched.story(status=signal.SIGTERM)
    assert re.fullmatch(
        r"hung for .* s, ended after .* s by SIGTERM; .*s before the end: \[0, 1, 2\]", story
    )
    assert watched.lines == ["[0, 1, 2]"], "it was told once, while it lasted"


def test_ranks_that_wait_are_told_before_they_hang_and_again_once_they_do(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "judge", lambda facts: [Told("a wait", early=True)])
    wait_for(watched.ends(" before the end: a wait"), "a wait that may end by itself")
    assert watched.lines == ["a wait"]
    assert re.match(
        r"the command ended after .* s, the last .* s without progress; .* before", watched.story()
    )
    monkeypatch.setattr(ranks, "judge", lambda facts: [Told("a hang")])
    wait_for(watched.ends(": a hang"), "a hang")
    assert watched.story().startswith("hung for ")
    assert watched.lines == ["a wait", "a hang"]


def test_an_exception_after_a_wait_is_what_ends_a_command(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "judge", lambda facts: [Told("a wait", early=True)])
    wait_for(watched.ends(" before the end: a wait"), "a wait that may end by itself")
    watched.processes[0].send_signal(signal.SIGHUP)
    wait_for(lambda: "rank 0 failed first" in watched.story(), "the exception")
    assert watched.story().endswith("ValueError: no such reward, in train at step 1")


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 256), (signal.SIGTERM, 130 << 8)])
def test_after_an_interrupt_a_wait_that_may_end_by_itself_is_told_with_it(
    sent: int, status: int, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher may handle the interrupt, end its ranks otherwise, and exit as shells do."""
    monkeypatch.setattr(ranks, "judge", lambda facts: [Told("a wait", early=True)])
    wait_for(watched.ends(" before the end: a wait"), "a wait that may end by itself")
    for process in watched.processes:
        process.send_signal(sent)

    def stopped() -> bool:
        return watched.story(status).startswith("stopped by Ctrl-C at step 1, after ")

    wait_for(stopped, "the end of a rank")
    assert watched.story(status).endswith(" before the end: a wait")
    assert watched.seen.interrupted(status)


@pytest.mark.parametrize("status", [signal.SIGINT, 130 << 8])
def test_an_interrupt_that_ends_a_launcher_at_once_is_told_though_nobody_saw_its_ranks_end(
    status: int, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Init waits for the children of a launcher that is gone, and then they are no zombies."""
    monkeypatch.setattr(ranks, "judge", lambda facts: [])
    monkeypatch.setattr(endings, "_status", lambda *_: None)
    wait_for(lambda: watched.story() and len(watched.seen._last) == 3, "all three ranks")
    for process in watched.processes:
        process.send_signal(signal.SIGINT)
    for process in watched.processes:
        process.wait()
    assert watched.story(status).startswith("stopped by Ctrl-C at step 1, after ")
    assert watched.seen.interrupted(status)
    assert not watched.seen.interrupted(signal.SIGKILL)


def test_a_job_that_goes_on_after_a_hang_is_told_so(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for(watched.ends(": [0, 1, 2]"), "a verdict on all three")
    monkeypatch.setattr(ranks, "QUIET_SECONDS", 600)  # however late the next look comes
    watched.processes[0].send_signal(signal.SIGUSR2)
    wait_for(lambda: watched.story() and len(watched.lines) > 1, "a step")
    assert re.fullmatch(
        r"the job goes on, after .* s without progress; stagewatch\.expect\(.*", watched.lines[1]
    )


def test_a_job_that_goes_on_after_a_wait_is_not_worth_a_line(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "judge", lambda facts: [Told("a wait", early=True)])
    wait_for(watched.ends(" before the end: a wait"), "a wait that may end by itself")
    monkeypatch.setattr(ranks, "QUIET_SECONDS", 600)  # however late the next look comes
    watched.processes[0].send_signal(signal.SIGUSR2)
    wait_for(watched.ends("no rank has recorded why"), "a step")
    assert watched.lines == ["a wait"]


def all_mark(watched: Watched) -> None:
    """Let all ranks mark progress, as where an interrupt closes their stages."""
    marked = {record.progress for record in watched.seen._last.values()}
    for process in watched.processes:
        process.send_signal(signal.SIGUSR1)

    def moved() -> bool:
        watched.story()
        return not marked & {record.progress for record in watched.seen._last.values()}

    wait_for(moved, "marks of all three")


def test_after_an_interrupt_of_a_long_stage_it_is_told_who_was_in_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops a job that is silent has not got all of its progress."""
    calm = Told("rank 1 is in checkpoint, which may take long", wrong=False)
    monkeypatch.setattr(ranks, "judge", lambda facts: [calm])
    wait_for(lambda: watched.story() and watched.seen._excused, "a look")
    all_mark(watched)
    for process in watched.processes:
        process.send_signal(signal.SIGINT)
    wait_for(watched.ends(f" before the end: {calm.text}"), "the end of a rank")
    assert re.match(r"stopped by Ctrl-C at step 1, .*, the last .* without", watched.story())
    assert not watched.lines, "nothing was wrong"


@pytest.mark.parametrize(
    ("silent", "told"),
    [(600, "all 3 ranks made progress"), (0, "0 of 3 ranks made progress in the last minute")],
)
def test_after_an_interrupt_it_is_told_who_made_progress_before(
    silent: float, told: str, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "judge", lambda facts: [])
    monkeypatch.setattr(ranks, "AFRESH_SECONDS", silent)
    monkeypatch.setattr(ranks, "BEFORE_SECONDS", 0.0)
    wait_for(lambda: watched.story() and len(watched.seen._last) == 3, "all three ranks")
    for process in watched.processes:
        process.send_signal(signal.SIGINT)
    wait_for(watched.ends(told), "the end of a rank")


def test_marks_while_ranks_are_being_ended_do_not_hide_that_they_hung(watched: Watched) -> None:
    """An interrupt closes stages, which are marks of progress."""
    wait_for(watched.ends(": [0, 1, 2]"), "a verdict on all three")
    all_mark(watched)
    assert watched.story().startswith("hung for ")

    def steps() -> bool:  # again and again: half a second later it has hung anew
        watched.processes[0].send_signal(signal.SIGUSR2)
        return watched.ends("no rank has recorded why")()

    wait_for(steps, "a step, after which it has not hung", pause=0.05)


def test_a_rank_that_ends_during_a_look_does_not_hide_where_it_hung(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt closes its record, a while before its process ends."""
    wait_for(watched.ends(": [0, 1, 2]"), "a verdict on all three")
    looks: list[int] = []

    def interrupted(_: object, facts: list[RankFacts], *__: object) -> list[RankFacts]:
        watched.processes[1].send_signal(signal.SIGTERM)
        wait_for(lambda: len(living()) == 2, "one has closed its record")
        looks.append(1)
        return [fact for fact in facts if fact.rank != 1]

    def living() -> list[object]:
        records = watched.seen._directory.look().records
        return [record for record in records if record.life is Life.ALIVE]

    monkeypatch.setattr(ranks, "gather", interrupted)
    wait_for(lambda: watched.story() and looks, "another look")
    wait_for(lambda: not watched.seen._judging.is_set(), "its end")
    assert watched.story().endswith(": [0, 1, 2]")


def test_a_stack_that_cannot_be_taken_any_more_does_not_hide_where_it_hung(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for(watched.ends(": [0, 1, 2]"), "a verdict on all three")
    looks: list[int] = []

    def without_stacks(facts: list[RankFacts]) -> list[Told]:
        looks.append(1)
        return [Told("no stack", culprits=(replace(facts[0], stack=Stack()),))]

    monkeypatch.setattr(ranks, "judge", without_stacks)
    wait_for(lambda: watched.story() and len(looks) > 3, "further looks")
    assert watched.story().endswith(": [0, 1, 2]")


def test_ranks_that_have_left_the_command_are_judged_with_those_that_wait(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "judge", _on_those_that_left)
    wait_for(lambda: watched.story() and len(watched.seen._last) == 3, "all three ranks")
    watched.processes[1].send_signal(signal.SIGALRM)
    wait_for(watched.ends(": [1]"), "a verdict that knows who has left")


def _on_those_that_left(facts: Iterable[RankFacts]) -> list[Told]:
    left = [fact.rank for fact in facts if fact.left_seconds is not None]
    return [Told(str(left), wrong=bool(left))]


LEARNER = """
import os, subprocess, sys, threading, time
import stagewatch
stagewatch.init()
tool = subprocess.Popen(["sleep", "601"])
threading.Thread(target=tool.wait).start()
for step in range(3):
    with stagewatch.stage("train", step=step):
        pass
with stagewatch.stage("rollout") if "stage" in sys.argv else open(os.devnull):
    subprocess.run(["sleep", "600"])
"""


@pytest.mark.parametrize("place", ["between", "stage"])
def test_a_rank_between_two_steps_that_waits_for_its_own_child_for_ever_is_told(
    place: str, record_dir: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner and the worker of a queue: no other rank waits, and no stage is overdue."""
    environ = clean_environ({"STAGEWATCH_DIR": str(record_dir), "STAGEWATCH_JOB_ID": "1"})
    process = children.start([sys.executable, "-c", LEARNER, place], environ=environ)
    lines: list[str] = []
    with closing(ranks.Ranks(record_dir, Procfs(), tell=lines.append)) as seen:

        def stands_still() -> bool:
            seen.look(process.pid)
            return seen._stillness.lately() is not None and not seen._judging.is_set()

        def tools() -> list[int]:
            seen.look(process.pid)
            family = seen._families.look().members.get(ranks._COMMAND, ())
            return sorted(family)[1:] if seen._last else []

        wait_for(lambda: len(tools()) == 2, "its children")
        tool = tools()[0]
        os.kill(tool, signal.SIGKILL)
        wait_for(lambda: len(tools()) == 1, "the end of one")
        monkeypatch.setattr(ranks, "STILL_SECONDS", 1.0)
        monkeypatch.setattr(stillness, "STILL_SECONDS", 1.0)
        monkeypatch.setattr(ranks.causes, "ECHO_SECONDS", 0.0)  # less than that, as always
        wait_for(stands_still, "the stillness")
        wait_for(lambda: stands_still() and (bool(lines) or place == "stage"), "what is told")
        process.terminate()
        process.wait()
        seen.look(process.pid)
        story, endings = seen.story(signal.SIGTERM), seen._endings.seen()
    if place == "stage":
        assert not lines and "did anything" not in story
        return
    first, title, *rows = lines[0].splitlines()
    assert re.fullmatch(
        r"none of its 2 processes did anything for [\d.]+ s; they stand here:", first
    )
    assert title.split() == ["PID", "STATE", "WCHAN", "COMMAND", "AT"]
    assert "sleep 600" in rows[1]
    [killed] = [one for one in endings if one.pid == tool]
    # Before Linux 6.15 its parent may be faster than we are.
    assert (f"process {tool} (sleep): killed by SIGKILL (Killed)" in rows) is bool(killed.signal)
    assert "by SIGTERM; before, none of its 2 processes did anything for " in story
