"""The shipped rules over 1,024 nodes x 8 GPUs x 8 ranks, evaluated by a real Prometheus.

Two processes of this program serve the fleet's expositions, Slurm's agent among them: the metrics
that the rules read, at the cluster's real number of series.  Prometheus may use two cores
(GOMAXPROCS).  STAGEWATCH_BENCH_NODES makes the fleet smaller, and STAGEWATCH_BENCH_JOB_NODES its
jobs, of which one in STAGEWATCH_BENCH_HUNG hangs; the figures then say how many nodes and jobs they
are of.  Arguments are the names of rule files (`rules --files goodput economics`), without which
all are loaded, and how many of the costliest rules are listed (`--costliest 30`).

The judge asks that Prometheus meanwhile; what its questions cost Prometheus is part of what the
rules seem to take.

Prometheus scrapes the fleet without rules first, which is what it costs to scrape.  Then it loads
the rules, and what an evaluation costs is looked at once the rules have made their series: in the
first minutes Prometheus makes a million of them.  An evaluation's cost is CPU time: what
Prometheus uses beyond scraping, divided among the groups by how long their evaluations last.  How
long they last depends on what else runs on the machine, and is shown beside it.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import shutil
import signal
import socketserver
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import psutil
import requests

from stagewatch.assets import assets
from stagewatch.core.processes import Children
from stagewatch.demo.prometheus import arguments, judge_command
from stagewatch.demo.stack import free_port
from tests.bench.table import row
from tests.waiting import becomes

NODES = int(os.environ.get("STAGEWATCH_BENCH_NODES", "1024"))
GPUS = RANKS = 8
LINKS = 18
JOB_NODES = int(os.environ.get("STAGEWATCH_BENCH_JOB_NODES", "10"))
"""Nodes of one job."""
JOBS = -(-NODES // JOB_NODES)
HUNG = int(os.environ.get("STAGEWATCH_BENCH_HUNG", min(51, JOBS)))
"""One job of so many hangs: one rank has not come to the all-reduce that the others are inside of,
in the world, after their groups of tensor, pipeline and data parallelism."""
HUNG_SECONDS = 40.0
"""Without progress at the first scrape; a job that has hung since then has taught its budgets."""
SERVERS = 2
SCRAPE_SECONDS = 30
WATCH_SECONDS = 120
RANGE_SECONDS = 300
"""The longest range that a rule reads of every rank's samples; a shorter history costs less."""
BUDGET = 0.55
"""Share of its interval that the evaluation of a group may take."""
CALLS = ("search", "sandbox")
STAGES = ("rollout", "reward", "logprob", "train", "weights_update")
STEP_SUMS = {"steps": 1, "step_work_seconds": 2.5, "step_work_squared_seconds": 6.5}
"""What a step of 3 s, 2.5 s of them work, adds to each."""
MOMENTS = {"ranks": 1, "third": 0.02, "variance": 0.25, "time": 3, "time_variance": 0.1}
"""How those of a rank vary."""
BUCKETS = (0.01, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


def exposition(node: int, turn: int) -> str:
    """What the agent of one node shows at its `turn`th scrape: a job in step, or one that hangs."""
    job, first = node // JOB_NODES, node % JOB_NODES * RANKS
    hung = job % HUNG == HUNG - 1
    age = HUNG_SECONDS + SCRAPE_SECONDS * turn if hung else 0.4
    lines: list[str] = []

    def add(name: str, labels: str, value: float) -> None:
        lines.append(f"{name}{{{labels}}} {value:.12g}")

    for gpu in range(GPUS):
        whole = f'gpu="{gpu}",uuid="GPU-{node}-{gpu}"'
        for name, value in (
            ("gpu_up", 1),
            ("gpu_temperature_celsius", 60 + gpu),
            ("gpu_temperature_slowdown_celsius", 92),
            ("gpu_memory_temperature_celsius", 70),
            ("gpu_utilization_ratio", 0.9),
            ("gpu_remap_pending", 0),
            ("gpu_remap_failed", 0),
            ("gpu_sram_ecc_threshold_exceeded", 0),
            ("gpu_pcie_link_width", 16),
            ("gpu_pcie_link_width_max", 16),
            ("gpu_pcie_link_generation", 5),
            ("gpu_pcie_link_generation_max", 5),
        ):
            add(name, whole, value)
        add("gpu_job_info", f'gpu="{gpu}",uuid="GPU-{node}-{gpu}",job_id="{job}"', 1)
        add("gpu_peak_flops", f'gpu="{gpu}",uuid="GPU-{node}-{gpu}",precision="bf16"', 9.89e14)
        add("gpu_info", f'{whole},model="NVIDIA H200",type="h200",minor="{gpu}"', 1)
        for reason in ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"):
            add("gpu_throttle_seconds_total", f'{whole},reason="{reason}"', 0)
            add("gpu_throttle_active", f'{whole},reason="{reason}"', 0)
        for memory in ("dram", "sram"):
            for kind in ("corrected", "uncorrected"):
                for scope in ("volatile", "aggregate"):
                    labels = f'{whole},memory="{memory}",kind="{kind}",scope="{scope}"'
                    add("gpu_ecc_errors_total", labels, 0)
        add("gpu_nvlinks_up", whole, LINKS)
        for link in range(LINKS):
            add("gpu_nvlink_up", f'{whole},link="{link}"', 1)
        add("gpu_pcie_replays_total", whole, turn)
        for kind in ("crc_flit", "crc_data", "replay", "recovery"):
            add("gpu_nvlink_errors_total", f'{whole},kind="{kind}"', 0)
    for rank in range(first, first + RANKS):
        who = f'job_id="{job}",role="train",rank="{rank}"'
        stage = "train" if hung else STAGES[turn % len(STAGES)]
        labels = f'{who},local_rank="{rank % 8}",pid="{rank}",uuid="GPU-{node}-{rank % 8}"'
        add("rl_rank_info", f'{labels},framework="trl",world_size="{JOB_NODES * RANKS}"', 1)
        add("rl_rank_up", who, 1)
        add("rl_rank_step", who, 7 if hung else turn)
        add("rl_rank_progress_age_seconds", who, age)
        add("rl_rank_started_timestamp_seconds", who, 1.7e9)
        add("rl_rank_stage_code", who, 1 + turn % len(STAGES))
        add("rl_rank_stage_open_seconds", f'{who},stage="{stage}"', age)
        late = hung and rank == 5
        for group, size in (
            ("world", JOB_NODES * RANKS),
            (f"tp:{rank // 8}", 8),
            (f"pp:{rank % 64}", 8),
            (f"dp:{rank % 8}", 64),
        ):
            count = (1000 if hung else 1000 + turn) - (late and group == "world")
            add("rl_rank_collective_seq", f'{who},group="{group}"', count)
            add("rl_rank_group_size", f'{who},group="{group}"', size)
        if hung and not late:
            call = f'{who},group="world"'
            add("rl_rank_collective_inside_seconds", f'{call},op="all_reduce",peer=""', age)
            add("rl_rank_collective_elements", call, 4096)
        if not hung:
            add("rl_rank_at_work", f'{who},by="compute"', 1)
        kind = "parked" if late else "spin" if hung else "compute"
        add("rl_rank_wait_class", f'{who},class="{kind}"', 1)
        for kind in ("user", "system"):
            add("rl_rank_cpu_seconds_total", f'{who},mode="{kind}"', 20 * turn)
        add("rl_rank_run_queue_seconds_total", who, 0.01 * turn)
        add("rl_rank_resident_memory_bytes", who, 4e9)
        add("rl_rank_swapped_memory_bytes", who, 0)
        add("rl_rank_major_page_faults_total", who, 3 * turn)
        add("rl_rank_data_wait_seconds_total", who, 0.2 * turn)
        add("rl_rank_own_work_seconds_total", f'{who},peers="dp:{rank % 8}"', 25 * turn)
        for name, amount in STEP_SUMS.items():
            add(f"rl_rank_{name}_total", who, 10 * amount * turn)
        for done in STAGES:
            add("rl_rank_stage_last_seconds", f'{who},stage="{done}"', 0.4)
            slow = 1.1 if rank == 3 else 1.0
            add("rl_rank_worked_seconds_total", f'{who},stage="{done}"', 5 * slow * turn)
            add("rl_rank_waited_seconds_total", f'{who},stage="{done}"', (6 - 5 * slow) * turn)
        if age > 2:
            add("rl_rank_stage_open_completions", f'{who},stage="{stage}"', turn)
            add("rl_rank_stage_open_long_seconds", f'{who},stage="{stage}"', age)
        for name in ("reward", "kl", "batch_size", "samples_per_second", "weight_version"):
            add("rl_scalar", f'{who},name="{name}"', 1)
        flow = f'{who},side="client",port="29500"'
        add("rl_rank_tcp_retransmissions_total", flow, 0)
        add("rl_rank_tcp_data_segments_total", flow, 1000 * turn)
        add("rl_rank_tcp_rtt_seconds", flow, 0.0002)
    add("rl_job_info", f'job_id="{job}",job_name="grpo-7b",uid="1000"', 1)
    for place in ("local", "other"):
        add("os_numa_pages_total", f'place="{place}"', 1000 * turn)
    role = f'job_id="{job}",role="train"'
    add("rl_flops_total", f'{role},stage="train"', 8e16 * turn)
    add("rl_ranks_live", role, RANKS)
    add("rl_ranks_started_timestamp_seconds", role, 1.7e9)
    add("rl_newest_step", role, 7 if hung else turn)
    for which in ("shortest", "longest"):
        add(f"rl_progress_age_{which}_seconds", role, age)
    add("rl_spent_seconds_total", f'{role},stage="",part="data"', RANKS * 0.2 * turn)
    add("rl_checkpoint_completed_age_seconds", role, SCRAPE_SECONDS * (turn % 10))
    for stage in ("idle", "init", *STAGES):
        inside = stage == ("train" if hung else STAGES[turn % len(STAGES)])
        add("rl_stage_ranks", f'{role},stage="{stage}"', RANKS * inside)
    for moment, amount in MOMENTS.items():
        add("rl_step_moments", f'{role},moment="{moment}"', RANKS * amount)
    for stage in STAGES:
        what = f'{role},stage="{stage}"'
        add("rl_stage_completions", what, turn)
        for part, seconds in (("work", 5), ("waiting", 1)):
            add("rl_spent_seconds_total", f'{what},part="{part}"', RANKS * seconds * turn)
        add("rl_stage_completed_ranks", what, RANKS)
        add("rl_stage_completed_age_seconds", what, 0.4)
        add("rl_tokens_total", what, 8e5 * turn)
        add("rl_samples_total", what, 512 * turn)
        for name in ("rl_progress_gap_seconds", "rl_stage_duration_seconds"):
            for bound in (*BUCKETS, "+Inf"):
                count = RANKS * (9 + turn) * (bound == "+Inf" or float(bound) >= 1)
                add(f"{name}_bucket", f'{what},le="{bound}"', count)
            add(f"{name}_count", what, RANKS * (9 + turn))
            add(f"{name}_sum", what, RANKS * (9 + turn) * 0.4)
        add("rl_progress_gap_longest_seconds", what, 0.9)
        add("rl_progress_gap_recent_seconds", what, 0.5)
    for name in CALLS:
        calls = f'job_id="{job}",role="train",name="{name}"'
        for bound in (*BUCKETS, "+Inf"):
            add("rl_call_seconds_bucket", f'{calls},le="{bound}"', RANKS * 100 * turn)
    add("stagewatch_build_info", 'version="0"', 1)
    for collector in range(16):
        for name, value in (
            ("success", 1),
            ("stuck_seconds", 0),
            ("interval_seconds", 1),
            ("last_success_timestamp_seconds", time.time()),
        ):
            add(f"stagewatch_collector_{name}", f'collector="c{collector}"', value)
        add("stagewatch_series_dropped_total", f'collector="c{collector}"', 0)
    for mount in range(4):
        add("io_filesystem_available_bytes", f'mount="/m{mount}"', 5e14)
        add("io_filesystem_size_bytes", f'mount="/m{mount}"', 1e15)
        for phase in ("open", "write", "fsync", "read", "unlink"):
            add("io_canary_seconds", f'mount="/m{mount}",phase="{phase}"', 0.01)
        for op in ("READ", "WRITE", "COMMIT", "GETATTR", "LOOKUP", "other"):
            add("nfs_operations_total", f'mount="/m{mount}",op="{op}"', turn)
            add("nfs_operation_rtt_seconds_total", f'mount="/m{mount}",op="{op}"', turn * 0.001)
        for name in ("transport_requests_sent", "transport_replies_received", "requests"):
            add(f"nfs_{name}_total", f'mount="/m{mount}"', 100 * turn)
        add("nfs_retransmissions_total", f'mount="/m{mount}"', 0)
    for port in range(8):
        where = f'device="mlx5_{port}",port="1"'
        add("net_infiniband_state", f'{where},state="active"', 1)
        add("net_infiniband_rate_bytes_per_second", where, 5e10)
        add("net_infiniband_expected_rate_bytes_per_second", where, 5e10)
        add("net_infiniband_link_downs_total", where, 0)
    add("clock_offset_seconds", "", 0.0001)
    return "\n".join(lines) + "\n"


def slurm_exposition() -> str:
    """What Slurm's agent shows: every job has all GPUs of its nodes, and none is left."""
    lines = ['slurm_unheld_gpus{model="h200",state="free"} 0']
    for job in range(JOBS):
        nodes = range(job * JOB_NODES, min(NODES, (job + 1) * JOB_NODES))
        who = f'job_id="{job}",user="u{job % 30}",account="a{job % 10}",partition="gpu"'
        gpus = GPUS * len(nodes)
        lines += [
            f'slurm_held_gpus{{{who},model="h200",state="RUNNING"}} {gpus}',
            f'slurm_job_info{{{who},array_job_id=""}} 1',
            f'slurm_job_gpus{{job_id="{job}"}} {gpus}',
            f'slurm_job_start_timestamp_seconds{{job_id="{job}"}} 1.7e9',
        ]
        lines += [f'slurm_job_node{{job_id="{job}",node="n{node}",gpus="0-7"}} 1' for node in nodes]
    return "\n".join(lines) + "\n"


class Fleet(http.server.BaseHTTPRequestHandler):
    """Answers /NODE for every node, and /slurm."""

    protocol_version = "HTTP/1.1"
    turns: dict[int, int] = {}  # noqa: RUF012 - of the whole process, on purpose

    def do_GET(self) -> None:
        page = self.path.lstrip("/")
        if page == "slurm":
            body = slurm_exposition().encode()
        else:
            turn = self.turns[int(page)] = self.turns.get(int(page), 0) + 1
            body = exposition(int(page), turn).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Keeps up with Prometheus' connections."""

    daemon_threads = True
    request_queue_size = 512


@dataclass
class Evaluations:
    """How long the evaluations of a group, or of one rule of it, lasted."""

    interval: float
    seconds: dict[str, float] = field(default_factory=dict)
    """Of those that were seen, by the time of the evaluation."""
    count: float = 0.0
    """How many there were; of a group."""

    @property
    def usual(self) -> float:
        """Mean seconds of an evaluation; 0 where none was seen."""
        return mean(self.seconds.values()) if self.seconds else 0.0


class Watched:
    """A Prometheus under the load of the fleet: its process, what it answers, what it uses."""

    def __init__(self, pid: int, port: int) -> None:
        self.process = psutil.Process(pid)
        self.url = f"http://127.0.0.1:{port}/api/v1"
        self.groups: dict[str, Evaluations] = {}
        self.rules: dict[tuple[str, int, str], Evaluations] = {}
        """By group, place in it, and name."""

    def value(self, query: str) -> float:
        """The first value that a query gives, or 0."""
        try:
            answer = requests.get(f"{self.url}/query", params={"query": query}, timeout=30)
            found = answer.json()["data"]["result"]
        except requests.RequestException:
            return 0.0
        return float(found[0]["value"][1]) if found else 0.0

    def version(self) -> str:
        """Its version, on which the cost of an evaluation depends."""
        answer = requests.get(f"{self.url}/status/buildinfo", timeout=30).json()
        return str(answer["data"]["version"])

    def load(self, config: Path, content: dict[str, object]) -> None:
        """Have it read another configuration."""
        config.write_text(json.dumps(content))
        self.process.send_signal(signal.SIGHUP)

    def wait_for_series(self) -> None:
        """Return once the number of its series stands still for three scrapes of itself."""
        series = "prometheus_tsdb_head_series"
        past = f"{series}[{3 * SCRAPE_SECONDS}s]"
        standing = f"count_over_time({past}) >= 3 and delta({past}) < 0.01 * {series}"
        becomes(lambda: self.value(standing) >= 3, 600, 5.0)

    def watch(self, seconds: float) -> float:
        """Note every evaluation for so long; return the share of a core that it used meanwhile."""
        self._note()
        before, since = sum(self.process.cpu_times()[:2]), time.monotonic()
        earlier = {id(each): set(each.seconds) for each in self._all()}
        counts = self._counts()
        while time.monotonic() < since + seconds:
            time.sleep(4)
            self._note()
        used = (sum(self.process.cpu_times()[:2]) - before) / (time.monotonic() - since)
        for each in self._all():
            for moment in earlier.get(id(each), ()):
                del each.seconds[moment]
        for name, count in self._counts().items():
            self.groups[name].count = count - counts[name]
        return used

    def _counts(self) -> dict[str, float]:
        """How often each group has been evaluated so far."""
        counts: dict[str, float] = defaultdict(float)
        text = requests.get(self.url.replace("/api/v1", "/metrics"), timeout=60).text
        for line in text.splitlines():
            name, _, rest = line.partition('{rule_group="')
            group, _, value = rest.partition('"} ')
            if name == "prometheus_rule_group_iterations_total":
                counts[group.rpartition(";")[2]] += float(value)
            elif name == "prometheus_rule_group_iterations_missed_total":
                counts[group.rpartition(";")[2]] -= float(value)
        return counts

    def _all(self) -> list[Evaluations]:
        return [*self.groups.values(), *self.rules.values()]

    def _note(self) -> None:
        answer = requests.get(f"{self.url}/rules", timeout=60).json()
        for group in answer["data"]["groups"]:
            name, interval = group["name"], float(group["interval"])
            of_group = self.groups.setdefault(name, Evaluations(interval))
            of_group.seconds[group["lastEvaluation"]] = float(group["evaluationTime"])
            for place, rule in enumerate(group["rules"]):
                of_rule = self.rules.setdefault((name, place, rule["name"]), Evaluations(interval))
                of_rule.seconds[rule["lastEvaluation"]] = float(rule["evaluationTime"])


def main(arguments: Sequence[str] = ()) -> None:
    """Start the fleet and Prometheus; print each group's cost beside its interval."""
    parser = argparse.ArgumentParser(prog="rules")
    parser.add_argument("--files", nargs="*", default=["*"], help="names of rule files, or *")
    parser.add_argument("--costliest", type=int, default=0, help="so many rules are listed")
    options = parser.parse_args(arguments)
    binary = shutil.which("prometheus")
    if binary is None:
        raise SystemExit("bench_rules needs prometheus on the PATH")
    directory = Path(tempfile.mkdtemp(prefix="stagewatch-bench-"))
    try:
        with Children() as children:
            _measure(directory, children, binary, options.files, options.costliest)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measure(
    directory: Path, children: Children, binary: str, files: Sequence[str], costliest: int
) -> None:
    ports = [free_port() for _ in range(SERVERS)]
    for port in ports:
        children.start([sys.executable, "-m", "tests.bench.bench_rules", str(port)])
    own = free_port()
    config = directory / "prometheus.yml"
    judge = f"127.0.0.1:{free_port()}"
    config.write_text(json.dumps(_config(ports, own, [], judge)))
    prometheus = children.start(
        arguments([binary], config, own),
        environ=os.environ | {"GOMAXPROCS": "2"},
        log=directory / "prometheus.log",
    )
    watched = Watched(prometheus.pid, own)
    value = watched.value
    if not becomes(lambda: value('count(up{job="stagewatch"} == 1)') >= NODES, 300, 2.0):
        raise SystemExit(f"only {value('sum(up)'):g} of {NODES} nodes were scraped")
    began = time.monotonic()
    print(f"Prometheus {watched.version()}, the first one on the PATH", flush=True)
    watched.wait_for_series()
    scraping = watched.watch(SCRAPE_SECONDS)
    row(f"series of {NODES} nodes", value("prometheus_tsdb_head_series") / 1e6, "M")
    row("CPU of Prometheus for scraping alone", scraping * 100, "%core")

    rules = [f"{assets('alerts')}/{name}.rules.yaml" for name in files]
    watched.load(config, _config(ports, own, rules, judge))
    command = judge_command(judge, f"http://127.0.0.1:{own}", directory)
    judging = psutil.Process(children.start(command, log=directory / "judge.log").pid)
    time.sleep(max(0.0, began + RANGE_SECONDS - time.monotonic()))
    watched.wait_for_series()
    missed = "sum(prometheus_rule_group_iterations_missed_total)"
    missed_before = value(missed)
    judged, since = sum(judging.cpu_times()[:2]), time.monotonic()
    used = watched.watch(WATCH_SECONDS)
    judged = (sum(judging.cpu_times()[:2]) - judged) / (time.monotonic() - since)
    row("jobs that the judge judges", value("rl_judge_jobs"), "")
    row("ranks that it names", value("count(rl_job_culprit)"), "", JOBS // HUNG)
    row("CPU of the judge", judged * 100, "%core", 5.0)
    row("memory of the judge", judging.memory_info().rss / 2**20, "MiB", 150.0)
    row("series with those of rules", value("prometheus_tsdb_head_series") / 1e6, "M")
    ledger = '__name__=~"(job|cluster):goodput_gpus:count"'
    row(f"series of the ledger of {JOBS} jobs", value(f"count({{{ledger}}})"), "")
    row("series of all rules of goodput", value('count({__name__=~".+:goodput_.+"})'), "")
    row("GPUs in the ledger", value(f"sum({{{ledger}}})"), "", NODES * GPUS)
    row("memory of Prometheus", watched.process.memory_info().rss / 2**30, "GiB")
    row("CPU of Prometheus, scrapes included", used * 100, "%core", 200.0)
    row("evaluations missed meanwhile", value(missed) - missed_before, "")
    row("evaluations failed", value("sum(prometheus_rule_evaluation_failures_total)"), "")
    _costs(watched, (used - scraping) * WATCH_SECONDS, costliest)


def _costs(watched: Watched, used: float, costliest: int) -> None:
    """Print what an evaluation costs, of the CPU seconds that all of them together used."""
    cpu = used / sum(group.usual * group.count for group in watched.groups.values())
    demand = sum(cpu * group.usual / group.interval for group in watched.groups.values())
    row("CPU of all rules, were none missed", demand * 100, "%core", 200.0)
    for name, group in sorted(
        watched.groups.items(), key=lambda item: -item[1].usual / item[1].interval
    ):
        row(f"CPU of an evaluation of {name}", cpu * group.usual, "s", BUDGET * group.interval)
        slowest = max(group.seconds.values(), default=0.0)
        row("  by the clock, slowest", slowest, "s", group.interval)
    # Of several rules of one name, each in its place, the costs are added up.
    by_name: dict[tuple[str, str], list[Evaluations]] = defaultdict(list)
    for (name, _, rule), evaluations in watched.rules.items():
        by_name[name, rule].append(evaluations)
    shares = {
        rule: cpu * sum(evaluations.usual / evaluations.interval for evaluations in of_rule)
        for rule, of_rule in by_name.items()
    }
    for (name, rule), share in sorted(shares.items(), key=lambda item: -item[1])[:costliest]:
        row(f"{name}: {rule}", share * 100, "%core")


def _config(ports: list[int], own: int, rules: list[str], judge: str) -> dict[str, object]:
    groups = [
        {
            "targets": [f"127.0.0.1:{ports[node % SERVERS]}"],
            "labels": {
                "__metrics_path__": f"/{node}",
                "instance": f"n{node}:9947",
                "cluster": "bench",
                "node": f"n{node}",
            },
        }
        for node in range(NODES)
    ]
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "scrape_timeout": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": "5s",  # as in deploy/scale
        },
        "rule_files": rules,
        "scrape_configs": [
            {"job_name": "stagewatch", "static_configs": groups},
            {
                "job_name": "stagewatch-slurm",
                "metrics_path": "/slurm",
                "scrape_interval": "15s",
                "scrape_timeout": "15s",
                "static_configs": [
                    {"targets": [f"127.0.0.1:{ports[0]}"], "labels": {"cluster": "bench"}}
                ],
            },
            {
                "job_name": "stagewatch-judge",
                "honor_labels": True,
                "scrape_interval": "5s",
                "scrape_timeout": "5s",
                "static_configs": [{"targets": [judge]}],
            },
            {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{own}"]}]},
        ],
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Server(("127.0.0.1", int(sys.argv[1])), Fleet).serve_forever()
    else:
        main()
