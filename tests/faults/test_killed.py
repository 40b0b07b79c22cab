"""Two injectors at a time, killed with their watchdogs in every phase; links for a journal.

Each phase is told by what it leaves behind, and both are killed as soon as that is seen.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch.core.errors import StagewatchError
from tests.faults.injecting import Injector, stopped
from tests.running import Python, Script
from tests.waiting import wait_for

Reached = Callable[[Injector, Script], bool]

PHASES: dict[str, Reached] = {
    "watchdog": lambda injector, script: len(injector.watchdogs()) == 2,
    "done": lambda injector, script: "did  kill" in script.output(),
    "undoing": lambda injector, script: (
        script.process.poll() is not None or "undone" in script.output()
    ),
}


@pytest.mark.parametrize("phase", PHASES)
def test_two_that_are_killed_in_any_phase_leave_nothing_behind(
    phase: str, injector: Injector, python: Python
) -> None:
    victims = [python("import time; print('here'); time.sleep(600)") for _ in range(2)]
    for victim in victims:
        victim.said("here")
    seconds = "--for=1s" if phase == "undoing" else "--for=600s"
    injectors = [
        injector.start("process-stop", f"--target={victim.pid}", f"--id=hang-{number}", seconds)
        for number, victim in enumerate(victims)
    ]
    wait_for(lambda: all(PHASES[phase](injector, script) for script in injectors), f"phase {phase}")
    for script in injectors:
        script.kill()
    for watchdog in injector.watchdogs():
        with contextlib.suppress(StagewatchError):
            watchdog.send(signal.SIGKILL)
    wait_for(lambda: not injector.watchdogs(), "the watchdogs' death")
    injector.run("list")
    injector.gone()
    assert not any(map(stopped, victims))


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_what_is_planted_in_an_entrys_place_is_said_and_neither_read_nor_run(
    kind: str, injector: Injector, tmp_path: Path
) -> None:
    injector.undo.mkdir(mode=0o700)
    entry = injector.undo / "evil.undo"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    if kind == "link":
        entry.symlink_to(elsewhere)
    elif kind == "dangling link":
        entry.symlink_to(tmp_path / "nowhere")
    else:
        os.mkfifo(entry)
    said = injector.refused("list", status=0)
    assert str(entry) in said
    assert "Traceback" not in said
    assert elsewhere.read_text() == "kept"
    assert not (tmp_path / "nowhere").exists()
    entry.unlink()


def test_a_link_in_the_journals_place_is_not_followed(injector: Injector, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    injector.undo.symlink_to(tmp_path / "mine")
    said = injector.refused("inject", "cpu", "--target=0", "--for=5s", status=1)
    assert "must be a directory of yours" in said
    assert list((tmp_path / "mine").iterdir()) == []
    injector.undo.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users need root")
def test_a_hard_link_to_another_users_file_is_not_believed(
    injector: Injector, tmp_path: Path
) -> None:
    injector.undo.mkdir(mode=0o700)
    others = tmp_path / "others"
    others.write_text("{}")
    os.chown(others, 65534, 65534)
    (injector.undo / "evil.undo").hardlink_to(others)
    assert "is not a file of yours" in injector.refused("list", status=0)
    (injector.undo / "evil.undo").unlink()
