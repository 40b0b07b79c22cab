"""`stagewatch top` with real ranks and real keys."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.inspect import command
from stagewatch.inspect.command import LookOptions
from stagewatch.ranks.stacks import py_spy
from stagewatch.top.node import NodeSource
from stagewatch.top.rows import Row, Source, View
from tests.report.filled import Past, filled_prometheus
from tests.running import Python, clean_environ
from tests.waiting import wait_for

pytest.importorskip("textual", reason="needs textual, of the extra `top`")

from rich.cells import cell_len
from textual.pilot import Pilot
from textual.widgets import Static

from stagewatch.top.screen import Screen, Stacks

HOSTILE = "5[red]4\x1b[2J0\u202e"
JOB = "5[red]4?[2J0?"  # as a record keeps that name
RANK = """
import os, time, stagewatch
stagewatch.init("train", job_id=os.environ["JOB"])
with stagewatch.stage("rollout", step=3):
    pass
def wait_for_weights():
    with stagewatch.stage("weights_update", step=4):
        print("there", flush=True)
        time.sleep(1000)
wait_for_weights()
"""


@pytest.fixture
def ranks(python: Python, record_dir: Path) -> Path:
    """The record directory of three ranks in weights_update, of a job of a hostile name."""
    environ = {"STAGEWATCH_DIR": str(record_dir), "JOB": HOSTILE.replace("\x1b", "?")}
    started = [python(RANK, **environ, RANK=str(number)) for number in range(3)]
    for rank in started:
        rank.said("there")
    return record_dir


def test_jobs_that_are_over_do_not_stand_beside_one_that_runs(
    ranks: Path, python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GRACE_SECONDS", 0.0)
    past = python(RANK, STAGEWATCH_DIR=str(ranks), JOB="past", RANK="0")
    past.said("there")
    past.kill()
    options = LookOptions(incident_dir=ranks / "none", record_dir=ranks)

    def jobs(job: str) -> set[str]:
        source = NodeSource(options, job)
        try:
            return {row.job_id for row in source.look().rows}
        finally:
            source.close()

    now = jobs("")  # with those of whoever else uses this node
    assert JOB in now and "past" not in now
    assert jobs("past") == {"past"}, "whoever names it sees it"


class Fixed:
    """A source that always sees the same."""

    title = HOSTILE

    def __init__(self, *rows: Row, stacks: str = "") -> None:
        self._view = View([(f"job {HOSTILE} hangs", True)], rows)
        self._stacks = stacks

    def look(self) -> View:
        return self._view

    def stacks(self, row: Row) -> str:
        return self._stacks

    def close(self) -> None:
        """Nothing is held."""


def drive(
    source: Source,
    steps: Callable[[Screen, Pilot[None]], object],
    *,
    size: tuple[int, int] = (80, 24),
) -> None:
    """Run the screen without a terminal, and let `steps` press its keys."""

    async def run() -> None:
        screen = Screen(source, 0.2)
        async with screen.run_test(size=size) as pilot:
            await until(pilot, lambda: "looking" not in shown(screen))
            await steps(screen, pilot)  # type: ignore[misc]

    asyncio.run(run())


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Wait for a condition while the screen goes on."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await pilot.pause(0.05)


def shown(screen: Screen) -> str:
    """All text of the front screen."""
    width = screen.size.width
    lines = screen.screen._compositor.render_strips()
    assert all(cell_len(line.text) == width for line in lines)
    return "\n".join(line.text for line in lines)


def test_a_line_a_rank_and_the_verdict_above_and_hostile_names_do_no_harm(ranks: Path) -> None:
    source = NodeSource(
        LookOptions(incident_dir=ranks / "none", record_dir=ranks), JOB
    )  # other ranks may live here, too

    async def steps(screen: Screen, pilot: Pilot[None]) -> None:
        text = shown(screen)
        assert text.count("weights_update") == 3
        assert "5[red]4?[2J0?" in text
        await pilot.press("slash", *"rank", "space", "1", "enter")
        await until(pilot, lambda: "1 of 3 ranks" in shown(screen))
        assert shown(screen).count("weights_update") == 1
        await pilot.press("escape")
        await until(pilot, lambda: shown(screen).count("weights_update") == 3)

    try:
        drive(source, steps)
    finally:
        source.close()


@pytest.mark.skipif(py_spy() is None, reason="needs py-spy, of the extra `evidence`")
def test_e_shows_where_the_ranks_are(ranks: Path) -> None:
    source = NodeSource(
        LookOptions(incident_dir=ranks / "none", record_dir=ranks), JOB
    )  # other ranks may live here, too

    async def steps(screen: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("e")
        await until(pilot, lambda: isinstance(screen.screen, Stacks))
        await until(
            pilot, lambda: "wait_for_weights" in shown(screen) or "not permitted" in shown(screen)
        )
        await pilot.press("escape")
        await until(pilot, lambda: "weights_update" in shown(screen))

    try:
        drive(source, steps)
    finally:
        source.close()


def test_what_keeps_it_from_looking_is_told_beside_what_was_seen_last() -> None:
    class Broken(Fixed):
        def look(self) -> View:
            if self._view.rows:
                view, self._view = self._view, View()
                return view
            raise OSError("the directory [red] is gone")

    async def steps(screen: Screen, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "the directory [red] is gone" in shown(screen))
        assert "weights_update" in shown(screen)
        assert str(screen.query_one("#verdict", Static).content).startswith("the directory")

    drive(Broken(Row("540", "train", "0", stage="weights_update")), steps)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80)) if sys.version_info >= (3, 11) else None
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def output(ours: int, until: Callable[[str], bool]) -> str:
    """What a program has written to its terminal, until that is enough."""
    text, end = "", time.monotonic() + 60
    while not until(text):
        assert time.monotonic() < end, text
        if select.select([ours], [], [], 0.1)[0]:
            text += os.read(ours, 65536).decode(errors="replace")
    return text


@pytest.mark.parametrize("way", ["q", "\x03", signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_ends_clean_and_leaves_the_terminal_as_it_was(
    way: str | signal.Signals, terminal: tuple[int, int], ranks: Path
) -> None:
    ours, theirs = terminal
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "stagewatch.cli", "top", "--record-dir", str(ranks)],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env=clean_environ({"TERM": "xterm-256color", "NO_COLOR": "1"}),
    )  # fmt: skip
    try:
        text = output(ours, lambda text: text.count("weights_update") >= 3)
        assert "\x1b[31m" not in text  # https://no-color.org
        if isinstance(way, str):
            os.write(ours, way.encode())
        else:
            process.send_signal(way)
        text = output(ours, lambda text: process.poll() is not None and "\x1b[?1049l" in text)
        assert process.returncode == 0, text
        assert "Traceback" not in text
        assert "\x1b[?25h" in text  # the cursor is there again
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()


def test_it_does_not_outlive_a_terminal_that_nobody_reads(ranks: Path) -> None:
    """It waits for room to write when the terminal hangs up, and handles no signal."""
    ours, theirs = pty.openpty()
    command = ["top", "--interval", "0.02", "--record-dir", str(ranks)]
    process = subprocess.Popen(
        [sys.executable, "-m", "stagewatch.cli", *command],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env=clean_environ({"TERM": "xterm-256color"}),
    )  # fmt: skip
    try:
        output(ours, lambda text: text.count("weights_update") >= 3)
        termios.tcflow(theirs, termios.TCOOFF)  # as ^S does
        os.close(theirs)
        main = Path(f"/proc/{process.pid}/task/{process.pid}/wchan")
        wait_for(lambda: "futex" in main.read_text(), "its main thread to wait for the writer", 120)
        os.close(ours)
        ours = -1
        wait_for(lambda: process.poll() is not None, "its end")
    finally:
        process.kill()
        process.wait()
        if ours >= 0:
            os.close(ours)


def test_a_whole_job_as_a_prometheus_knows_it(children: Children, tmp_path: Path) -> None:
    from stagewatch.prometheus.api import PrometheusApi
    from stagewatch.top.job import JobSource

    job = 'a"b[red]\\c\u202e'
    now = time.time()
    past = Past(now - 60, now)
    for rank in range(2):
        who = {"job_id": job, "role": "train", "rank": rank, "node": f"n{rank}"}
        past.add("rl_rank_up", 1.0 - rank, **who)
        past.add("rl_rank_info", 1.0, **who, pid=100 + rank)
        past.add("rl_rank_step", 7.0, **who)
        past.add("rl_rank_stage_open_seconds", 90.0, **who, stage="rollout", substage="")
        past.add("rl_rank_progress_age_seconds", 90.0, **who)
        for kind, share in (("worked", 0.75), ("waited", 0.25)):
            name = f"rl_rank_{kind}_seconds_total"
            past.add(name, lambda when, share=share: share * when, **who, stage="rollout")
    source = JobSource(PrometheusApi(filled_prometheus(children, tmp_path / "p", past)), job)
    view = source.look()
    source.close()
    assert view.sentences[0][1]
    assert "rank 1 (pid 101 on n1) ended without closing its record" in view.sentences[0][0]
    waits, gone = sorted(view.rows, key=lambda row: row.rank)
    assert (waits.at_fault, waits.overdue, waits.pid, waits.step) == (False, True, 100, 7)
    assert (waits.stage, waits.node, waits.age_seconds) == ("rollout", "n0", 90.0)
    assert waits.work_and_waiting == pytest.approx((0.75, 0.25), abs=0.01)
    assert (gone.at_fault, gone.gone, gone.age_seconds) == (True, True, None)


@pytest.mark.parametrize("size", [(20, 6), (80, 24), (200, 50)])
def test_stacks_and_answers_of_others_are_shown_as_plain_text(size: tuple[int, int]) -> None:
    row = Row(HOSTILE, HOSTILE, "0", stage="[link=x]", inside=HOSTILE, at_fault=True)

    async def steps(screen: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("e")
        await until(pilot, lambda: "5[red]4?" in shown(screen))
        assert "\x1b" not in shown(screen)
        assert "\u202e" not in shown(screen)

    drive(Fixed(row, stacks=HOSTILE), steps, size=size)
