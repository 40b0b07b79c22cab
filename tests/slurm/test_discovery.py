"""What Prometheus is told to scrape, in HTTP SD's format."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stagewatch.slurm.discovery import Discovery, Exporter
from stagewatch.slurm.notation import NodeGpus
from tests.slurm.ledger_scene import node

GPUS = (NodeGpus("h200", 8, 0),)
EXPORTERS = (Exporter("stagewatch", 9947), Exporter("dcgm", 9400))


def served(discovery: Discovery, path: str = "/sd") -> object:
    """What a path answers."""
    content_type, body = discovery.routes()[path]()
    assert content_type == "application/json"
    return json.loads(body)


def test_every_node_and_exporter_is_a_group_with_its_labels() -> None:
    """Changing facts are for relabelling; only cluster and node become labels."""
    discovery = Discovery(EXPORTERS, cluster="big")
    nodes = [
        node("n9", address="10.0.0.9"),
        node("n10", "MIXED", "DRAIN", partitions=("gpu", "all"), gpus=GPUS),
        node("n99", "FUTURE"),
        node("v6", address="fd00::1"),
    ]
    discovery.update(nodes)
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
    first.update([node("n1")])
    second = Discovery(EXPORTERS, cluster="a", memory=tmp_path)
    assert served(second) == served(first)
    assert second.places == first.places
    assert Discovery(EXPORTERS, cluster="b", memory=tmp_path).places is None


@given(st.text(max_size=20), st.lists(st.text(max_size=8), max_size=3))
def test_any_name_makes_valid_json(name: str, partitions: list[str]) -> None:
    """Names come from slurm.conf, and are quoted all the same."""
    discovery = Discovery([Exporter("x", 1)])
    discovery.update([node(name, partitions=tuple(partitions))])
    (group,) = served(discovery)  # type: ignore[misc]
    assert group["labels"]["node"] == name
