"""What a person gets who gives the command something it cannot use: one line, the right status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from stagewatch import cli


class Said(NamedTuple):
    """What a run of the command has answered."""

    status: int | str | None
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def stagewatch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process, with these variables and no others of its own."""

    def run(*arguments: str, **environ: str) -> Said:
        with monkeypatch.context() as here:
            for name in [name for name in os.environ if name.startswith("STAGEWATCH_")]:
                here.delenv(name)
            for name, value in environ.items():
                here.setenv(name, value)
            try:
                status: int | str | None = cli.main(arguments)
            except SystemExit as end:  # of argparse
                status = end.code
        out, err = capsys.readouterr()
        # Not what it says of processes that are hidden from whoever runs the tests.
        lines = [line for line in err.splitlines() if "cannot be read: that takes" not in line]
        return Said(status, out, "\n".join(lines))

    return run


@pytest.mark.parametrize("command", ["node", "check-config"])
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
    stagewatch: Run, tmp_path: Path, command: str, content: str, expected: str
) -> None:
    file = tmp_path / "stagewatch.toml"
    file.write_text(content)
    status, out, line = stagewatch(command, "--config", str(file))
    assert (status, out, line.count("\n")) == (2, "", 0)
    assert str(file) in line
    assert expected in line


@pytest.mark.parametrize(
    ("arguments", "environ", "line"),
    [
        (
            ["--listen", "9947"],
            {},
            "--listen = '9947': must be HOST:PORT, or :PORT for every interface, [IPV6]:PORT for "
            "IPv6",
        ),
        (
            [],
            {"STAGEWATCH_COLLECTOR_CLOCK_INTERVAL": "often"},
            "STAGEWATCH_COLLECTOR_CLOCK_INTERVAL = 'often': must be a duration above zero such as "
            "500ms, 1s, 5m or 2h (a plain number is seconds)",
        ),
        (
            ["--config", "/nonexistent.toml"],
            {},
            "--config /nonexistent.toml: No such file or directory",
        ),
    ],
)
def test_bad_configuration_is_one_line_and_status_2(
    stagewatch: Run, arguments: list[str], environ: dict[str, str], line: str
) -> None:
    assert stagewatch("node", *arguments, **environ) == Said(2, "", f"stagewatch: {line}")


@pytest.mark.parametrize(
    ("arguments", "accepted"),
    [
        (["--collector.canary.mounts", "relative"], "each an absolute path"),
        (["--agent", "slurm", "--sd-exporters", "foo"], "NAME:PORT"),
    ],
)
def test_what_the_agent_could_not_use_is_refused_before_it_starts(
    stagewatch: Run, arguments: list[str], accepted: str
) -> None:
    status, out, line = stagewatch("check-config", *arguments)
    assert (status, out) == (2, "")
    assert f"{arguments[-2]} = " in line
    assert accepted in line


def test_check_config_shows_what_differs_and_flags_win_over_variables(
    stagewatch: Run, tmp_path: Path
) -> None:
    file = tmp_path / "stagewatch.toml"
    file.write_text("[node]\nlisten = ':1'\n[node.collector.clock]\ninterval = '1m'\n")
    arguments = ("check-config", "--config", str(file))
    assert stagewatch(*arguments).out == "listen = :1\ncollector.clock.interval = 1m\n"
    said = stagewatch(*arguments, STAGEWATCH_LISTEN=":2")
    assert "listen = :2\n" in said.out
    said = stagewatch(*arguments, "--listen", ":3", STAGEWATCH_LISTEN=":2")
    assert "listen = :3\n" in said.out
    assert stagewatch("check-config").out == "all defaults\n"


def test_an_empty_record_directory_is_no_reason_to_die(stagewatch: Run, tmp_path: Path) -> None:
    said = stagewatch("inspect", "--record-dir", str(tmp_path), "--job", "none-such")
    assert said.status == 1
    assert said.out.startswith("No rank of job none-such on this node")


def test_help_names_defaults_and_variables(stagewatch: Run) -> None:
    text = " ".join(stagewatch("node", "--help").out.split())
    assert "[default: 127.0.0.1:9947; STAGEWATCH_LISTEN]" in text
    assert "[default: 2.5s; STAGEWATCH_COLLECTOR_STAGES_INTERVAL]" in text


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
