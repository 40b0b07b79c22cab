"""`stagewatch check-config` and `stagewatch node` before they start anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stagewatch import node
from stagewatch.cli import unknown_variables
from stagewatch.judgement import service as judge
from stagewatch.slurm import agent as slurm
from tests.node_agent import NodeAgent
from tests.running import clean_environ
from tests.waiting import wait_for

ROOT = Path(__file__).parents[1]


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Without what it says of processes that are hidden from whoever runs the tests."""
    done = subprocess.run(
        [sys.executable, "-m", "stagewatch.cli", *arguments],
        capture_output=True,
        text=True,
        env=clean_environ(environ),
        timeout=120,
    )
    hidden = r"stagewatch: warning: \d+ process.* cannot be read: that takes .*\n"
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout, re.sub(hidden, "", done.stderr)
    )


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


def test_a_misspelt_variable_is_told_of_with_the_one_that_was_meant() -> None:
    done = run("check-config", STAGEWATCH_COLLECTOR_GPU_INTERVL="1", STAGEWATCH_LISTN="foo")
    assert (done.returncode, done.stdout) == (0, "all defaults\n")
    assert done.stderr.splitlines() == [
        "stagewatch: warning: unknown variable STAGEWATCH_COLLECTOR_GPU_INTERVL has no effect; "
        "did you mean STAGEWATCH_COLLECTOR_GPU_INTERVAL?",
        "stagewatch: warning: unknown variable STAGEWATCH_LISTN has no effect; "
        "did you mean STAGEWATCH_LISTEN?",
    ]


def test_an_agent_that_starts_tells_of_a_misspelt_variable(tmp_path: Path) -> None:
    agent = NodeAgent(tmp_path, STAGEWATCH_LISTN="foo")
    agent.start()
    try:
        wait_for(lambda: "did you mean STAGEWATCH_LISTEN?" in agent.log.read_text(), "it is told")
    finally:
        agent.stop()


def test_no_variable_that_the_project_reads_is_taken_for_a_mistake() -> None:
    files = [*ROOT.glob("deploy/**/*"), *ROOT.glob("exporters/**/*.py"), ROOT / "compose.yaml"]
    named = {
        name
        for file in files
        if file.is_file()
        for name in re.findall(r"\bSTAGEWATCH_[A-Z0-9_]*[A-Z0-9]\b", file.read_text("utf-8"))
    }
    assert "STAGEWATCH_DIR" in named
    options = {
        setting.env
        for groups in (node.COMMAND.settings(), slurm.COMMAND.settings(), judge.COMMAND.settings())
        for group in groups.values()
        for setting in group
    }
    example = {"STAGEWATCH_INTERVAL"}  # in the docstring of config.py
    assert list(unknown_variables(named - example, options)) == []


@pytest.mark.parametrize(
    ("arguments", "accepted"),
    [
        (["--collector.canary.mounts", "relative"], "each an absolute path"),
        (["--agent", "slurm", "--sd-exporters", "foo"], "NAME:PORT"),
    ],
)
def test_what_the_agent_could_not_use_is_refused_before_it_starts(
    arguments: list[str], accepted: str
) -> None:
    done = run("check-config", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{arguments[-2]} = " in done.stderr
    assert accepted in done.stderr
