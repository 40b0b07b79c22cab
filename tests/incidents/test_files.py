"""Incidents as files: who may read them, how many there are, and what becomes of damaged ones."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stagewatch.incidents import files as incidents
from stagewatch.incidents.files import (
    Incident,
    IncidentDirectory,
    RankEvidence,
    read,
    with_evidence,
)
from stagewatch.judgement.facts import as_json
from stagewatch.ranks.stacks import Stack
from tests.judgement.cases import LATE, PARKED
from tests.judgement.jobs import job
from tests.records import SECOND_USER

RANKS = job(3, LATE | PARKED)
STACK = Stack("0123abcd", True, "reward.py:25 in length_reward", (("MainThread", ("f (a.py:1)",)),))


def incident(job_id: str = "540", when: float | None = None) -> Incident:
    return Incident(
        job_id,
        time.time() - 5 if when is None else when,
        ("job 540: no progress",),
        tuple(
            RankEvidence(
                rank.role, rank.rank, rank.pid, STACK, json.loads(json.dumps(as_json(rank)))
            )
            for rank in RANKS
        ),
    )


@pytest.fixture
def directory(tmp_path: Path) -> IncidentDirectory:
    (tmp_path / "state").mkdir()
    return IncidentDirectory(tmp_path / "state/incidents")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "state/incidents"


def test_what_is_kept_comes_back(directory: IncidentDirectory, files: Path) -> None:
    kept = incident()
    directory.keep(kept, None)
    assert directory.load() == {"540": kept}
    assert list(read(files, ["540", "541"])) == [kept]


def test_job_ids_lead_nowhere_else(directory: IncidentDirectory, files: Path) -> None:
    for job_id in ("../../etc/passwd", "a b\n", "ü" * 300, ""):
        directory.keep(incident(job_id), None)
    assert {each.parent for each in files.parent.rglob("*.json")} == {files}
    assert directory.load().keys() == {"../../etc/passwd", "a b\n", "ü" * 300, ""}


def test_only_the_agent_may_read_where_no_user_is_known(
    directory: IncidentDirectory, files: Path
) -> None:
    directory.keep(incident(), None)
    (file,) = files.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """pytest's directories are closed to other users."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name) / "incidents"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to read as other users")
def test_the_user_of_the_job_may_read_it_and_nobody_else(open_to_all: Path) -> None:
    IncidentDirectory(open_to_all).keep(incident(), SECOND_USER)
    (file,) = open_to_all.iterdir()

    def reads(uid: int) -> bool:
        command = ["cat", str(file)]
        done = subprocess.run(command, user=uid, group=uid, capture_output=True, check=False)
        return b"length_reward" in done.stdout

    try:
        os.getxattr(file, "system.posix_acl_access")
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip(f"{file.parent} takes no ACL: {error.strerror}")
    assert reads(SECOND_USER)
    assert not reads(SECOND_USER - 1)
    writes = subprocess.run(
        ["sh", "-c", f"echo x >> {file}"], user=SECOND_USER, capture_output=True, check=False
    )
    assert writes.returncode


def damaged() -> dict[str, Any]:
    """By what is wrong with it."""
    kept = {"version": incidents.VERSION, **incidents.asdict(incident())}
    content: dict[str, Any] = json.loads(json.dumps(kept))
    witness = content["ranks"][0]
    stack = witness["stack"]
    changes: dict[str, dict[str, Any]] = {
        "another-version": {"version": incidents.VERSION - 1},
        "a-time-that-is-none": {"time": "now"},
        "half-a-character": {"libraries": ["\ud800"]},
        "a-negative-rank": {"ranks": [witness | {"rank": -1}]},
        "a-long-frame": {"ranks": [witness | {"stack": stack | {"frame": "x" * 121}}]},
        "threads-that-are-none": {"ranks": [witness | {"stack": stack | {"threads": [["a"]]}}]},
    }
    return {name: content | change for name, change in changes.items()} | {"a-list": [content]}


@pytest.mark.parametrize("what", sorted(damaged()))
def test_a_damaged_file_is_set_aside_with_a_line(
    what: str, directory: IncidentDirectory, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory.keep(incident("541"), None)
    file = files / "20260101T000000Z-540-00000000.json"
    file.write_text(json.dumps(damaged()[what]))
    assert list(read(files, ["540"])) == []
    assert file.exists(), "who only reads touches nothing"
    with caplog.at_level(logging.WARNING):
        assert directory.load().keys() == {"541"}
    assert len(caplog.messages) == 1
    assert "it is not shown" in caplog.text
    assert not file.exists()
    assert file.with_name(file.name + ".corrupt").exists()


def test_old_ones_and_too_many_bytes_are_removed(
    directory: IncidentDirectory, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.keep(incident("old", time.time() - 60), None)
    (old,) = files.iterdir()
    os.utime(old, (0, 0))
    directory.keep(incident("new"), None)
    assert directory.load().keys() == {"new"}
    (file,) = files.iterdir()
    monkeypatch.setattr(incidents, "MAX_TOTAL_BYTES", file.stat().st_size * 3 // 2)
    directory.keep(incident("newer", time.time()), None)
    assert directory.load().keys() == {"newer"}


def test_the_stacks_count_while_the_overdue_ranks_stand_still() -> None:
    now = time.time()
    found = with_evidence(RANKS, [incident(when=now - 400)], now)
    assert {rank.stack for rank in found} == {STACK}
    assert with_evidence(RANKS, [incident(when=now - 420)], now) == RANKS
    assert with_evidence(RANKS, [incident(when=now + 60)], now) == RANKS


def test_what_is_known_of_a_rank_holds_until_it_moves_itself() -> None:
    now = time.time()
    some = [replace(RANKS[0], progress_age_seconds=30.0), *RANKS[1:]]
    before = incident(when=now - 400)
    assert not before.current(some, now)
    assert [rank.stack.group for rank in with_evidence(some, [before], now)] == [
        "",
        *(STACK.group for _ in RANKS[1:]),
    ]
    all_moved = [replace(rank, progress_age_seconds=30.0) for rank in RANKS]
    assert with_evidence(all_moved, [before], now) == all_moved
    in_vain = [replace(RANKS[0], progress_age_seconds=2.0, step_age_seconds=412.0), *RANKS[1:]]
    assert {rank.stack for rank in with_evidence(in_vain, [before], now)} == {STACK}
