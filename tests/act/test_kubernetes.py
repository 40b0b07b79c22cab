"""Nodes of a Kubernetes that are marked and unmarked: a stand-in for its API, by its definition.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stagewatch.act.forms import CONDITION
from stagewatch.act.kubernetes import KubernetesSite
from stagewatch.act.site import Refused, SiteOptions, act
from stagewatch.core.errors import SourceError
from tests.act.proposals import proposal
from tests.serving import Reply, Request, WebServer

OPTIONS = SiteOptions()


class Api(WebServer):
    """Nodes and events; patches conditions by their type, as a strategic merge does."""

    def __init__(self, *nodes: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.nodes: dict[str, Any] = {
            name: {"metadata": {"name": name}, "spec": {}, "status": {"conditions": [ready]}}
            for name in nodes
        }
        self.events: list[Any] = []
        self.tokens: set[str] = set()
        super().__init__(self._reply)

    def _reply(self, request: Request) -> Reply:
        self.tokens.add(request.headers["Authorization"])
        body = json.loads(request.body or b"null")
        status, told = self.answer(request.method, request.path, body, request.headers)
        return Reply(json.dumps(told).encode(), status)

    def answer(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        if (method, path) == ("GET", "/api/v1/nodes"):
            return 200, {"kind": "NodeList", "items": list(self.nodes.values())}
        if (method, path) == ("POST", "/api/v1/namespaces/default/events"):
            assert headers["Content-Type"] == "application/json"
            if body["metadata"]["name"] in {event["metadata"]["name"] for event in self.events}:
                return 409, {"kind": "Status", "reason": "AlreadyExists"}
            self.events.append(body)
            return 201, body
        match = re.fullmatch(r"/api/v1/nodes/([^/]+)/status", path)
        if method == "PATCH" and match and match[1] in self.nodes:
            assert headers["Content-Type"] == "application/strategic-merge-patch+json"
            node = self.nodes[match[1]]
            conditions = {one["type"]: one for one in node["status"]["conditions"]}
            conditions |= {one["type"]: one for one in body["status"]["conditions"]}
            node["status"]["conditions"] = list(conditions.values())
            return 200, node
        return 403, {"kind": "Status", "status": "Failure"}

    def condition(self, node: str) -> dict[str, Any]:
        found = {one["type"]: one for one in self.nodes[node]["status"]["conditions"]}
        return found.get(CONDITION, {})


@pytest.fixture
def api() -> Iterator[Api]:
    with closing(Api("n1", "n2", "n3")) as api:
        yield api


@pytest.fixture
def site(api: Api, tmp_path: Path) -> KubernetesSite:
    (tmp_path / "token").write_text("secret\n")
    return KubernetesSite(api.url, tmp_path)


def drain(site: KubernetesSite, node: str, options: SiteOptions = OPTIONS) -> None:
    act(site, "drain", proposal(node), "case.json.gz", options, time.time())


def test_a_node_has_the_condition_until_that_is_undone(api: Api, site: KubernetesSite) -> None:
    drain(site, "n1")
    held = api.condition("n1")
    assert (held["status"], held["reason"]) == ("True", "GPUXidCritical")
    assert "XID 79" in held["message"] and "case case.json.gz" in held["message"]
    assert [event["involvedObject"]["name"] for event in api.events] == ["n1"]
    assert api.tokens == {"Bearer secret"}
    assert site.ours() == ["n1"]
    with pytest.raises(Refused, match="marked already"):
        drain(site, "n1")
    assert site.undo("n1") == ["n1 is marked no more"]
    assert api.condition("n1")["status"] == "False"
    assert site.undo("n1") == []


def test_a_comment_is_an_event_alone(api: Api, site: KubernetesSite) -> None:
    act(site, "comment", proposal("n1"), "case.json.gz", OPTIONS, time.time())
    act(site, "comment", proposal("n1"), "of-another-judge.json.gz", OPTIONS, time.time())
    assert len(api.events) == 1
    assert not api.condition("n1")


def test_a_judge_that_comes_later_knows_what_was_marked_and_taken_back(
    api: Api, site: KubernetesSite
) -> None:
    assert not site.was_taken_out(proposal("n1"))
    drain(site, "n1")
    assert site.was_taken_out(proposal("n1"))
    site.undo("n1")
    assert site.was_taken_out(proposal("n1"))
    assert not site.was_taken_out(proposal("n1", job_id="541"))
    assert "taken back: stagewatch: XID 79" in api.condition("n1")["message"]


def test_the_limits_hold(api: Api, site: KubernetesSite) -> None:
    with pytest.raises(Refused, match="only likely"):
        act(site, "drain", proposal("n1", confidence="likely"), "c", OPTIONS, time.time())
    with pytest.raises(Refused, match="knows no such node"):
        drain(site, "n9")
    drain(site, "n1")
    with pytest.raises(Refused, match=r"the limit of nodes per hour is reached \(1 taken out\)"):
        drain(site, "n2", SiteOptions(nodes_per_hour=1))
    api.nodes["n3"]["spec"]["unschedulable"] = True
    with pytest.raises(Refused, match="the last node that takes pods"):
        drain(site, "n2")


def test_a_server_that_refuses_or_is_away_is_told(api: Api, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not answer"):
        drain(KubernetesSite("http://127.0.0.1:9", tmp_path), "n1")
    refused = KubernetesSite(f"{api.url}/elsewhere", tmp_path)
    with pytest.raises(SourceError, match="refuses GET /api/v1/nodes: 403"):
        drain(refused, "n1")
