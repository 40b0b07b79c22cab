"""A large queue in a real slurmctld, and what the agent asks of it."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Munge
from tests.bench.table import percentile, row
from tests.cluster.agent_process import AgentProcess
from tests.cluster.independent import requests, requests_since

NODES = 2_000
USERS = ("root", "daemon", "games", "mail", "news", "backup", "list", "irc", "proxy", "uucp")


def filled(keeper: Keeper, jobs: int) -> SlurmCluster:
    """A cluster with so many jobs in its queue."""
    slurm = SlurmCluster(keeper, keeper.make_directory("bench-slurm-"), _spec(jobs), _munge(keeper))
    slurm.start()
    begin = time.monotonic()
    submit(slurm, jobs)
    print(
        f"\n{NODES:,} nodes and {jobs:,} jobs in a real slurmctld "
        f"(submitted in {time.monotonic() - begin:.0f} s):"
    )
    return slurm


def _munge(keeper: Keeper) -> Munge:
    return Munge(keeper, keeper.make_directory("bench-munge-"))


def _spec(jobs: int) -> ClusterSpec:
    width = len(str(NODES))
    names = tuple(f"s{number:0{width}}" for number in range(1, NODES + 1))
    return ClusterSpec(
        nodes=(NodeSpec(names, gpus=(("h200", 8),), cpus=64, memory=64_000, real=False),),
        partitions=(
            f"gpu Nodes=s[{names[0][1:]}-{names[-1][1:]}] Default=YES DefMemPerCPU=100",
            f"large Nodes=s[{names[0][1:]}-{names[-1][1:]}] DefMemPerCPU=100",
        ),
        name="bench",
        settings=(
            ("MaxJobCount", str(jobs + 1000)),
            ("SchedulerParameters", "defer,sched_interval=3600,bf_interval=3600"),
            ("TreeWidth", "65533"),
        ),
    )


def submit(slurm: SlurmCluster, jobs: int) -> None:
    """Jobs one by one, of several users, shapes and reasons."""

    def one(number: int) -> None:
        flags = [f"--gpus-per-node=h200:{1 + number % 8}", f"--nodes={1 + number % 4}"]
        flags += ["-p", "gpu,large"] if number % 10 == 0 else ["-p", ("gpu", "large")[number % 2]]
        flags += ["--hold"] if number % 5 == 0 else []
        slurm.submit(*flags, user=USERS[number % len(USERS)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(jobs)))


def measure_cycles(keeper: Keeper, slurm: SlurmCluster) -> None:
    """The agent with all its intervals shortened alike; requests as sdiag counts them."""
    shorten = 5  # the queue every 3 s instead of every 15
    flags = [
        f"--collector.{name}.interval={seconds / shorten}s"
        for name, seconds in (
            ("slurm-queue", 15),
            ("slurm-nodes", 30),
            ("slurm-controller", 15),
        )
    ]
    flags += [
        f"--{name}-interval={seconds / shorten}s"
        for name, seconds in (
            ("diagnostics", 30),
            ("ping", 60),
        )
    ]
    agent = AgentProcess(keeper, slurm, slurm.directory, *flags, fast=False)
    cycles = 40
    time.sleep(7.5 / shorten)  # from the middle of a cycle to the middle of another
    before = requests(slurm)
    time.sleep(cycles * 15 / shorten)
    asked = requests_since(slurm, before)
    slurm.daemons.send("slurmctld", signal.SIGSTOP)
    time.sleep(15 / shorten)
    hung = agent.scrape_seconds(50)
    slurm.daemons.send("slurmctld", signal.SIGCONT)
    agent.stop()
    row("scrape while the controller hangs, median", percentile(hung, 0.5) * 1000, "ms")
    row("scrape while the controller hangs, p99", percentile(hung, 0.99) * 1000, "ms", 50)
    row("controller requests in a cycle, as sdiag counts", asked.total() / cycles, "", 4)
    for kind, number in asked.most_common():
        row(f"  {kind}", number / cycles, "")
