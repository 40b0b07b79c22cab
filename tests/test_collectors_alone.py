"""Each collector of both agents works with all the others switched off.

A collector is run through its agent's own list and context, alone and among all the others, on the
same node or cluster; it must yield the same series both times.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from stagewatch import node
from stagewatch.agent import AgentCommand, ContextT, OptionsT
from stagewatch.core.config import fill
from stagewatch.core.errors import StagewatchError
from stagewatch.core.exposition import render
from stagewatch.core.processes import Children
from stagewatch.core.runner import Job
from stagewatch.faults.markers import Marker, write_marker
from stagewatch.slurm import agent as slurm
from tests.network.test_infiniband import port as infiniband_port
from tests.node_agent import COMMAND, TRAINER
from tests.slurm.scene import commands
from tests.waiting import wait_for

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "exporters/stagewatch/recordings/h200-node-a.jsonl"

NODE = {
    "gpu": "gpu_up",
    "gpu_jobs": "gpu_job_info",
    "kmsg": "gpu_xid_errors_total",
    "census": "stagewatch_record_directory_available_bytes",
    "stages": "rl_rank_step",
    "ranks": "rl_rank_cpu_seconds_total",
    "work": "rl_rank_at_work",
    "replicas": "rl_rank_replica_check",
    "rank_io": "rl_rank_io_bytes_total",
    "processes": "rl_rank_cgroup_oom_kills_total",
    "blocked_tasks": "io_blocked_tasks",
    "io": "io_pressure_seconds_total",
    "nfs": "nfs_operations_total",
    "canary": "io_canary_success",
    "checkpoints": "io_checkpoint_step",
    "logs": "log_matches_total",
    "net": "net_rank_namespaces_unreadable",
    "infiniband": "net_infiniband_bytes_total",
    "probe": "net_probe_success",
    "clock": "clock_synchronized",
    "faults": "fault_injection_active",
    "incidents": "rl_rank_stack_frame_info",
    "nccl_inspector": "stagewatch_nccl_inspector_lacking",
}
"""A metric of each collector of the node that shows that it has seen what is there."""

SLURM = {
    "slurm_queue": "slurm_queue_jobs",
    "slurm_nodes": "slurm_node_state",
    "slurm_events": "slurm_jobs_ended_total",
    "slurm_controller": "slurm_controller_up",
    "slurm_jobs": "slurm_job_info",
    "slurm_holdings": "slurm_unheld_gpus",
    "slurm_steps": "slurm_step_responsive",
    "slurm_discovery": "slurm_discovery_targets",
}
"""The same of the cluster."""

NEEDS = {"gpu_jobs": "gpu"}
"""The collectors that need another one, and which: gpu_jobs shows the jobs of GPUs."""

AT_WORK = (
    TRAINER
    + """
        open("/dev/null", "wb", buffering=0).write(bytes(1 << 20))
"""
)
"""A rank that moves bytes with every step."""

HANGS = """
import sys, time, stagewatch
stagewatch.init(job_id="541", rank=int(sys.argv[1]), world_size=8)
with stagewatch.stage("train"):
    for step in range(100):
        stagewatch.heartbeat(step=step)
        time.sleep(0.005)
    print("hangs", flush=True)
    time.sleep(3600)
"""
"""A rank that makes no progress any more."""

Series = frozenset[str]


def run(
    stack: ExitStack,
    command: AgentCommand[OptionsT, ContextT],
    settings: Mapping[str, object],
    only: str = "",
) -> dict[str, Job]:
    """The collectors of an agent with these settings, all of them or one, by name."""
    values = {item.key: item.default for group in command.settings().values() for item in group}
    assert settings.keys() <= values.keys()
    wanted = {only, NEEDS.get(only, only)}
    switches = {
        spec.prefix + "enabled": only == "" or spec.name in wanted for spec in command.specs()
    }
    values |= {**settings, **switches}
    context = command.context(fill(command.options, values))
    stack.callback(context.close)
    jobs = command.jobs(values, context)
    for job in jobs:
        stack.callback(job.collector.close)
    return {job.name: job for job in jobs}


def series(job: Job) -> Series | None:
    """The names and labels of what a collector yields now; None where that is nothing."""
    try:
        text = render(job.collector.collect()).decode()
    except StagewatchError:
        return None
    return frozenset(
        line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")
    )


def has(found: Series | None, metric: str) -> bool:
    return any(line.partition("{")[0] == metric for line in found or ())


def nameless(found: Series | None) -> Series | None:
    """Without the names of GPUs in the kernel log's lines: the log has their bus address only."""
    return found and frozenset(
        re.sub(r'(gpu|uuid|pci_bus_id)="[^"]*",', "", line) for line in found
    )


