"""The helper process: what its jobs may do to each other and to the agent, which is nothing."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from stagewatch.core.children.helper import Helper, JobSpec
from stagewatch.core.children.start import PACKAGES, popen
from stagewatch.core.errors import SourceError, Stuck
from tests.waiting import wait_for

ROOT = Path(__file__).parent.parent.parent


class Start(Protocol):
    def __call__(self, jobs: Mapping[str, JobSpec], **settings: Any) -> Helper: ...


@pytest.fixture
def start() -> Iterator[Start]:
    """Helpers that are closed with the test."""
    with ExitStack() as stack:

        def begin(jobs: Mapping[str, JobSpec], **settings: Any) -> Helper:
            helper = Helper(jobs, packages=(PACKAGES, ROOT), **settings)
            stack.callback(helper.close)
            return helper

        yield begin


def job(name: str, arguments: Mapping[str, Any] | None = None, **times: float) -> JobSpec:
    times = {"interval": 0.1, "deadline": 60.0} | times
    return JobSpec(f"tests.core.helper_jobs:{name}", arguments or {}, **times)


def test_a_crash_costs_only_its_own_run(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    helper = start({"bad": job("crash"), "good": job("count")})

    def both() -> bool:
        states = helper.states()
        return states["bad"].runs > 2 and states["good"].runs > 2

    wait_for(both, "more runs")
    bad = helper.states()["bad"]
    assert (bad.result, bad.hung) == (None, None)
    assert "ValueError('on purpose')" in capfd.readouterr().err


def test_a_run_past_its_deadline_is_killed_and_the_hang_grows_until_one_ends(
    start: Start, tmp_path: Path
) -> None:
    flag, pids = tmp_path / "flag", tmp_path / "pids"
    flag.touch()
    arguments = {"while": str(flag), "pids": str(pids)}
    helper = start({"a": job("sleep", arguments, deadline=0.3), "other": job("count")})
    first = wait_for(lambda: helper.states()["a"].hung, "a hang")
    assert helper.states()["a"].hung_phase == "asleep"
    wait_for(lambda: helper.states()["a"].kills >= 3, "it is tried again")
    later = helper.states()["a"].hung
    assert later is not None
    assert later > first + 0.3, "the time counts from the first hang, not from the last"
    assert helper.states()["other"].hung is None
    flag.unlink()
    wait_for(lambda: helper.states()["a"].hung is None, "the end of the hang")
    assert helper.states()["a"].result == {}


def test_closing_leaves_no_process(start: Start, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    arguments = {"while": str(flag), "pids": str(tmp_path / "pids")}
    helper = start({"a": job("sleep", arguments)})
    wait_for(lambda: helper.states()["a"].runs and (tmp_path / "pids").exists(), "a run")
    family = [psutil.Process(helper.pid), *psutil.Process(helper.pid).children()]
    assert len(family) == 2
    helper.close()
    wait_for(lambda: not any(process.is_running() for process in family), "no process")
    with pytest.raises(SourceError, match="closed"):
        helper.states()


def test_workers_do_not_outlive_a_helper_that_is_killed(start: Start, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    arguments = {"while": str(flag), "pids": str(tmp_path / "pids")}
    helper = start({"a": job("sleep", arguments)}, restart_after=0.1)
    wait_for(lambda: helper.states()["a"].runs and (tmp_path / "pids").exists(), "a run")
    assert helper.pid is not None
    workers = psutil.Process(helper.pid).children()
    os.kill(helper.pid, signal.SIGKILL)
    wait_for(lambda: not any(worker.is_running() for worker in workers), "no worker")

    def answers() -> bool:
        with suppress(SourceError):
            return bool(helper.states())
        return False

    wait_for(answers, "a new helper")
    assert helper.states()["a"].runs


def test_a_helper_that_does_not_answer_is_given_up(start: Start) -> None:
    helper = start({"a": job("count")}, timeout=0.2, restart_after=0.1)
    helper.states()
    assert helper.pid is not None
    stopped = psutil.Process(helper.pid)
    stopped.suspend()
    with pytest.raises(Stuck, match="not answered"):
        helper.states()

    def answers() -> bool:
        with suppress(SourceError):
            return bool(helper.states())
        return False

    wait_for(answers, "a new helper")
    assert not stopped.is_running()


def test_collectors_share_one_process_and_see_their_own_jobs(start: Start) -> None:
    helper = start({})
    one = helper.share("one", {"/a": job("count"), "/b": job("count")})
    two = helper.share("two", {"/a": job("count", {"x": 2})})
    assert set(one.names) == {"/a", "/b"}

    def both_ran() -> bool:
        states = [*one.states().values(), *two.states().values()]
        return len(states) == 3 and all(state.result for state in states)

    wait_for(both_ran, "all three ran")
    assert one.states().keys() == {"/a", "/b"}
    assert (two.states()["/a"].result or {})["x"] == 2
    assert (one.states()["/a"].result or {})["parent"] == helper.pid


def test_a_flood_is_cut_off(start: Start) -> None:
    helper = start({"flood": job("flood"), "good": job("count")})
    wait_for(lambda: helper.states()["flood"].kills, "the flood is ended")
    assert helper.states()["flood"].result is None
    runs = helper.states()["good"].runs
    wait_for(lambda: helper.states()["good"].runs > runs, "the other job goes on")


NO_MORE = """
import os, signal, sys
from resource import RLIMIT_NPROC, getrlimit, setrlimit
sys.path[:0] = sys.argv[1:]
import tests.core.helper_jobs
from stagewatch.core.children.worker import main
os.getuid() or os.setuid(65534)  # a limit of processes does not bind root
def other(*_):
    soft, most = getrlimit(RLIMIT_NPROC)
    setrlimit(RLIMIT_NPROC, (0 if soft else most, most))
signal.signal(signal.SIGUSR2, other)
main()
"""


def test_where_no_process_can_be_started_it_is_said_once_and_goes_on_afterwards(
    start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    helper = start({"a": job("count"), "b": job("count")})
    helper._start = lambda: popen([sys.executable, "-c", NO_MORE, str(PACKAGES), str(ROOT)])
    wait_for(lambda: helper.states()["a"].runs > 1, "two runs")
    pid = helper.pid
    assert pid is not None
    os.kill(pid, signal.SIGUSR2)
    said: list[str] = []

    def refused() -> bool:
        helper.states()
        said.append(capfd.readouterr().err)
        return "no process can be started" in "".join(said)

    wait_for(refused, "the helper says that it cannot start a process")
    before = helper.states()["a"].runs
    os.kill(pid, signal.SIGUSR2)
    wait_for(lambda: helper.states()["a"].runs > before + 1, "two more runs")
    text = "".join([*said, capfd.readouterr().err])
    assert text.count("no process can be started") == 1
    assert text.count("processes can be started again") == 1
    assert "Traceback" not in text
    assert helper.pid == pid
