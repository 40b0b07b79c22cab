"""What a person gets who gives the command something it cannot use: one line, the right status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest


def stagewatch(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stagewatch.cli", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environ,
        timeout=120,
        check=False,
    )


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on standard error of a run that refused what it was given."""
    assert done.returncode == 2, done
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    return lines[0]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[node\n", "not valid TOML"),
        ("node = 3\n", "must stand in a table"),
        ("[node]\nlisten = 'nowhere'\n", "HOST:PORT"),
        ("[node]\nlistn = ':9947'\n", "did you mean listen?"),
        ("[node.collector.gpu]\ninterval = '-1s'\n", "a duration above zero"),
        ("[node.collector.gpu]\nenabled = 'maybe'\n", "true or false"),
    ],
)
def test_a_broken_file_is_refused_with_what_to_mend(
    tmp_path: Path, content: str, expected: str
) -> None:
    file = tmp_path / "stagewatch.toml"
    file.write_text(content)
    for command in ("node", "check-config"):
        line = complaint(stagewatch(command, "--config", str(file)))
        assert str(file) in line
        assert expected in line


def test_a_missing_file_and_a_bad_variable_are_refused() -> None:
    line = complaint(stagewatch("node", "--config", "/nonexistent.toml"))
    assert "No such file" in line
    line = complaint(stagewatch("check-config", STAGEWATCH_LISTEN="9947"))
    assert line.startswith("stagewatch: STAGEWATCH_LISTEN = '9947': must be HOST:PORT")


def test_check_config_shows_what_differs_and_flags_win_over_variables(tmp_path: Path) -> None:
    file = tmp_path / "stagewatch.toml"
    file.write_text("[node]\nlisten = ':1'\n[node.collector.clock]\ninterval = '1m'\n")
    arguments = ("check-config", "--config", str(file))
    assert stagewatch(*arguments).stdout == "listen = :1\ncollector.clock.interval = 1m\n"
    done = stagewatch(*arguments, STAGEWATCH_LISTEN=":2")
    assert "listen = :2\n" in done.stdout
    done = stagewatch(*arguments, "--listen", ":3", STAGEWATCH_LISTEN=":2")
    assert "listen = :3\n" in done.stdout
    assert stagewatch("check-config").stdout == "all defaults\n"


def test_an_empty_record_directory_is_no_reason_to_die(tmp_path: Path) -> None:
    done = stagewatch("inspect", "--record-dir", str(tmp_path), "--job", "none-such")
    assert done.returncode == 1
    assert done.stdout.startswith("No rank of job none-such on this node")


def test_help_names_defaults_and_variables() -> None:
    text = " ".join(stagewatch("node", "--help").stdout.split())
    assert "[default: 127.0.0.1:9947; STAGEWATCH_LISTEN]" in text
    assert "[default: 1s; STAGEWATCH_COLLECTOR_STAGES_INTERVAL]" in text


@pytest.fixture(params=[True, False], ids=["buffered", "unbuffered"])
def environ(request: pytest.FixtureRequest) -> dict[str, str]:
    """With and without the variable that has Python write at once."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return kept if request.param else kept | {"PYTHONUNBUFFERED": "1"}


def test_output_that_cannot_be_written_is_told_in_one_line(environ: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = into(full, environ)
    assert done.returncode == 1
    assert done.stderr == b"stagewatch: cannot write the output: No space left on device\n"


def test_a_reader_that_has_gone_is_no_error_to_tell(environ: dict[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        done = into(pipe, environ)
    assert (done.returncode, done.stderr) == (141, b"")


def into(output: IO[str], environ: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    """`stagewatch check-config` with its output going there."""
    return subprocess.run(
        [sys.executable, "-m", "stagewatch.cli", "check-config"],
        stdout=output,
        stderr=subprocess.PIPE,
        env=environ,
        timeout=120,
        check=False,
    )


def test_a_mistyped_command_is_answered_with_the_likely_one() -> None:
    done = stagewatch("inspct")
    assert done.returncode == 2
    assert "there is no command 'inspct'; did you mean inspect?" in done.stderr
    assert "stagewatch --help lists them" in stagewatch("wibble").stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [("stagewatch ins", "inspect"), ("stagewatch inspect --wat", "--watch")],
)
def test_bash_completes_commands_and_flags(words: str, expected: str) -> None:
    script = stagewatch("completion", "bash").stdout
    typed = words.split()
    ask = (
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}\n"
        "${COMP:=$(complete -p stagewatch | sed 's/.*-F \\([^ ]*\\).*/\\1/')}\n"
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected]
