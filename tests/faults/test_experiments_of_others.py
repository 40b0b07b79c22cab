"""The documented command lines turn experiments of Chaos Mesh and AWS FIS into markers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stagewatch.faults.markers import Marker
from tests.faults.injecting import Injector

PAGE = Path(__file__).parents[2] / "docs" / "fault-injection.md"

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq (Debian package jq)")


def documented(command: str) -> str:
    """The one command line of the page that uses a tool."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if command in block]
    return str(found)


def run(injector: Injector, directory: Path, line: str, tool: str, outputs: list[str]) -> str:
    """Run the line; the tool prints these, one a call, and then fails."""
    programs = directory / "bin"
    programs.mkdir(exist_ok=True)
    for number, output in enumerate(outputs):
        (programs / f"{tool}.{number}").write_text(output)
    (programs / tool).write_text(
        f'#!/bin/sh\ncd {programs}\nfor f in {tool}.*; do [ -e "$f" ] || exit 1\n'
        'cat "$f"; rm "$f"; exit 0; done\n'
    )
    command = f'exec {sys.executable} -m stagewatch.cli "$@"'
    (programs / "stagewatch").write_text(f"#!/bin/sh\n{command}\n")
    for program in (tool, "stagewatch"):
        (programs / program).chmod(0o755)
    environ = injector.environ({"QUEUE": "https://sqs.example/1/fis"})
    environ["PATH"] = f"{programs}:{environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def by_id(injector: Injector) -> dict[str, Marker]:
    return {marker.id: marker for marker in injector.markers()}


def chaos_event(reason: str, message: str, **involved: str) -> str:
    about = {
        "kind": "NetworkChaos",
        "namespace": "rl",
        "name": "delay-to-metaserver",
        "uid": "5a1b2c3d-0000-4000-8000-0123456789ab",
        "apiVersion": "chaos-mesh.org/v1alpha1",
        "resourceVersion": "81352",
        **involved,
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "delay-to-metaserver.17f2", "namespace": "rl"},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "source": {"component": "records"},
            "firstTimestamp": "2026-01-27T10:00:00Z",
            "lastTimestamp": "2026-01-27T10:00:00Z",
            "count": 1,
            "type": "Normal",
        },
        indent=4,
    )


def test_chaos_mesh(injector: Injector, tmp_path: Path) -> None:
    line = documented("kubectl")
    events = [
        chaos_event("Started", "Experiment has started"),
        chaos_event("Applied", "Successfully apply chaos for rl/train-5/trainer"),
        chaos_event("Applied", "Successfully apply chaos for rl/train-6/trainer"),
        chaos_event("Updated", "Successfully update records of resource"),
        chaos_event("Recovered", "Successfully recover chaos for rl/train-6/trainer"),
        chaos_event("Applied", "of something else rl/x", apiVersion="apps/v1"),
        chaos_event("Applied", f"Successfully apply chaos for rl/{'x' * 200}/$(touch${{IFS}}x)'\""),
    ]
    said = run(injector, tmp_path, line, "kubectl", ["\n".join(events)])
    found = by_id(injector)
    first = found["chaos-5a1b2c3d-rl.train-5.trainer"]
    assert first.fault_type == "NetworkChaos" and first.end is None, said
    assert first.target_worker == "rl/train-5/trainer"
    assert first.scenario == "delay-to-metaserver"
    assert found["chaos-5a1b2c3d-rl.train-6.trainer"].end is not None
    assert len(found) == 3 and not (tmp_path / "x").exists(), "a hostile message does no harm"


def fis_messages(*states: str) -> str:
    def event(status: str) -> dict[str, Any]:
        return {
            "version": "0",
            "id": "12345678-1234-1234-1234-123456789012",
            "detail-type": "FIS Experiment State Change",
            "source": "aws.fis",
            "account": "123456789012",
            "time": "2026-01-27T10:00:00Z",
            "region": "us-east-1",
            "resources": ["arn:aws:fis:us-east-1:123456789012:experiment/EXPaBCD1efg2HIJkL3"],
            "detail": {
                "experiment-id": "EXPaBCD1efg2HIJkL3",
                "experiment-template-id": "EXTa1b2c3de5f6g7h",
                "new-state": {"status": status, "reason": "as it goes"},
                "old-state": {"status": "pending", "reason": ""},
            },
        }

    messages = [
        {"MessageId": str(number), "ReceiptHandle": "h", "Body": json.dumps(event(status))}
        for number, status in enumerate(states)
    ]
    return json.dumps({"Messages": messages})


def test_aws_fis(injector: Injector, tmp_path: Path) -> None:
    line = documented("aws sqs")
    answers = [fis_messages("initiating", "running"), "", fis_messages("running")]
    said = run(injector, tmp_path, line, "aws", answers)
    marker = by_id(injector)["fis-EXPaBCD1efg2HIJkL3"]
    assert marker.fault_type == "aws_fis" and marker.end is None, said
    assert marker.target_worker == "EXTa1b2c3de5f6g7h"
    run(injector, tmp_path, line, "aws", [fis_messages("stopping", "stopped")])
    assert by_id(injector)["fis-EXPaBCD1efg2HIJkL3"].end is not None
    assert len(injector.markers()) == 1
