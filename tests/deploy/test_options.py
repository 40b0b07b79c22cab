"""What the units, compose.yaml and the manifests tell each agent is an option that it has."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import yaml

from tests.deploy.engine import ROOT
from tests.running import run_stagewatch

MANIFESTS = {"node": "node.yaml", "slurm": "slurm/slurm.yaml", "judge": "judge.yaml"}
"""By agent."""


@cache
def known(agent: str) -> frozenset[str]:
    """The flags and the variables of an agent."""
    done = run_stagewatch(agent, "--help", COLUMNS="1000")
    assert done.returncode == 0, done.stderr
    return frozenset(re.findall(r"--[\w.-]+|STAGEWATCH_\w+", done.stdout))


def given(arguments: list[str], environ: dict[str, Any]) -> set[str]:
    """The flags and the variables that a container gives its agent."""
    flags = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
    return flags | {name for name in environ if name.startswith("STAGEWATCH_")}


@pytest.mark.parametrize("agent", MANIFESTS)
def test_of_the_unit(agent: str) -> None:
    text = (ROOT / "deploy" / "systemd" / f"{agent}.env").read_text()
    named = set(re.findall(r"^#?(STAGEWATCH_\w+)=", text, re.MULTILINE))
    assert named
    assert named - known(agent) == set()


@pytest.mark.parametrize("agent", MANIFESTS)
def test_of_compose(agent: str) -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"][agent]
    command, *arguments = service["command"]
    assert command == agent
    assert (named := given(arguments, service.get("environment", {})))
    assert named - known(agent) == set()


@pytest.mark.parametrize("agent", MANIFESTS)
def test_of_kubernetes(agent: str) -> None:
    text = (ROOT / "deploy" / "kubernetes" / MANIFESTS[agent]).read_text()
    workload, *_ = yaml.safe_load_all(text)
    [container] = workload["spec"]["template"]["spec"]["containers"]
    command, *arguments = container["args"]
    assert command == agent
    assert (named := given(arguments, {each["name"]: each for each in container["env"]}))
    assert named - known(agent) == set()
