"""One normaliser for every shape of Slurm's JSON, from 22.05 to 26.05.

The fixtures describe one cluster in the shape of each version's documented schema.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.slurm.model import (
    Job,
    exit_status,
    number,
)
from stagewatch.slurm.notation import NodeGpus
from stagewatch.slurm.transport import json as slurm_json

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"
VERSIONS = sorted(path.stem for path in FIXTURES.glob("*-v0.0.*.json"))
T = 1750000000

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["set", "infinite", "number", "job_id", "name", "state", "signal"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


def load(version: str, part: str) -> Any:
    """One answer of one version."""
    return json.loads((FIXTURES / f"{version}.json").read_text())[part]


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_are_the_same_in_every_shape(version: str) -> None:
    """States, reasons, tasks, GPUs, times and exit codes."""
    found = slurm_json.jobs(load(version, "jobs"))
    assert found.malformed == 0
    jobs = {job.job_id: job for job in found.items}
    assert jobs[101] == Job(
        job_id=101,
        array_job_id=None,
        tasks=1,
        state="RUNNING",
        reason="",
        partitions=("gpu",),
        user="ada",
        account="physics",
        node_list="n[1-2]",
        gpus=(("h200", 16),),
        submit=T,
        eligible=T + 1,
        start=T + 60,
        end=T + 86460,
        restarts=2,
        preempted=T + 3600,
        gres_detail=("gpu:h200:8(IDX:0-7)", "gpu:h200:8(IDX:0-7)"),
    )
    assert jobs[102].partitions == ("gpu", "mixed")
    assert jobs[102].reason == "ReqNodeNotAvail"
    assert jobs[102].gpus == (("", 6),)
    assert (jobs[102].start, jobs[102].end) == (None, None)
    assert (jobs[103].tasks, jobs[103].gpus, jobs[103].array_job_id) == (10, (("", 1),), None)
    assert (jobs[104].state, jobs[104].array_job_id) == ("COMPLETING", 103)
    assert (jobs[105].exit_code, jobs[105].signal) == (7, 0)
    assert (jobs[106].exit_code, jobs[106].signal) == (0, 11)
    assert (jobs[107].user, jobs[107].eligible) == ("4242", None)
    assert jobs[108].state == "FROZEN"


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_are_the_same_in_every_shape(version: str) -> None:
    """Base state, flags (unknown ones too), GPUs, and why a node is out."""
    found = slurm_json.nodes(load(version, "nodes"))
    assert found.malformed == 0
    nodes = {node.name: node for node in found.items}
    assert (nodes["n1"].state, nodes["n1"].flags) == ("ALLOCATED", frozenset())
    assert nodes["n1"].gpus == (NodeGpus("h200", 8, 8, tuple(range(8))),)
    assert nodes["n1"].address == "10.0.0.1"
    assert nodes["n1"].partitions == ("gpu", "all")
    assert (nodes["n2"].state, nodes["n2"].flags) == ("MIXED", {"DRAIN"})
    assert nodes["n2"].reason == "Xid 79 [GPU 3] ticket|42"
    assert (nodes["n2"].reason_user, nodes["n2"].reason_time) == ("root", T + 100)
    assert nodes["n3"].gpus == (NodeGpus("a100", 2, 1, (2,)), NodeGpus("h200", 2, 0))
    assert (nodes["n4"].state, nodes["n4"].flags) == ("DOWN", {"NOT_RESPONDING"})
    assert nodes["n5"].flags == {"POWERED_DOWN", "CLOUD", "FROBNICATED"}


@pytest.mark.parametrize("version", VERSIONS)
def test_ended_runs_are_the_same_in_every_shape(version: str) -> None:
    """One that never started has no start; one that runs has not ended."""
    found = {job.job_id: job for job in slurm_json.ended_jobs(load(version, "slurmdb_jobs")).items}
    states = {job_id: job.state for job_id, job in found.items()}
    assert states == {90: "COMPLETED", 91: "FAILED", 92: "FAILED", 93: "NODE_FAIL", 94: "CANCELLED"}
    assert (found[91].exit_code, found[91].signal) == (7, 0)
    assert (found[92].exit_code, found[92].signal) == (0, 11)
    assert (found[93].submit, found[93].start, found[93].end) == (T - 900, T - 800, T - 400)
    assert (found[94].tasks, found[94].start, found[94].partition) == (5, None, "gpu")


@given(anything)
def test_no_value_is_fatal(value: object) -> None:
    """Whatever a later version may print, the readers of values return something."""
    assert number(value) is None or isinstance(number(value), int)
    code, signal = exit_status(value)
    assert isinstance(code, int)
    assert isinstance(signal, int)


@given(st.lists(anything, max_size=5))
@settings(max_examples=200)
def test_records_of_unknown_shapes_are_counted_beside_good_ones(odd: list[object]) -> None:
    """A good job in the middle of rubbish is still read, and the rubbish is counted."""
    good = load("26.05-v0.0.45", "jobs")["jobs"][0]
    found = slurm_json.jobs({"jobs": [*odd, good]})
    assert found.items[-1].job_id == 101
    assert len(found.items) + found.malformed == len(odd) + 1
