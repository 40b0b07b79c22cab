"""Marks nodes of Kubernetes through its API: an event for a comment, and a condition of the node
for a drain, by which NVSentinel, Draino and others cordon; this cordons nothing itself.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/
"""

from __future__ import annotations

import calendar
import contextlib
import re
import time
from pathlib import Path
from typing import Any

import requests

from stagewatch.act.forms import CONDITION, condition, event, is_about, reason
from stagewatch.core.errors import SourceError
from stagewatch.judgement.hardware import Proposal
from stagewatch.prometheus.failure import why_unanswered

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 10.0
CONFLICT = 409
"""The server's answer if the name of an object is taken."""
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PATCH = "application/strategic-merge-patch+json"


class KubernetesSite:
    """The nodes of one cluster, as a service account that may list nodes, create events, and patch
    the status of nodes."""

    def __init__(self, url: str, account: Path = ACCOUNT) -> None:
        """`account`: directory with the account's token and the server's CA certificate."""
        self._url = url.rstrip("/")
        self._account = account

    def taken(self, since: float) -> set[str]:
        """The nodes that have had our condition since this time."""
        return {
            name
            for name, node in self._nodes().items()
            if (held := _held(node)) and _seconds(held) > since
        }

    def was_taken_out(self, proposal: Proposal) -> bool:
        """Whether our condition on its node was set for this job, even if it is cleared now."""
        held = _conditions(self._nodes().get(proposal.node, {})).get(CONDITION, {})
        return is_about(held.get("message", ""), proposal.job_id)

    def out(self, node: str) -> str:
        """Why the node cannot be marked."""
        nodes = self._nodes()
        if node not in nodes:
            return "Kubernetes knows no such node"
        return "it is marked already" if _held(nodes[node]) else ""

    def last(self, node: str) -> str:
        """Whether no other node takes pods; the whole cluster counts as one partition."""
        others = [other for name, other in self._nodes().items() if name != node]
        return "" if any(map(_takes_pods, others)) else "it is the last node that takes pods"

    def comment(self, proposal: Proposal, case: str) -> None:
        """Create an event for the node, unless another judge has done so."""
        path = "/api/v1/namespaces/default/events"
        self._call("POST", path, event(proposal, case), but=CONFLICT)

    def drain(self, proposal: Proposal, case: str) -> None:
        """Create the event, and set the condition."""
        self.comment(proposal, case)
        why = reason(proposal, case)
        self._set(proposal.node, condition(why, proposal.witness, time.time(), fault=True))

    def undo(self, node: str) -> list[str]:
        """Clear the condition; events expire by themselves."""
        held = _held(self._nodes().get(node, {}))
        if not held:
            return []
        why = f"taken back: {held.get('message', '')}"  # by which `was_taken_out` knows the job
        self._set(node, condition(why, "Undone", time.time(), fault=False))
        return [f"{node} is marked no more"]

    def ours(self) -> list[str]:
        """The nodes with our condition."""
        return sorted(name for name, node in self._nodes().items() if _held(node))

    def _set(self, node: str, patch: dict[str, Any]) -> None:
        if not _NODE.fullmatch(node):
            raise SourceError(f"{node!r:.80} is no name of a node of Kubernetes")
        self._call("PATCH", f"/api/v1/nodes/{node}/status", patch, _PATCH)

    def _nodes(self) -> dict[str, Any]:
        found = self._call("GET", "/api/v1/nodes")
        return {node["metadata"]["name"]: node for node in found["items"]}

    def _call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", but: int = 0
    ) -> Any:
        """`but`: an error status that counts as success."""
        headers = {"Content-Type": kind}
        try:
            with contextlib.suppress(FileNotFoundError):  # `kubectl proxy` needs none
                token = (self._account / "token").read_text().strip()  # it is replaced each hour
                headers["Authorization"] = f"Bearer {token}"
            answer = requests.request(
                method,
                self._url + path,
                json=body,
                headers=headers,
                timeout=SECONDS,
                verify=str(self._account / "ca.crt"),
                allow_redirects=False,
            )
            if not answer.ok and answer.status_code != but:
                raise SourceError(f"Kubernetes refuses {method} {path}: {answer.status_code}")
            return answer.json()
        except requests.JSONDecodeError as error:
            raise SourceError(f"{self._url} is no Kubernetes API") from error
        except requests.RequestException as error:
            why = why_unanswered(error, SECONDS)
            raise SourceError(f"{self._url} does not answer: {why}") from error
        except OSError as error:
            raise SourceError(f"{error.filename}: {error.strerror}") from error


def _conditions(node: Any) -> dict[str, Any]:
    return {one["type"]: one for one in node.get("status", {}).get("conditions", ())}


def _held(node: Any) -> Any:
    """Our condition of a node, if it is true."""
    ours = _conditions(node).get(CONDITION)
    return ours if ours and ours["status"] == "True" else None


def _takes_pods(node: Any) -> bool:
    ready = _conditions(node).get("Ready", {}).get("status") == "True"
    return ready and not node.get("spec", {}).get("unschedulable") and not _held(node)


def _seconds(held: Any) -> float:
    return calendar.timegm(time.strptime(held["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ"))
