"""A small cluster in trouble, watched by the real agents and a real Prometheus.

Real: two demo nodes with a job that hangs, a third node with ranks that talk TCP and fail, its
mounts, probes, logs and checkpoints, node_exporter, and, given one, a Slurm cluster.  Not real, as
no machine of the tests has them: GPUs (recorded, and a stand-in for the driver's library), RDMA
ports (a sysfs tree) and NFS (a mountstats file whose counts this scene drives on).  An hour of
steps is a minute here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import requests
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.prometheus import arguments, judge_command, write_config
from stagewatch.demo.stack import free_port
from stagewatch.demo.sync_stall import DemoCluster
from stagewatch.prometheus.api import PrometheusApi
from tests.fakes.engine import FakeEngine
from tests.fakes.nvml import FakeNvml
from tests.network.test_infiniband import INFINIBAND, port, write
from tests.node_agent import NodeAgent
from tests.waiting import wait_for

SCRAPE_SECONDS = 5
ENGINES = Path(__file__).parents[2] / "deploy" / "prometheus" / "engines.yml"
JOB = "700"
STALLING = "701"
SLOW = "702"

CONFIG = """\
global: {{scrape_interval: {seconds}s, scrape_timeout: {seconds}s, evaluation_interval: {seconds}s}}
rule_files: ["{rules}/*.rules.yaml"]
scrape_configs:
"""
TALKER = """
import contextlib, signal, socket, sys, threading, time, stagewatch
held = []
signal.signal(signal.SIGUSR1, lambda *_: held.append(True))
signal.signal(signal.SIGUSR2, lambda *_: held.clear())
rank = int(sys.argv[1])
stagewatch.init(job_id=sys.argv[2], role="train", rank=rank, world_size=2)
recorder, step = stagewatch.client._api._recorder, 0
while sys.argv[2] == "702":  # rank 3 waits for data, and the others wait for it
    step += 1
    with stagewatch.stage("train", step=step):
        time.sleep(0.1)
        if rank == 3:
            word = recorder.wait_for_batch()
            time.sleep(0.2)
            recorder.got_batch(word)
        with stagewatch.collective("world", op="all_reduce", size=4):
            time.sleep(0.1 if rank == 3 else 0.3)
while rank == 1 and sys.argv[2] not in ("700", "701"):  # idle after a step, but for a tool
    with stagewatch.stage("train", step=1):
        pass
    with stagewatch.call("tool"):
        time.sleep(4)
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
step = 0
while True:
    step += 1
    try:
        with stagewatch.stage("rollout", step=step):
            time.sleep(0.05)
        with stagewatch.stage("train", step=step):
            for _ in range(20):
                client.sendall(b"x" * 1000)
                peer.recv(1000)
            stagewatch.collective("world")
            stagewatch.scalar("reward", 0.3)
            for name in ("staleness", "queue_depth"):
                stagewatch.scalar(name, 1)
            stagewatch.scalar("weight_version", step)
            stagewatch.scalar("rollout_weight_version", step - 1)
            stagewatch.throughput(tokens=1000, samples=4, flops=1e9)
            with contextlib.suppress(OSError), stagewatch.call("search"):
                if step % 10 == 0:
                    raise OSError("as asked")
            time.sleep(0.05)
            while held:
                signal.pause()
            if step % 50 == 20 and sys.argv[2] == "700":
                raise RuntimeError("as asked")
    except RuntimeError:
        pass
