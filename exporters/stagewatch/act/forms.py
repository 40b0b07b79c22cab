"""Formats a proposal for Slurm, NVSentinel, NVRx and Kubernetes.

NVSentinel: the JSON of `HealthEvents` in its data-models/protobufs/health_event.proto.  NVRx: what
a health check prints for `nvhcd`, by "Compatible service contract" of its fault tolerance guide.
Kubernetes: `Event` and `NodeCondition` of the core API, v1.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from stagewatch.core.words import printable
from stagewatch.judgement.hardware import SURE, Proposal

PREFIX = "stagewatch: "
"""The start of all our texts; nothing else is undone."""
CONDITION = "StagewatchHardwareFault"
_MOST_REASON, _MOST_MESSAGE = 300, 1000
_UNUSUAL = re.compile(r"[^A-Za-z0-9 .,:;()/+_-]")
"""It contains job names: no quote, bracket or `=`, which would confuse Slurm's parser."""


def reason(proposal: Proposal, case: str) -> str:
    """One line for a drained node: the reason, the confidence, when it expires, and the case."""
    until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(proposal.until))
    gpu = f" (GPU {proposal.uuid})" if proposal.uuid else ""
    told = f"{proposal.confidence}, until {until}, case {case}"
    why = f"{proposal.why}{gpu}"[: _MOST_REASON - len(PREFIX) - len(told) - 2]
    return PREFIX + _UNUSUAL.sub("_", f"{why}; {told}")


def is_reason(line: str) -> bool:
    """Whether a text is a line of `reason`; those of health-check.sh start in the same way."""
    return line.startswith(PREFIX) and f"; {SURE}, until " in line


def is_about(line: str, job_id: str) -> bool:
    """Whether a text holds a line of `reason` for this job."""
    return PREFIX in line and f" of job {_UNUSUAL.sub('_', printable(job_id))} " in line


def nvsentinel(proposals: Sequence[Proposal], case: str) -> dict[str, Any]:
    """`HealthEvents`: fatal, to be remedied, only where the proposal is sure."""
    return {"version": 1, "events": [_health_event(one, case) for one in proposals]}


def _health_event(one: Proposal, case: str) -> dict[str, Any]:
    sure = one.confidence == SURE
    reset = one.witness == "GPURecoveryNeeded"
    on_gpu = one.component == "GPU" and one.uuid
    return {
        "version": 1,
        "agent": "stagewatch",
        "componentClass": one.component,
        "checkName": one.witness,
        "isFatal": sure,
        "isHealthy": False,
        "message": one.why[:_MOST_MESSAGE],
        "recommendedAction": "COMPONENT_RESET" if reset else "CONTACT_SUPPORT",
        "errorCode": [one.code or one.witness],
        "entitiesImpacted": [
            {"entityType": "GPU_UUID", "entityValue": one.uuid}
            if on_gpu
            else {"entityType": "Node", "entityValue": one.node}
        ],
        "metadata": {
            "job_id": one.job_id,
            "role": one.role,
            "rank": str(one.rank),
            "evidence": one.evidence,
            "confidence": one.confidence,
            "case": case,
            "since": utc(one.since),
            "until": utc(one.until),
        },
        "generatedTimestamp": utc(one.time),
        "nodeName": one.node,
        "processingStrategy": "EXECUTE_REMEDIATION" if sure else "STORE_ONLY",
    }


def nvrx(proposals: Sequence[Proposal], now: float) -> dict[str, Any]:
    """Whether a node is healthy: `fail_count` is 0 unless a proposal is sure and still counts."""
    failed = [one for one in proposals if one.confidence == SURE and now < one.until]
    checks = [f"{one.witness}: {one.why}" for one in failed]
    return {"fail_count": len(failed), "failed_checks": checks}


def event(one: Proposal, case: str) -> dict[str, Any]:
    """A Kubernetes event of the node; `kubectl describe node` finds it by its name as uid.

    Every judge gives it the same name, so the server accepts only one of them.
    """
    when = utc(one.time)
    of = "\0".join((one.cluster, one.job_id, one.node, one.witness))
    name = f"stagewatch-{blake2b(of.encode(), digest_size=8).hexdigest()}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": one.node, "uid": one.node},
        "type": "Warning",
        "reason": one.witness,
        "message": reason(one, case)[:_MOST_MESSAGE],
        "source": {"component": "stagewatch"},
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }


def condition(why: str, witness: str, now: float, *, fault: bool) -> dict[str, Any]:
    """A patch of a node's status that sets our condition, or clears it."""
    held = {"type": CONDITION, "status": str(fault), "reason": witness, "message": why}
    times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), utc(now))
    return {"status": {"conditions": [held | times]}}


def utc(seconds: float) -> str:
    """RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def lines(one: Proposal, case: str) -> list[str]:
    """A time for people."""
    gpu = f", GPU {one.uuid}" if one.uuid else ""
    return [
        f"{one.node}{gpu}: {one.confidence}, {one.component}: {one.why}",
        f"  since {utc(one.since)}; counts until {utc(one.until)}; case {case}",
    ]