@pytest.fixture(scope="module")
def this_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """The settings of an agent of a node that has everything: GPUs, a rank, mounts, faults."""
    tmp = tmp_path_factory.mktemp("node")
    for name in ("ranks", "faults", "mount", "prolog", "checkpoints/540/step_7", "sys"):
        (tmp / name).mkdir(parents=True)
    (tmp / "kmsg").write_text("3,1,1000000,-;NVRM: Xid (PCI:0000:1b:00): 48, DBE\n")
    (tmp / "540.log").write_text("torch.OutOfMemoryError: CUDA out of memory\n")
    (tmp / "checkpoints/540/step_7/model.bin").write_bytes(b"x")
    (tmp / "prolog/540").write_text("user=alice\ngpus=0,1\n")
    infiniband_port(tmp / "sys", "mlx5_0", counters={"port_xmit_data": 1, "port_rcv_data": 2})
    write_marker(tmp / "faults", Marker("f1", "cpu_contention", time.time()))
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Children() as children,
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
    ):
        Path(memory, "nccl_inspector_metrics_GPU-1.prom").write_text("of_a_later_version 1\n")
        rank = children.start(
            [sys.executable, "-c", AT_WORK, "0"],
            environ=os.environ | {"STAGEWATCH_DIR": str(tmp / "ranks")},
        )
        wait_for(lambda: any((tmp / "ranks").iterdir()), f"the record of rank 0, {rank.pid}")
        children.start(
            [sys.executable, "-c", HANGS, "1"],
            environ=os.environ | {"STAGEWATCH_DIR": str(tmp / "ranks")},
            log=tmp / "hangs",
        )
        wait_for(lambda: b"hangs" in (tmp / "hangs").read_bytes(), "a rank that hangs")
        yield {
            "record_dir": tmp / "ranks",
            "ranks_by_environment": False,
            "fault_dir": tmp / "faults",
            "sys": tmp / "sys",
            "collector.gpu.recording": RECORDING,
            "collector.gpu_jobs.prolog_dir": tmp / "prolog",
            "collector.kmsg.path": tmp / "kmsg",
            "collector.nfs.process": str(ROOT / "tests/fixtures/nfs"),
            "collector.canary.mounts": (tmp / "mount",),
            "collector.canary.every": 0.2,
            "collector.canary.large_bytes": 0,
            "collector.canary.floor": 0,
            "collector.checkpoints.directories": (f"{tmp}/checkpoints/{{job}}",),
            "collector.checkpoints.every": 0.2,
            "collector.logs.files": (f"{tmp}/{{job_id}}.log",),
            "collector.logs.every": 0.2,
            "collector.nccl_inspector.dir": Path(memory),
            "collector.probe.targets": (f"tcp://127.0.0.1:{server.getsockname()[1]}",),
        }


