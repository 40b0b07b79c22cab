"""What Prometheus is told to scrape, in HTTP SD's format."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stagewatch.slurm.discovery import Discovery, Exporter, Target, targets_of
from stagewatch.slurm.model import Node
from stagewatch.slurm.notation import NodeGpus

EXPORTERS = (Exporter("stagewatch", 9947), Exporter("dcgm", 9400))


def node(name: str, **changes: object) -> Node:
    """A node of the controller's list."""
    values: dict[str, object] = {
        "name": name,
        "state": "IDLE",
        "flags": frozenset(),
        "partitions": ("gpu",),
        "gpus": (NodeGpus("h200", 8, 0),),
        "address": name,
        "reason": "",
        "reason_user": "",
        "reason_time": None,
        **changes,
    }
    return Node(**values)  # type: ignore[arg-type]


def served(discovery: Discovery, path: str = "/sd") -> object:
    """What a path answers."""
    content_type, body = discovery.routes()[path]()
    assert content_type == "application/json"
    return json.loads(body)


def test_every_node_and_exporter_is_a_group_with_its_labels() -> None:
    """Changing facts are for relabelling; only cluster and node become labels."""
    discovery = Discovery(EXPORTERS, cluster="big")
    nodes = [
        node("n9", address="10.0.0.9", gpus=()),
        node("n10", flags=frozenset(["DRAIN"]), state="MIXED", partitions=("gpu", "all")),
        node("n99", state="FUTURE"),
        node("v6", address="fd00::1"),
    ]
    discovery.update(targets_of(nodes))
    groups = served(discovery)
    assert isinstance(groups, list)
    assert [group["targets"] for group in groups] == [
        *(["10.0.0.9:9947"], ["10.0.0.9:9400"], ["n10:9947"], ["n10:9400"]),
        *(["[fd00::1]:9947"], ["[fd00::1]:9400"]),
    ]
    assert groups[3]["labels"] == {
        "cluster": "big",
        "node": "n10",
        "__meta_slurm_exporter": "dcgm",
        "__meta_slurm_partitions": ",gpu,all,",
        "__meta_slurm_state": "MIXED",
        "__meta_slurm_flags": ",DRAIN,",
        "__meta_slurm_gpu_types": ",h200,",
    }
    assert len(served(discovery, "/sd/dcgm")) == 3  # type: ignore[arg-type]


def test_the_last_good_list_outlives_the_agent(tmp_path: Path) -> None:
    """Of the cluster that is still watched, and of no other."""
    first = Discovery(EXPORTERS, cluster="a", memory=tmp_path)
    first.update(targets_of([node("n1")]))
    second = Discovery(EXPORTERS, cluster="a", memory=tmp_path)
    assert served(second) == served(first)
    assert second.targets == first.targets
    assert Discovery(EXPORTERS, cluster="b", memory=tmp_path).targets is None


@given(st.text(max_size=20), st.lists(st.text(max_size=8), max_size=3))
def test_any_name_makes_valid_json(name: str, partitions: list[str]) -> None:
    """Names come from slurm.conf, and are quoted all the same."""
    discovery = Discovery([Exporter("x", 1)])
    discovery.update((Target(name, name, tuple(partitions), "IDLE", (), ()),))
    (group,) = served(discovery)  # type: ignore[misc]
    assert group["labels"]["node"] == name
