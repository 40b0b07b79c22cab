"""`stagewatch check-config` and `stagewatch node` before they start anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import clean_environ


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stagewatch.cli", *arguments],
        capture_output=True,
        text=True,
        env=clean_environ(environ),
        timeout=120,
    )


def test_what_differs_from_the_defaults_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "stagewatch.toml"
    file.write_text('[node]\nlisten = ":9950"\n[node.collector.clock]\nenabled = false\n')
    done = run("check-config", "--config", str(file), STAGEWATCH_DIR="/x")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "listen = :9950",
        "record_dir = /x",
        "collector.clock.enabled = false",
    ]


def test_nothing_differs() -> None:
    done = run("check-config")
    assert (done.returncode, done.stdout, done.stderr) == (0, "all defaults\n", "")


@pytest.mark.parametrize("command", ["check-config", "node"])
@pytest.mark.parametrize(
    ("arguments", "environ", "line"),
    [
        (
            ["--listen", "9947"],
            {},
            "stagewatch: --listen = '9947': must be HOST:PORT, or :PORT for every interface, "
            "[IPV6]:PORT for IPv6",
        ),
        (
            [],
            {"STAGEWATCH_COLLECTOR_CLOCK_INTERVAL": "often"},
            "stagewatch: STAGEWATCH_COLLECTOR_CLOCK_INTERVAL = 'often': must be a duration "
            "above zero such as 500ms, 1s, 5m or 2h (a plain number is seconds)",
        ),
        (
            ["--config", "/nonexistent.toml"],
            {},
            "stagewatch: --config /nonexistent.toml: No such file or directory",
        ),
    ],
)
def test_bad_configuration_is_one_line_and_status_2(
    command: str, arguments: list[str], environ: dict[str, str], line: str
) -> None:
    done = run(command, *arguments, **environ)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line + "\n")


def test_an_unknown_key_names_file_table_and_the_one_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "stagewatch.toml"
    file.write_text('[node]\nlisten_to = ":9950"\n')
    done = run("node", "--config", str(file))
    assert done.returncode == 2
    assert done.stderr == (
        f"stagewatch: {file} [node]: unknown key listen_to; did you mean listen?\n"
    )


@pytest.mark.parametrize(
    ("arguments", "accepted"),
    [
        (["--collector.canary.mounts", "relative"], "each an absolute path"),
        (["--agent", "slurm", "--rest-url", "foo"], "unix:/PATH of the socket"),
        (["--agent", "slurm", "--rest-url", "unix:relative"], "unix:/PATH of the socket"),
        (["--agent", "slurm", "--rest-url", "http://:6820"], "http://HOST:PORT"),
    ],
)
def test_what_the_agent_could_not_use_is_refused_before_it_starts(
    arguments: list[str], accepted: str
) -> None:
    done = run("check-config", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{arguments[-2]} = " in done.stderr
    assert accepted in done.stderr
