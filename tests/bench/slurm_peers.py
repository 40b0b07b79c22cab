"""The agent, gcm, and the commands of text-based exporters, on one real slurmctld.

The commands are those that each exporter issues for one scrape with its defaults, as its source
has them; what the exporter itself then spends on the output is not counted.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Munge
from tests.bench.table import percentile, row
from tests.cluster.agent_process import AgentProcess
from tests.cluster.independent import requests, requests_since

NODES = 2_000
USERS = ("root", "daemon", "games", "mail", "news", "backup", "list", "irc", "proxy", "uucp")
_COLUMNS = "JobID:|,Account:|,UserName:|,Partition:|,State:|,NumNodes:|,NumCPUs:|,tres-alloc:"
_NODE_COLUMNS = (
    "NodeList: ,AllocMem: ,Memory: ,CPUsState: ,StateLong: ,Partition: ,Gres: ,GresUsed:"
)
EXPORTERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "vpenso": (
        ("squeue", "-a", "-r", "-h", "-o", "%A|%a|%T|%C"),
        ("sinfo", "-h", "-o", "%C"),
        ("sinfo", "-h", "-N", "-O", "NodeList,AllocMem,Memory,CPUsState,StateLong"),
        ("sinfo", "-h", "-o", "%D,%T"),
        ("sinfo", "-h", "-o", "%R,%C"),
        ("squeue", "-a", "-r", "-h", "-o", "%P", "--states=PENDING"),
        ("squeue", "-a", "-r", "-h", "-o", "%A,%T,%r", "--states=all"),
        ("sdiag",),
        ("squeue", "-a", "-r", "-h", "-o", "%A|%u|%T|%C"),
    ),
    "SckyzO": (
        ("squeue", "-a", "-r", "-h", "-O", _COLUMNS),
        ("squeue", "-h", "-o", "%P|%T|%C|%r|%u", "--states=all"),
        ("sinfo", "-h", "-o", "%C"),
        ("sinfo", "-a", "-h", "--Format=Nodes: ,StateLong: ,Gres: ,GresUsed:"),
        ("sinfo", "-h", "-N", "-O", _NODE_COLUMNS),
        ("sinfo", "-h", "-o", "%R|%D|%T|%b"),
        ("scontrol", "show", "nodes", "-o"),
        ("sinfo", "-h", "-o", "%R,%C"),
        ("sinfo", "-h", "--Format=Nodes: ,Partition: ,Gres: ,GresUsed:", "--state=idle,allocated"),
        ("sinfo", "-h", "-N", "-o", "%N|%E|%H|%T"),
        ("scontrol", "show", "reservation"),
        ("scontrol", "show", "licenses", "-o"),
        ("sdiag",),
    ),
    "rivosinc": (("squeue", "--json"), ("sinfo", "--json"), ("sdiag",)),
}


def compare(
    keeper: Keeper,
    jobs: int,
    measure: Callable[[str, Mapping[str, str]], Any],
    show: Callable[..., None],
) -> None:
    """Start the cluster, fill its queue, and measure each in turn."""
    slurm = SlurmCluster(keeper, keeper.make_directory("bench-slurm-"), _spec(jobs), _munge(keeper))
    slurm.start()
    begin = time.monotonic()
    submit(slurm, jobs)
    print(
        f"\n{NODES:,} nodes and {jobs:,} jobs in a real slurmctld "
        f"(submitted in {time.monotonic() - begin:.0f} s):"
    )
    show(measure("", slurm.env), budgets=False)
    measure_cycles(keeper, slurm)
    for name, commands in EXPORTERS.items():
        _command_set(slurm, f"{name}'s {len(commands)} commands for a scrape", commands)
    _gcm(slurm)


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


def _command_set(slurm: SlurmCluster, title: str, commands: Sequence[tuple[str, ...]]) -> None:
    before, cpu, begin = requests(slurm), _children(), time.monotonic()
    for command in commands:
        subprocess.run(command, env=slurm.env, stdout=subprocess.DEVNULL, check=False)
    seconds, spent = time.monotonic() - begin, _children() - cpu
    _peer(title, seconds, spent, requests_since(slurm, before))


def _gcm(slurm: SlurmCluster) -> None:
    """gcm's job monitor, once: it reads nodes and jobs, and its sink throws them away."""
    gcm = os.environ.get("STAGEWATCH_BENCH_GCM") or shutil.which("gcm")
    if gcm is None or not Path(gcm).exists():
        print(
            "gcm: not measured: install gpucm into an environment of its own, and set "
            "STAGEWATCH_BENCH_GCM to its command gcm"
        )
        return
    argv = [gcm, "slurm_job_monitor", "--once", "--sink=do_nothing", "--cluster=bench"]
    argv.append(f"--log-folder={slurm.directory}/gcm")
    before, cpu, begin = requests(slurm), _children(), time.monotonic()
    done = subprocess.run(argv, env=slurm.env, capture_output=True, text=True, check=False)
    seconds, spent = time.monotonic() - begin, _children() - cpu
    if done.returncode != 0:
        print(f"gcm: not measured: it failed: {done.stderr.strip()[-200:]}")
        return
    _peer("gcm slurm_job_monitor, once", seconds, spent, requests_since(slurm, before))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _peer(title: str, seconds: float, cpu: float, asked: Counter[str]) -> None:
    row(title, seconds, "s")
    row("  CPU", cpu, "s")
    row("  requests to the controller", asked.total(), "")
