"""However a cluster looks, each configured GPU is in exactly one state, and none in two.

The series are what the Slurm agent itself makes of random jobs and nodes, with random ranks, agents
and GPUs beside them.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from stagewatch.core.exposition import Metric, Samples
from stagewatch.slurm.collectors import holdings, jobs
from stagewatch.slurm.model import Job, Node
from stagewatch.slurm.notation import NodeGpus
from stagewatch.stages import STAGES
from tests.alerts.courses import Case, play_together
from tests.alerts.promtool import needs_promtool, series
from tests.slurm.ledger_scene import job as base_job
from tests.slurm.test_holdings import BASE_NODE

pytestmark = needs_promtool

LENGTH = 10
"""Looks in a course, two seconds apart."""
ALL = "job:goodput_gpus:count or cluster:goodput_gpus:count"
BY_MODEL = f"sum by (cluster, model) ({ALL})"
NONE_BELOW_0 = f"count by (cluster) (({ALL}) < 0)"
PER_JOB = 'sum by (cluster, job_id, model) (job:goodput_gpus:count{job_id!=""})'
STATES_OF_SLURM = ("RUNNING", "RUNNING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING")


def random_nodes(draw: random.Random) -> list[Node]:
    """Nodes of one or two types in any state, some without GPUs."""
    nodes = []
    for number in range(draw.randint(1, 6)):
        kinds = draw.sample(("h200", "a100", "custom", ""), draw.choice((0, 1, 1, 1, 2)))
        flags = draw.choice(((), (), (), ("DRAIN",), ("RESERVED",), ("FAIL",), ("NOT_RESPONDING",)))
        nodes.append(
            replace(
                BASE_NODE,
                name=f"n{number}",
                state=draw.choice(("IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN", "FUTURE")),
                flags=frozenset(flags),
                gpus=tuple(NodeGpus(kind, draw.randint(1, 8), 0) for kind in kinds),
            )
        )
    return nodes


def random_jobs(draw: random.Random, nodes: list[Node]) -> list[Job]:
    """Jobs on these nodes and others, that may ask for more than there is."""
    names = [node.name for node in nodes] + ["gone"]
    return [
        base_job(
            number,
            draw.choice(STATES_OF_SLURM),
            node_list=",".join(draw.sample(names, draw.randint(1, len(names)))),
            gpus=tuple(
                (kind, draw.randint(1, 12))
                for kind in draw.sample(("h200", "a100", ""), draw.randint(1, 2))
            ),
            start=draw.choice((0, -5000)),
            user=draw.choice(("ada", "bob", "")),
        )
        for number in range(1, draw.randint(1, 7))
    ]


def shown(samples: Samples, *metrics: Metric) -> dict[str, str]:
    """The agent's samples as input series."""
    given = {}
    for metric in metrics:
        for values in samples.families.get(metric, {}):
            labels = dict(zip(metric.labels, values, strict=True))
            text = series(metric.name, cluster="c", **{k: v for k, v in labels.items() if v})
            given[text] = f"{samples.value(metric, *values)}x{LENGTH}"
    return given


def random_ranks(draw: random.Random, job: Job) -> dict[str, str]:
    """Ranks of some roles on some of its nodes; stalled, slow, new, dead."""
    given = {}
    sums: Counter[str] = Counter()
    names = job.node_list.split(",")
    for role in draw.sample(("train", "rollout", "controller"), draw.randint(0, 3)):
        for rank in range(draw.randint(1, 4)):
            who = {
                "cluster": "c",
                "node": draw.choice(names),
                "job_id": job.job_id,
                "role": role,
                "rank": rank,
            }
            place = {name: value for name, value in who.items() if name != "rank"}
            lives = draw.choice((1, 1, 1, 0))
            sums[series("rl_ranks_live", **place)] += lives
            sums[series("rl_stage_ranks", **place, stage=draw.choice(STAGES))] += lives
            if draw.random() < 0.2:
                cost = draw.choice((0.1, 0.5, 1.7))
                slow = series("rank:rl_slow_cost:ratio", **who, peers="")
                given[slow] = f"{cost}x{LENGTH}"
        if draw.random() < 0.2:
            stalled = series("job:rl_stall:active", cluster="c", job_id=job.job_id, role=role)
            given[stalled] = f"2x{LENGTH}"
    return given | {name: f"{count}x{LENGTH}" for name, count in sums.items()}


def random_case(seed: int) -> Case:
    """One cluster, and how many GPUs of each model it has."""
    draw = random.Random(seed)
    nodes = random_nodes(draw)
    queue = random_jobs(draw, nodes)
    limit = draw.choice((1, 3, 1000))
    held = holdings.measure(queue, nodes, limit)
    given = shown(held, holdings.HELD, holdings.UNHELD)
    given |= shown(jobs.measure(queue, nodes, limit), jobs.START, jobs.NODE)
    for job in queue:
        given |= random_ranks(draw, job)
    for node in nodes:
        if draw.random() < 0.7:
            build = series("stagewatch_build_info", cluster="c", node=node.name)
            given[build] = f"1x{LENGTH}"
        for gpu in range(draw.choice((0, 0, 4, 8))):
            place = {"cluster": "c", "node": node.name, "gpu": gpu}
            given[series("gpu:use:ratio", **place)] = f"{draw.choice((0, 0.04, 0.9))}x{LENGTH}"
            if queue:
                owner = draw.choice(queue).job_id
                given[series("gpu:job:info", **place, job_id=owner)] = f"1x{LENGTH}"
    configured: Counter[str] = Counter()
    for node in nodes:
        if node.state != "FUTURE":
            for gpus in node.gpus:
                configured[gpus.type or "untyped"] += gpus.configured
    per_job: defaultdict[tuple[str, str], float] = defaultdict(float)
    for key in held.families.get(holdings.HELD, {}):
        job_id, model = key[0], key[4]
        if job_id:
            per_job[job_id, model] += held.value(holdings.HELD, *key) or 0
    expected = [
        (
            f"round({BY_MODEL}, 0.001)",
            "18s",
            {f'{{cluster="c", model="{model}"}}': float(n) for model, n in configured.items()},
        ),
        (NONE_BELOW_0, "18s", {}),
        (
            f"round({PER_JOB}, 0.001)",
            "18s",
            {
                f'{{cluster="c", job_id="{job_id}", model="{model}"}}': number
                for (job_id, model), number in per_job.items()
            },
        ),
    ]
    return Case(given, expected)


def test_the_states_of_a_random_cluster_add_up_to_what_is_configured(tmp_path: Path) -> None:
    """By model; no state is below zero; and each job has what Slurm says it has."""
    cases = {f"seed {seed}": random_case(seed) for seed in range(60)}
    play_together(tmp_path, ["jobs.rules.yaml", "goodput.rules.yaml"], cases)