@pytest.fixture(scope="module")
def this_cluster(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The settings of an agent of a cluster with jobs, accounting and a controller that answers."""
    tmp = tmp_path_factory.mktemp("cluster")
    commands(tmp)
    return {
        "bin_dir": tmp,
        "jobs_interval": 0.2,
        "nodes_interval": 0.2,
        "accounting_interval": 0.2,
        "diagnostics_interval": 0.2,
        "ping_interval": 0.2,
    }


NODE_STATE = {"collector.kmsg.state_file": "kmsg.json", "collector.incidents.dir": "incidents"}
CLUSTER_STATE = {"state_dir": "state"}
"""Settings of files and directories that two agents cannot share, and their names."""


def of_its_own(state: Mapping[str, str], directory: Path) -> dict[str, object]:
    """These settings for one agent."""
    return {key: directory / name for key, name in state.items()}


@pytest.fixture(scope="module")
def whole_node(
    this_node: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Job]]:
    """All collectors of the node."""
    state = of_its_own(NODE_STATE, tmp_path_factory.mktemp("all"))
    with ExitStack() as stack:
        yield run(stack, node.COMMAND, this_node | state)


@pytest.fixture(scope="module")
def whole_cluster(
    this_cluster: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Job]]:
    """All collectors of the cluster."""
    state = of_its_own(CLUSTER_STATE, tmp_path_factory.mktemp("all"))
    with ExitStack() as stack:
        yield run(stack, slurm.COMMAND, this_cluster | state)


def compare(
    command: AgentCommand[OptionsT, ContextT],
    settings: Mapping[str, object],
    name: str,
    together: Mapping[str, Job],
    telling: Mapping[str, str],
) -> None:
    """Run a collector alone until it shows what it shows among all the others, and something."""
    needed = NEEDS.get(name, name)
    with ExitStack() as stack:
        alone = run(stack, command, settings, only=name)
        assert alone.keys() == {name, needed}
        seen: list[tuple[Series | None, Series | None]] = []

        def agree() -> bool:
            for jobs in (alone, together):
                series(jobs[needed])
            pair = series(alone[name]), series(together[name])
            seen.append(pair)
            if name == "kmsg":
                pair = nameless(pair[0]), nameless(pair[1])
            return pair[0] == pair[1] and (name not in telling or has(pair[0], telling[name]))

        try:
            wait_for(agree, "the same series", limit=20)
        except AssertionError:
            here, there = ((one or frozenset()) for one in seen[-1])
            lacking, more = sorted(there - here)[:5], sorted(here - there)[:5]
            pytest.fail(f"{name} alone lacks {lacking} and has {more} instead")


@pytest.mark.parametrize("name", [spec.name for spec in node.COMMAND.specs()])
def test_a_collector_of_the_node_needs_no_other(
    name: str, this_node: dict[str, object], whole_node: dict[str, Job], tmp_path: Path
) -> None:
    assert name in NODE, "say by which metric one sees that it has seen what is there"
    compare(node.COMMAND, this_node | of_its_own(NODE_STATE, tmp_path), name, whole_node, NODE)


@pytest.mark.parametrize("name", [spec.name for spec in slurm.COMMAND.specs()])
def test_a_collector_of_the_cluster_needs_no_other(
    name: str, this_cluster: dict[str, object], whole_cluster: dict[str, Job], tmp_path: Path
) -> None:
    settings = this_cluster | of_its_own(CLUSTER_STATE, tmp_path)
    if name == "slurm_sources":
        with ExitStack() as stack:
            alone = run(stack, slurm.COMMAND, settings, only=name)
            assert series(alone[name]) == frozenset(), "nobody has asked any source"
        return
    assert name in SLURM
    compare(slurm.COMMAND, settings, name, whole_cluster, SLURM)


def test_only_the_context_ends_the_helper_process(
    this_node: dict[str, object], tmp_path: Path
) -> None:
    before = set(psutil.Process().children())
    with ExitStack() as stack:
        jobs = run(stack, node.COMMAND, this_node | {"collector.kmsg.state_file": tmp_path / "k"})
        wait_for(lambda: has(series(jobs["canary"]), "io_canary_success"), "the canary answers")
        jobs["logs"].collector.close()
        assert has(series(jobs["canary"]), "io_canary_success")
        (helper,) = set(psutil.Process().children()) - before
    wait_for(lambda: not helper.is_running(), "the helper has ended")


def test_an_agent_that_ends_takes_the_commands_under_way_along(
    children: Children, tmp_path: Path
) -> None:
    """Whichever collectors are switched on."""
    (squeue := tmp_path / "squeue").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 600\n")
    squeue.chmod(0o755)
    flags = ["--bin-dir", tmp_path, "--state-dir", tmp_path, "--listen", "127.0.0.1:0"]
    flags += ["--no-collector.slurm-sources.enabled", "--timeout", "600s"]
    agent = children.start([*COMMAND, "slurm", *map(str, flags)], log=tmp_path / "log")
    pid = wait_for(lambda: (file := tmp_path / "pid").exists() and file.read_text(), "squeue runs")
    command = psutil.Process(int(pid))
    agent.terminate()
    assert agent.wait(timeout=60) == 0
    wait_for(lambda: not command.is_running(), "squeue has ended")
