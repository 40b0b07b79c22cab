"""Every panel, annotation and variable of every board is run against a real Prometheus."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.dashboards.boards import NAMES, Query, all_queries, filled, variable_queries
from tests.dashboards.scene import JOB, SLOW, Scene
from tests.fakes.nvml import FakeNvml
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH"),
    pytest.mark.skipif(
        shutil.which("prometheus-node-exporter") is None, reason="needs prometheus-node-exporter"
    ),
    pytest.mark.skipif(
        os.geteuid() != 0, reason="needs root to see the sockets of other processes"
    ),
]


OF_DAYS = ("Lemons",)
"""Panels of what takes days: tests/lemons has their data."""


@pytest.fixture(scope="module")
def scene(
    tmp_path_factory: pytest.TempPathFactory, nvml_library: Path, lab: SlurmCluster
) -> Iterator[Scene]:
    """The cluster in trouble, with something of every kind."""
    lab.empty()
    directory = tmp_path_factory.mktemp("scene")
    measured = lab.submit("--gres=gpu:h200:2", "--partition=gpu")
    for node in ("h2", "h3"):  # of the one there is an agent
        lab.submit("--gres=gpu:h200:1", "--partition=gpu", f"--nodelist={node}")
    lab.submit("--gres=gpu:h200:8", "--partition=gpu", "--nodes=3", "--exclusive")
    again = lab.submit("--requeue", "--partition=cpu")
    short = lab.submit("--partition=cpu", script="true")
    lab.wait_job(again, "RUNNING")
    lab.run("scontrol", "requeue", again)
    scene = Scene(directory, FakeNvml(nvml_library, directory))
    try:
        # No node of this Slurm has an agent: its prolog would have said so on a node that has one.
        (directory / "jobs" / measured).write_text("user=alice\ngpus=2,3\nstarted=1\n")
        api = scene.start(lab.env, measured)
        lab.run("scontrol", "update", "nodename=m1", "state=drain", "reason=bad GPU")
        lab.wait_job(short, "COMPLETED", "")
        query = 'slurm_node_unavailable_info{node="m1"}'
        wait_for(lambda: api.query(query), "the drain to be seen", 120)
        lab.run("scontrol", "update", "nodename=m1", "state=resume")
        lab.run("scontrol", "update", "nodename=h3", "state=drain", "reason=bad GPU")
        lab.submit("--partition=cpu", script="true")
        scene.trouble(api)
        yield scene
    finally:
        scene.stop()
        lab.empty()


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_and_annotation_has_data(name: str, scene: Scene) -> None:
    empty = [q for q in all_queries(name) if q.where.partition(" [")[0] not in OF_DAYS]

    def full() -> bool:
        empty[:] = [query for query in empty if not _has_data(scene, query)]
        return not empty

    try:
        wait_for(full, "data in every panel", 150, pause=1.0)
    except AssertionError:
        pytest.fail("empty:\n" + "\n".join(f"{query}: {query.expr}" for query in empty))


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_offers_values(name: str, scene: Scene) -> None:
    for _, query, label in variable_queries(name):
        expr = f"count by ({label}) ({filled(query.expr)}) and count by ({label}) "
        assert scene.asked(expr + f'({filled(query.expr)[:-1]}, {label}!=""}})', instant=True)


def _has_data(scene: Scene, query: Query) -> bool:
    for job in (JOB, "540", "701", SLOW, scene.measured):
        if scene.asked(filled(query.expr, job_id=job), instant=query.instant):
            return True
        if "$job_id" not in query.expr:
            return False
    return False