"""
MOUNT = """device nas:/ckpt mounted on /ckpt with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,proto=tcp,addr=10.0.0.1
\tage:\t100
\txprt:\ttcp 832 1 1 0 0 {count} {count} 0 9 0 2 0 0
\tper-op statistics
\t       WRITE: {count} {count} 0 {count} {count} {count} {count} {count} 0
"""


class Scene:
    """Everything that is running; `stop` ends and removes it."""

    def __init__(self, directory: Path, nvml: FakeNvml) -> None:
        self.directory = directory
        self.demo = DemoCluster(cache=directory)
        self.children = Children()
        self.targets: dict[str, list[tuple[str, str]]] = {}
        self._ended = threading.Event()
        self._nvml = nvml
        self._faulty_node()
        (directory / "bare").mkdir()
        self.bare = NodeAgent(directory / "bare", "--no-ranks-by-environment")
        """The agent of a node of Slurm whose job has started no rank."""
        self.stalling: list[int] = []
        self.engines = [FakeEngine("vllm"), FakeEngine("sglang"), FakeEngine("vllm")]

    def start(self, slurm: Mapping[str, str], measured: str) -> PrometheusApi:
        """Start all, and wait until Prometheus answers; `slurm` is its commands' environment.

        Ranks run under the id of the job of Slurm that is `measured`.
        """
        self.measured = measured
        self.demo.start_job()
        self.node.start()
        self.bare.start()
        self.targets["stagewatch"] = [
            *self.demo.agents.items(),
            ("node-c", f"127.0.0.1:{self.node.port}"),
            ("h2", f"127.0.0.1:{self.bare.port}"),
        ]
        self.targets["stagewatch-slurm"] = [("", self._slurm_agent(slurm))]
        # Two that work, and one that hangs, on a node of Slurm that has one job.
        self.targets["engines"] = [("h1", engine.address) for engine in self.engines]
        for engine in self.engines:
            engine.hold(running=8, waiting=2)
        for engine in self.engines[:2]:
            engine.working.set()
        if exporter := shutil.which("prometheus-node-exporter"):
            address = f"127.0.0.1:{free_port()}"
            self.children.start([exporter, f"--web.listen-address={address}"])
            self.targets["node_exporter"] = [("node-c", address)]
        ranks = [(job, rank) for job in (JOB, STALLING, measured) for rank in (0, 1)]
        ranks += [(SLOW, rank) for rank in range(4)]
        for job, rank in ranks:
            process = self.children.start(
                [sys.executable, "-c", TALKER, str(rank), job],
                environ=os.environ | {"STAGEWATCH_DIR": str(self.node.ranks)},
            )
            if job == STALLING:
                self.stalling.append(process.pid)
        orphan = self.children.start(["sleep", "3600"], environ={"SLURM_JOB_ID": "699"})
        self._nvml.set("gpu.5.processes", f"{orphan.pid}:1073741824")
        threading.Thread(target=self._move, daemon=True).start()
        return self._prometheus()

    def trouble(self, api: PrometheusApi) -> None:
        """What has to happen for stalls, alerts and recoveries to be there."""
        budget = "job_role_stage:rl_stall_budget:seconds"
        for job in ("540", STALLING):
            query = f'{budget}{{job_id="{job}", stage="train"}}'
            wait_for(lambda query=query: api.query(query), f"a budget of job {job}", 180)
        self.demo.inject_stall()
        for pid in self.stalling:
            os.kill(pid, signal.SIGUSR1)
        self.node.stop()
        absent = 'avg_over_time(up{node="node-c"}[1m]) < 0.8'
        wait_for(lambda: api.query(absent), "the node to be silent for a while", 60)
        self.node.start(self.node.port)
        named = 'job:rl_stall:culprit{job_id="540"}'
        wait_for(lambda: api.query(named), "the rank that left early to be named", 180)
        for rank, process in enumerate(self.demo.ranks):
            if rank != self.demo.early:  # they spin, on both cores
                process.send_signal(signal.SIGSTOP)
        stalled = f'job:rl_stall:active{{job_id="{STALLING}"}}'
        wait_for(lambda: api.query(stalled), "the job to be stalled", 180)
        for pid in self.stalling:
            os.kill(pid, signal.SIGUSR2)

    def stop(self) -> None:
        """End every process."""
        self._ended.set()
        for engine in self.engines:
            engine.close()
        self.children.stop()
        self.node.stop()
        self.bare.stop()
        self.demo.stop()

    def _slurm_agent(self, environ: Mapping[str, str]) -> str:
        address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "stagewatch.cli", "slurm", "--listen", address]
        command += ["--state-dir", str(self.directory / "slurm-state")]
        for name in ("queue", "nodes", "events", "controller", "sources"):
            command += [f"--collector.slurm-{name}.interval", "2s"]
        for name in ("jobs", "nodes", "accounting", "diagnostics", "ping"):
            command += [f"--{name}-interval", "2s"]
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        log = self.directory / "slurm-agent.log"
        self.children.start(command, environ={**environ, **path}, log=log)
        return address

    def _faulty_node(self) -> None:
        """Node C: a driver with errors, RDMA ports, mounts, checkpoints, logs, probes."""
        root = self.directory
        for name in ("mount", "nfs", "sys", "jobs", f"scratch/{JOB}/step-1", f"logs/{JOB}"):
            (root / name).mkdir(parents=True)
        self.node = NodeAgent(
            root,
            *("--sys", str(root / "sys")),
            *("--collector.canary.mounts", str(root / "mount")),
            *("--collector.canary.every", "2s", "--collector.canary.floor", "1"),
            *("--collector.canary.large-bytes", "1MiB", "--collector.canary.large-every", "2s"),
            *("--collector.nfs.process", str(root / "nfs")),
            *("--collector.checkpoints.directories", f"{root}/scratch/{{job}}"),
            *("--collector.checkpoints.every", "2s"),
            *("--collector.logs.files", f"{root}/logs/{{job_id}}/{{role}}_{{rank}}.log"),
            *("--collector.probe.targets", "dns:localhost,tcp:127.0.0.1:1"),
            *("--collector.probe.every", "2s"),
            *("--collector.gpu-jobs.prolog-dir", str(root / "jobs")),
            *("--collector.kmsg.state-file", str(root / "kmsg.json")),
            **self._nvml.environ,
        )
        # Of several fields the driver's stand-in gives what a healthy GPU would.
        self._nvml.set("gpu.0.xid.0", 79)
        self._nvml.set("gpu.0.ecc.dram.corrected.volatile", 3)
        port(root / "sys", "mlx5_0", counters=dict(INFINIBAND))
        (root / "jobs" / JOB).write_text("user=alice\ngpus=0,1\nstarted=1\n")
        (self.node.ranks / "hostile.rank").write_text("not a record")
        (self.node.faults / "broken.json").write_text("{")
        for step, size in ((1, 4096), (2, 1024)):
            save = root / "scratch" / JOB / f"step-{step}"
            save.mkdir(exist_ok=True)
            (save / "model.bin").write_bytes(b"x" * size)

    def _move(self) -> None:
        """Drive on what no machine of the tests does by itself."""
        count = 0
        while not self._ended.wait(1):
            count += 1
            draft = self.directory / "nfs" / "draft"
            draft.write_text(MOUNT.format(count=500 + 10 * count))
            draft.replace(self.directory / "nfs" / "mountstats")
            counters = self.directory / "sys/class/infiniband/mlx5_0/ports/1/counters"
            for name in ("port_xmit_data", "port_rcv_data", "symbol_error", "port_xmit_wait"):
                write(counters / name, 1000 + 100 * count)
            with (self.directory / "logs" / JOB / "train_0.log").open("a") as log:
                log.write("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n")

    def _prometheus(self) -> PrometheusApi:
        place = self.directory / "prometheus"
        place.mkdir()
        config = write_config(place, {})
        rules = place / "rules"
        hour = rules / "slow-jobs.rules.yaml"
        shortened = ("[1h]", "[1m]"), ("offset 50m", "offset 30s"), ("offset 2m", "offset 1m")
        for long, short in (*shortened, (": 15s #", ": 5s #")):
            assert long in hour.read_text()
            hour.write_text(hour.read_text().replace(long, short))
        text = CONFIG.format(seconds=SCRAPE_SECONDS, rules=rules)
        address = f"127.0.0.1:{free_port()}"
        judge = f"127.0.0.1:{free_port()}"
        jobs = {**self.targets, "prometheus": [("", address)], "stagewatch-judge": [("", judge)]}
        for job, targets in jobs.items():
            groups = [
                {
                    "targets": [target],
                    "labels": ({} if job == "stagewatch-judge" else {"cluster": "lab"})
                    | ({"node": node} if node else {}),
                }
                for node, target in targets
            ]
            scraped: dict[str, object] = {"job_name": job, "static_configs": groups}
            if job == "stagewatch-judge":
                scraped["honor_labels"] = True
            if job == "engines":
                shipped = yaml.safe_load(ENGINES.read_text())["scrape_configs"]
                scraped["metric_relabel_configs"] = shipped[0]["metric_relabel_configs"]
            text += f"  - {json.dumps(scraped)}\n"
        config.write_text(text)
        binary = shutil.which("prometheus") or "prometheus"
        self.children.start(
            arguments([binary], config, int(address.rpartition(":")[2])),
            log=place / "prometheus.log",
        )
        api = PrometheusApi(f"http://{address}")
        self.url = f"http://{address}"
        wait_for(api.ready, "Prometheus answers", 120)
        self.children.start(judge_command(judge, self.url, place), log=place / "judge.log")
        return api

    def asked(self, expr: str, *, instant: bool) -> bool:
        """Whether a query has data; over the last ten minutes unless instant.  Fails on errors."""
        if instant:
            path, parameters = "query", {"query": expr}
        else:
            now = time.time()
            path = "query_range"
            parameters = {"query": expr, "start": str(now - 600), "end": str(now), "step": "2"}
        answer = requests.post(f"{self.url}/api/v1/{path}", data=parameters, timeout=60)
        body = answer.json()
        assert body["status"] == "success", (expr, body)
        series = body["data"]["result"]
        if isinstance(series, list) and body["data"]["resultType"] == "scalar":
            return True
        return any(
            value != "NaN"
            for each in series
            for _, value in (each["values"] if "values" in each else [each["value"]])
        )
