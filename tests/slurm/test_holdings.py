"""Every configured GPU has one holder, though queue and nodes are of different moments."""

from __future__ import annotations

from dataclasses import replace

from stagewatch.slurm.collectors import holdings
from stagewatch.slurm.collectors.holdings import HELD, UNHELD
from stagewatch.slurm.model import Job, Node
from stagewatch.slurm.notation import NodeGpus
from tests.golden import assert_golden
from tests.slurm.ledger_scene import job as base_job
from tests.slurm.scene import JOBS, NODES

BASE_NODE = NODES.items[0]


def node(name: str, *gpus: tuple[str, int], state: str = "IDLE", flags: str = "") -> Node:
    """A node with these GPUs by Slurm's type."""
    return replace(
        BASE_NODE,
        name=name,
        state=state,
        flags=frozenset(flags.split()),
        gpus=tuple(NodeGpus(kind, number, 0) for kind, number in gpus),
    )


def job(job_id: int, nodes: str, *gpus: tuple[str, int], state: str = "RUNNING") -> Job:
    """A job with these GPUs in all."""
    return base_job(job_id, state, node_list=nodes, gpus=gpus)


def found(
    jobs: list[Job], nodes: list[Node], most: int = 1000
) -> dict[tuple[str, ...], float | None]:
    """Job, model and state, or an empty job, with the GPUs; and that they add up."""
    samples = holdings.measure(jobs, nodes, most)
    told: dict[tuple[str, ...], float | None] = {}
    for job_id, user, account, partition, model, state in samples.families.get(HELD, {}):
        owner = (job_id, user, account, partition)
        told[job_id, model, state] = samples.value(HELD, *owner, model, state)
    for model, state in samples.families[UNHELD]:
        if number := samples.value(UNHELD, model, state):
            told["", model, state] = number
    configured = sum(of.configured for node in nodes for of in node.gpus if node.state != "FUTURE")
    assert sum(number or 0 for number in told.values()) == configured
    return told


def test_holdings_golden() -> None:
    """The small cluster of the fixtures."""
    jobs, nodes = JOBS.items, NODES.items
    assert_golden(holdings.measure(jobs, nodes), "slurm/holdings.prom")


def test_what_no_job_has_is_in_the_state_of_its_node() -> None:
    nodes = [
        node("n1", ("h200", 8)),
        node("n2", ("h200", 8), flags="DRAIN"),
        node("n3", ("h200", 8), state="DOWN", flags="DRAIN"),
        node("n4", ("h200", 8), flags="RESERVED"),
        node("n5", ("h200", 8), flags="MAINTENANCE DRAIN"),
        node("n6", ("h200", 8), flags="NOT_RESPONDING"),
        node("n7", ("h200", 8), flags="FAIL"),
        node("n8", ("h200", 8), state="FUTURE"),
    ]
    assert found([job(1, "n[1-2,4]", ("h200", 6))], nodes) == {
        ("1", "h200", "RUNNING"): 6,
        ("", "h200", "free"): 6,
        ("", "h200", "drained"): 6 + 8 + 8,
        ("", "h200", "reserved"): 6,
        ("", "h200", "down"): 8 + 8,
    }


def test_a_job_has_gpus_of_the_types_it_asked_for_or_of_those_its_nodes_have() -> None:
    mixed = node("m1", ("h200", 4), ("a100", 4))
    assert found([job(1, "m1", ("a100", 3)), job(2, "m1", ("h200", 2))], [mixed]) == {
        ("1", "a100", "RUNNING"): 3,
        ("2", "h200", "RUNNING"): 2,
        ("", "h200", "free"): 2,
        ("", "a100", "free"): 1,
    }
    untyped = [node("n1", ("h200", 8)), node("n2", ("custom", 8)), node("n3", ("", 2))]
    assert found([job(1, "n[1-3]", ("", 18))], untyped) == {
        ("1", "h200", "RUNNING"): 8,
        ("1", "custom", "RUNNING"): 8,
        ("1", "untyped", "RUNNING"): 2,
    }


def test_no_gpu_is_counted_for_a_job_that_ends_and_for_the_one_that_follows_it() -> None:
    """The queue lists both for a moment; so it does with a suspended one under a running one."""
    nodes = [node("n1", ("h200", 8))]
    jobs = [
        job(1, "n1", ("h200", 8), state="COMPLETING"),
        job(2, "n1", ("h200", 4), state="SUSPENDED"),
        job(3, "n1", ("h200", 6)),
    ]
    assert found(jobs, nodes) == {("2", "h200", "SUSPENDED"): 2, ("3", "h200", "RUNNING"): 6}


def test_jobs_beyond_the_limit_have_no_name_and_keep_their_gpus() -> None:
    nodes = [node("n1", ("h200", 8)), node("n2", ("h200", 8))]
    jobs = [job(1, "n1", ("h200", 3)), job(2, "n1", ("h200", 1)), job(3, "n2", ("h200", 8))]
    assert found(jobs, nodes, most=1) == {
        ("3", "h200", "RUNNING"): 8,
        ("", "h200", "RUNNING"): 4,
        ("", "h200", "free"): 4,
    }
