"""What `stagewatch fault inject` asks for, shows and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stagewatch.faults.journal import decode, encode
from stagewatch.faults.kinds import KINDS, STEPS
from tests.faults.injecting import Injector
from tests.running import Script

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "fault-injection.md"


@pytest.mark.parametrize("kind", KINDS)
def test_the_help_of_a_kind_tells_what_its_target_is(injector: Injector, kind: str) -> None:
    said = " ".join(injector.refused("inject", kind, "--help", COLUMNS="1000", status=0).split())
    assert KINDS[kind].target in said and "--dry-run" in said
    assert f"`{kind}`" in DOCUMENTATION.read_text()


def test_a_dry_run_shows_all_and_touches_nothing(injector: Injector, victim: Script) -> None:
    argv = ("inject", "process-stop", f"--target={victim.pid}", "--for=60s", "--dry-run")
    said = injector.refused(*argv, status=0)
    for line in (f"would  kill -STOP {victim.pid}", f"then  kill -CONT {victim.pid}", "marker"):
        assert line in said
    assert not injector.markers() and not injector.undo.exists()
    assert "T" not in Path(f"/proc/{victim.pid}/status").read_text().partition("State:")[2][:3]


def test_a_bad_option_of_a_kind_does_not_keep_a_fault_from_being_undone(
    injector: Injector, tmp_path: Path, victim: Script
) -> None:
    injector.hold("process-stop", f"--target={victim.pid}", "--id=hang")
    file = tmp_path / "stagewatch.toml"
    file.write_text("[fault.cpu]\nloads = 1\n")
    bad = {"STAGEWATCH_CONFIG": str(file), "STAGEWATCH_FAULT_CPU_LOAD": "x"}
    assert "hang" in injector.run("clear", "hang", **bad).split()
    injector.gone()
    assert "unknown key cpu.loads" in injector.refused(
        "inject", "cpu", "--target=all", "--for=5s", status=2, **bad
    )


def test_a_missing_tool_is_named_with_its_package(injector: Injector, tmp_path: Path) -> None:
    code = (
        "import shutil, sys; which = shutil.which; "
        "shutil.which = lambda name, **more: None if name == 'stress-ng' else which(name, **more); "
        "from stagewatch.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *injector.argv("inject", "cpu")[3:], "--target=0", "--for=5s"],
        env=injector.environ({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "needs stress-ng, which is not installed: apt-get install stress-ng" in done.stderr


def test_an_id_that_is_taken_or_bad_is_refused(injector: Injector, victim: Script) -> None:
    injector.run("mark", "x", "--id=mine")
    argv = ("inject", "process-stop", f"--target={victim.pid}", "--for=5s")
    assert "already" in injector.run(*argv, "--id=mine", status=1)
    assert injector.markers()[0].end is None, "the other's marker is left as it was"
    injector.run(*argv, "--id=../x", status=2)
    assert not injector.left()


def test_every_step_reads_back_from_the_journal() -> None:
    samples = {
        "Helper": ("id", ("stress-ng", "--cpu", "1"), "/log"),
        "Fill": ("/x", 5),
        "Scratch": ("/x",),
        "Chain": ("iptables", "INPUT", "STAGEWATCH-1", (("-p", "tcp"), ("-p", "udp")), "why"),
        "Netem": ("eth0", "10.0.0.1", 80, ("delay", "1ms")),
        "Stop": (5, 6),
        "Kill": (5, 6),
        "Drain": ("h1", "why"),
    }
    assert samples.keys() == STEPS.keys()
    for name, arguments in samples.items():
        step = STEPS[name](*arguments)
        assert decode(json.loads(json.dumps(encode(step))), STEPS) == step
