"""What others read of a proposal has the shape that their public definitions give it.

NVSentinel: data-models/protobufs/health_event.proto; JSON of protobuf has its fields under the same
names, enums by name, times in RFC 3339.  NVRx: "Compatible service contract" in
docs/source/fault_tolerance/usage_guide.rst, and `NodeHealthCheck` in shared_utils/health_check.py.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from stagewatch.act import forms
from stagewatch.cli import main
from stagewatch.judgement.collector import JudgeContext, JudgeOptions
from stagewatch.judgement.service import COMMAND
from tests.act.proposals import case_of, proposal

HEALTH_EVENT = {
    **dict.fromkeys(("agent", "componentClass", "checkName", "message", "nodeName"), str),
    **dict.fromkeys(("isFatal", "isHealthy"), bool),
    "version": int,
    "errorCode": list,
    "entitiesImpacted": list,
    "metadata": dict,
    **dict.fromkeys(("recommendedAction", "processingStrategy", "generatedTimestamp"), str),
}
ACTIONS = {"NONE", "COMPONENT_RESET", "CONTACT_SUPPORT", "RUN_FIELDDIAG", "RESTART_VM"}
ACTIONS |= {"RESTART_BM", "REPLACE_VM", "RUN_DCGMEUD", "UNKNOWN"}
STRATEGIES = {"UNSPECIFIED", "EXECUTE_REMEDIATION", "STORE_ONLY"}
RFC_3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def platform_connector(content: Any) -> list[dict[str, Any]]:
    """What NVSentinel's platform connector takes; fails for what it would refuse."""
    assert content.keys() == {"version", "events"}
    for event in content["events"]:
        assert {name: type(value) for name, value in event.items()} == HEALTH_EVENT
        assert event["recommendedAction"] in ACTIONS
        assert event["processingStrategy"] in STRATEGIES
        assert re.fullmatch(RFC_3339, event["generatedTimestamp"])
        assert all(isinstance(code, str) for code in event["errorCode"])
        assert all(isinstance(value, str) for value in event["metadata"].values())
        for entity in event["entitiesImpacted"]:
            assert entity.keys() == {"entityType", "entityValue"}
    events: list[dict[str, Any]] = content["events"]
    return events


def nvrx_is_healthy(status: int, output: str) -> bool:
    """What NVRx makes of the exit status and the output of a health check."""
    if status:
        return False
    try:
        return bool(json.loads(output)["fail_count"] == 0)
    except (json.JSONDecodeError, KeyError):
        return False


def run(*argv: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = main(["act", *argv])
    return status, said.getvalue()


@pytest.fixture
def case(tmp_path: Path) -> Path:
    doubtful = proposal("n3", confidence="likely", uuid="", witness="NetworkLinkDown", code="")
    return case_of(tmp_path / "case.json", proposal("n2"), doubtful)


def test_nvsentinel_takes_a_health_event_of_each(case: Path) -> None:
    status, output = run("show", str(case), "--as=nvsentinel")
    assert status == 0
    sure, doubtful = platform_connector(json.loads(output))
    assert (sure["nodeName"], sure["componentClass"], sure["errorCode"]) == ("n2", "GPU", ["79"])
    assert sure["entitiesImpacted"] == [{"entityType": "GPU_UUID", "entityValue": "GPU-5"}]
    assert sure["isFatal"] and sure["processingStrategy"] == "EXECUTE_REMEDIATION"
    assert sure["metadata"]["case"] == "case.json"
    assert sure["metadata"]["confidence"] == "sure"
    assert not doubtful["isFatal"] and doubtful["processingStrategy"] == "STORE_ONLY"
    assert doubtful["entitiesImpacted"] == [{"entityType": "Node", "entityValue": "n3"}]


def test_the_judge_answers_nvrx_for_each_node() -> None:
    context = JudgeContext(JudgeOptions())
    page = COMMAND.lookups(context)["/api/v1/nodes/"]

    def healthy(node: str) -> bool:
        found = page(node)
        return nvrx_is_healthy(0, found[1].decode())

    assert healthy("n2")
    context.standing = (proposal("n2"), proposal("n3", until=1.0))
    assert not healthy("n2")
    assert healthy("n3")


def test_people_are_told_node_gpu_why_how_sure_until_when_and_the_case(case: Path) -> None:
    status, output = run("show", str(case), "--node=n2")
    assert status == 0
    assert "n2, GPU GPU-5: sure, GPU: XID 79; rank 5 of job 540 has not entered" in output
    assert "counts until 2" in output
    assert "case case.json" in output


def test_a_case_that_proposes_nothing_says_so(tmp_path: Path) -> None:
    case = str(case_of(tmp_path / "case.json"))
    assert run("show", case)[0] == 3
    assert run("drain", case)[0] == 3
    assert run("show", str(tmp_path / "none"))[0] == 1


def test_a_reason_is_short_and_has_nothing_that_slurm_reads() -> None:
    long = proposal(why='"' * 50 + "[x]=\n" + "y" * 500)
    told = forms.reason(long, "case.json.gz")
    assert len(told) <= 300
    assert not re.search(r"[^A-Za-z0-9 .,:;()/+_-]", told)
    assert told.endswith("case case.json.gz")
