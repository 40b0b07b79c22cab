"""Whoever is killed, and whenever: the fault is undone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stagewatch.core.processes import die_with_parent
from stagewatch.faults.journal import Journal
from stagewatch.faults.kinds import STEPS
from tests.faults.injecting import Injector, stopped
from tests.running import Script
from tests.waiting import wait_for


def hold(injector: Injector, victim: Script) -> Script:
    script = injector.hold("process-stop", f"--target={victim.pid}", "--id=hang")
    assert stopped(victim)
    return script


def test_a_lost_connection_ends_it_early(injector: Injector, victim: Script) -> None:
    script = hold(injector, victim)
    script.process.send_signal(signal.SIGHUP)
    assert f"kill -CONT {victim.pid}" in script.finish(128 + signal.SIGHUP)
    injector.gone()
    assert not stopped(victim)


def test_the_watchdog_undoes_what_a_killed_injector_left(
    injector: Injector, victim: Script
) -> None:
    hold(injector, victim).kill()
    injector.gone()
    assert not stopped(victim)


def test_the_next_command_undoes_it_when_both_are_killed(
    injector: Injector, victim: Script
) -> None:
    injector.kill(hold(injector, victim))
    assert stopped(victim) and injector.left() == ["hang"]
    said = injector.refused("mark", "x", status=0)
    assert "fault hang was left behind" in said and f"kill -CONT {victim.pid}" in said
    assert not injector.left() and not stopped(victim)
    assert next(each for each in injector.markers() if each.id == "hang").end is not None


def test_the_watchdog_undoes_it_in_time_when_the_injector_hangs(
    injector: Injector, victim: Script
) -> None:
    script = injector.start("process-stop", f"--target={victim.pid}", "--for=2s")
    script.said("in force")
    script.process.send_signal(signal.SIGSTOP)
    injector.gone()
    assert not stopped(victim)
    script.process.send_signal(signal.SIGCONT)
    script.finish(None)


def test_clear_ends_a_fault_that_is_in_force(injector: Injector, victim: Script) -> None:
    script = hold(injector, victim)
    assert "hang" in injector.run("clear", "hang").split()
    assert not stopped(victim)
    assert "cleared by another command" in script.finish(1)
    injector.gone()


def test_a_closed_terminal_does_not_keep_the_fault(injector: Injector, victim: Script) -> None:
    reader, writer = os.pipe()
    argv = ("inject", "process-stop", f"--target={victim.pid}", "--for=600s")
    with subprocess.Popen(
        injector.argv(*argv),
        env=injector.environ({}),
        stdout=writer,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    ) as process:
        os.close(writer)
        wait_for(lambda: stopped(victim), "the fault")
        os.close(reader)
        process.terminate()
        assert process.wait(timeout=60) == 143
    injector.gone()
    assert not stopped(victim)


def test_a_fault_of_a_living_injector_is_left_alone(injector: Injector, victim: Script) -> None:
    hold(injector, victim)
    injector.refused("mark", "x", status=0)
    assert stopped(victim) and injector.left() == ["hang"]


def test_a_journal_that_others_may_write_to_is_not_believed(
    injector: Injector, victim: Script, tmp_path: Path
) -> None:
    injector.undo.mkdir(mode=0o777)
    injector.undo.chmod(0o777)
    evil = {
        "id": "evil",
        "fault_dir": str(injector.faults),
        "boot_id": "x",
        "network_namespace": 0,
        "owner": {"pid": 1, "start_ticks": 0},
        "environ": {},
        "steps": [{"step": "Fill", "path": str(tmp_path / "precious"), "size": 1}],
    }
    (tmp_path / "precious").write_text("kept")
    (injector.undo / "evil.undo").write_text(json.dumps(evil))
    assert "nobody else may write to" in injector.refused("list", status=0)
    argv = ("inject", "process-stop", f"--target={victim.pid}", "--for=5s")
    said = injector.refused(*argv, status=1)
    assert "nobody else may write to" in said
    assert (tmp_path / "precious").exists() and not stopped(victim)
    (injector.undo / "evil.undo").unlink()


@pytest.mark.parametrize("raw", ["{", '{"owner": {}, "steps": [{"step": "os.system"}]}'])
def test_rubbish_in_the_journal_is_said_and_harms_nothing(injector: Injector, raw: str) -> None:
    Journal(injector.undo, STEPS).prepare()
    (injector.undo / "x.undo").write_text(raw)
    assert "cannot be read" in injector.refused("list", status=0)
    (injector.undo / "x.undo").unlink()


def test_two_who_undo_at_once_undo_it_once(injector: Injector, victim: Script) -> None:
    script = hold(injector, victim)
    script.process.send_signal(signal.SIGSTOP)
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "stagewatch.cli", "fault", "clear", "hang"],
            env=injector.environ({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(3)
    ]
    said = [command.communicate(timeout=60)[0] for command in commands]
    assert sum(f"kill -CONT {victim.pid}" in text for text in said) == 1
    assert [command.returncode for command in commands] == [0, 0, 0]
    script.process.send_signal(signal.SIGCONT)
    script.finish(1)
    injector.gone()


def test_the_injector_undoes_it_when_its_watchdog_is_killed(
    injector: Injector, victim: Script
) -> None:
    script = hold(injector, victim)
    injector.watchdog().send(signal.SIGKILL)
    assert "its watchdog was killed" in script.finish(1)
    injector.gone()
    assert not stopped(victim)


def test_after_a_reboot_files_are_removed_and_nothing_else_is_done(
    injector: Injector, victim: Script, tmp_path: Path
) -> None:
    injector.kill(hold(injector, victim))
    (tmp_path / "filled").write_bytes(b"x")
    entry = injector.undo / "hang.undo"
    content = json.loads(entry.read_text())
    content["boot_id"] = "of another boot"
    content["steps"].append({"step": "Fill", "path": str(tmp_path / "filled"), "size": 1})
    entry.write_text(json.dumps(content))
    said = injector.run("list")
    assert not (tmp_path / "filled").exists()
    assert "kill -CONT" not in said and stopped(victim)
    assert not injector.left()
    os.kill(victim.pid, signal.SIGCONT)
