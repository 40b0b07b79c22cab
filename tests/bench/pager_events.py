"""Twelve events of a cluster of 1,024 nodes, as the series that agents would show of them.

A fleet is a course for each series: what it was for six minutes, and what it is in the ten minutes
from the event on.  It has 64 nodes, each of which stands for `COPIES`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

NODES = 64
COPIES = 16
JOB_NODES = 8
STEP_SECONDS = 15
BEFORE, AFTER = 24, 40
"""Steps before the event and from it on."""
SERVER = "nas-1"
STAGE = "train"


class Fleet:
    """Series by name and labels; each is a list of values, `None` where nothing is scraped."""

    def __init__(self) -> None:
        self.series: dict[str, list[float | None]] = {}
        self.by_node: dict[str, list[str]] = {}

    def add(
        self, name: str, value: float | Callable[[int], float | None] | None, **labels: object
    ) -> str:
        """One series, of a value or a course over the steps, in which the event is at 0."""
        pairs = ", ".join(f"{key}={json.dumps(str(text))}" for key, text in labels.items())
        key = f'{name}{{cluster="CLUSTER", {pairs}}}'
        steps = range(-BEFORE, AFTER)
        self.series[key] = [value(step) if callable(value) else value for step in steps]
        if "node" in labels and labels.get("instance") != "slurm" and name != "up":
            self.by_node.setdefault(str(labels["node"]), []).append(key)
        return key

    def change(self, key: str, value: Callable[[int], float | None], since: int = 0) -> None:
        """Another course from a step on."""
        values = self.series[key]
        values[BEFORE + since :] = [value(step) for step in range(since, AFTER)]

    def change_all(self, name: str, value: Callable[[int], float | None], **labels: str) -> None:
        """Every series of a name with these labels."""
        wanted = [f"{key}={json.dumps(text)}" for key, text in labels.items()]
        for key in self.series:
            if key.startswith(name + "{") and all(pair in key for pair in wanted):
                self.change(key, value)

    def silence(self, nodes: Iterable[str], steps: range, *, whole_node: bool = True) -> None:
        """Nothing answers on these nodes; or only the agent does not."""
        for name in nodes:
            for job in ("stagewatch", "node_exporter") if whole_node else ("stagewatch",):
                key = next(k for k in self._up(name) if f'job="{job}"' in k)
                for step in steps:
                    self.series[key][BEFORE + step] = 0
            for key in self.by_node.get(name, ()):
                for step in steps:
                    self.series[key][BEFORE + step] = None

    def slurm_node(
        self, name: str, course: Callable[[int], tuple[str, str, tuple[str, ...], str] | None]
    ) -> None:
        """A node out of service for Slurm: base state, kind, flags and reason at a step."""
        told = {step: course(step) for step in range(AFTER)}
        of_slurm = {"node": name, "instance": "slurm"}
        for what in {value for value in told.values() if value}:
            _, kind, _, reason = what

            def now(step: int, what: object = what) -> float | None:
                return 1 if told.get(step) == what else None

            described = {"kind": kind, "reason_class": "other", "reason": reason, "user": "root"}
            self.add("slurm_node_unavailable_info", now, **of_slurm, **described)
        for flag in {flag for value in told.values() if value for flag in value[2]}:

            def flagged(step: int, flag: str = flag) -> float | None:
                value = told.get(step)
                return 1 if value and flag in value[2] else None

            self.add("slurm_node_flag", flagged, **of_slurm, flag=flag)
        idle = self.add("slurm_node_state", 1, **of_slurm, state="MIXED")
        self.change(idle, lambda step: None if told[step] and told[step][0] == "DOWN" else 1)  # type: ignore[index]

        def down(step: int) -> float | None:
            value = told.get(step)
            return 1 if value and value[0] == "DOWN" else None

        self.add("slurm_node_state", down, **of_slurm, state="DOWN")

    def text(self, cluster: str) -> dict[str, str]:
        """The courses in promtool's notation."""
        return {key.replace("CLUSTER", cluster): _text(v) for key, v in self.series.items()}

    def _up(self, name: str) -> list[str]:
        return [f'up{{cluster="CLUSTER", job="{job}", node="{name}", instance="{name}:{port}"}}'
                for job, port in (("stagewatch", 9947), ("node_exporter", 9100))]  # fmt: skip


def _text(values: Iterable[float | None]) -> str:
    """A target that no longer shows a series ends it; a Prometheus that is away (NaN) does not."""
    words: list[str] = []
    last: float | None = None
    for value in values:
        if value is None:
            words.append("_" if last is None else "stale")
        else:
            words.append("_" if value != value else f"{value:.10g}")
        last = value
    return " ".join(words)


def node_name(number: int) -> str:
    """`gpu-0001` is the first."""
    return f"gpu-{number + 1:04}"


def job_of(number: int) -> int:
    """The job that a node belongs to."""
    return 500 + number // JOB_NODES


def healthy() -> Fleet:
    """A cluster at work: a rank and a GPU on each node, 16 jobs, one shared file system."""
    fleet = Fleet()
    for number in range(NODES):
        name = node_name(number)
        for job, port in (("stagewatch", 9947), ("node_exporter", 9100)):
            fleet.add("up", 1, job=job, node=name, instance=f"{name}:{port}")
        on = {"node": name, "instance": f"{name}:9947", "job": "stagewatch"}
        gpu = on | {"gpu": 0, "uuid": f"GPU-{number}"}
        fleet.add("gpu_up", 1, **gpu)
        fleet.add("gpu_info", 1, **gpu, type="h200", mig="")
        fleet.add("stagewatch_collector_success", 1, **on, collector="gpu")
        fleet.add("io_filesystem_available_bytes", 5e14, **on, mount="/shared")
        fleet.add("io_filesystem_size_bytes", 1e15, **on, mount="/shared")
        fleet.add("io_filesystem_read_only", 0, **on, mount="/shared")
        fleet.add("nfs_info", 1, **on, mount="/shared", server=SERVER)
        for what in ("requests_sent", "replies_received"):
            count = lambda step: 1e6 + 1500 * step  # noqa: E731
            fleet.add(f"nfs_transport_{what}_total", count, **on, mount="/shared")
        fleet.add("slurm_node_state", 1, node=name, instance="slurm", state="ALLOCATED")
        of_type = {"gpu_type": "h200", "model": "h200"}
        fleet.add("slurm_node_gpus", 1, node=name, instance="slurm", **of_type)
        job = job_of(number)
        fleet.add("slurm_job_node", 1, node=name, instance="slurm", job_id=job, gpus="0")
        rank = on | {"job_id": job, "role": "train", "rank": number % JOB_NODES}
        add_rank(fleet, rank)
    for job in {job_of(number) for number in range(NODES)}:
        owner = {"user": "ann", "account": "rl", "partition": "gpu", "array_job_id": ""}
        fleet.add("slurm_job_info", 1, job_id=job, instance="slurm", **owner)
    for source in ("jobs", "nodes", "diagnostics"):
        fleet.add("slurm_source_success", 1, source=source, instance="slurm")
    fleet.add("slurm_controller_up", 1, host="head", role="primary", instance="slurm")
    fleet.add("slurm_cluster_nodes", NODES, state="ALLOCATED", instance="slurm")
    fleet.add("slurm_events_kept", 1, instance="slurm")
    fleet.add("up", 1, job="stagewatch-slurm", instance="head:9948")
    return fleet


def add_rank(fleet: Fleet, rank: Mapping[str, object], start: int = -BEFORE) -> None:
    """A rank that trains, at three seconds of progress' age at most, from a step on."""

    def since(value: float) -> Callable[[int], float | None]:
        return lambda step: value if step >= start else None

    info = {"pid": 4000, "local_rank": 0, "world_size": JOB_NODES, "uuid": f"GPU-{rank['rank']}"}
    fleet.add("rl_rank_info", since(1), **rank, framework="trl", **info)
    fleet.add("rl_rank_up", since(1), **rank)
    role = {key: value for key, value in rank.items() if key != "rank"}
    fleet.add("rl_ranks_live", since(1), **role)
    fleet.add("rl_stage_ranks", since(1), **role, stage=STAGE)
    fleet.add("rl_newest_step", lambda step: 100 + step if step >= start else None, **role)
    for which in ("shortest", "longest"):
        fleet.add(f"rl_progress_age_{which}_seconds", since(0.5), **role)
    fleet.add("rl_rank_progress_age_seconds", since(0.5), **rank)
    fleet.add("rl_rank_stage_open_seconds", since(1), **rank, stage=STAGE, substage="")
    fleet.add("rl_rank_stage_code", since(5), **rank)
    fleet.add("rl_rank_step", lambda step: 100 + step if step >= start else None, **rank)
    fleet.add("rl_rank_wait_class", since(1), **rank, **{"class": "spin"})
    fleet.add("rl_rank_group_size", since(JOB_NODES), **rank, group="world")
    sequence = lambda step: 1000 + 9 * step if step >= start else None  # noqa: E731
    fleet.add("rl_rank_collective_seq", sequence, **rank, group="world")
    if rank["rank"] == 0:
        of_job = {key: rank[key] for key in ("node", "instance", "job", "job_id", "role")}
        for bound in ("1", "3", "+Inf"):
            labels = of_job | {"stage": STAGE, "le": bound}
            fleet.add("rl_progress_gap_seconds_bucket", since(9000), **labels)
        fleet.add("rl_progress_gap_seconds_count", since(9000), **of_job, stage=STAGE)


def stall(fleet: Fleet, job: int, *, wait: str = "spin", steps: int = AFTER) -> None:
    """All ranks of a job wait, for some steps."""
    which = {"job_id": str(job)}
    for name in (
        "rl_rank_progress_age_seconds",
        "rl_progress_age_shortest_seconds",
        "rl_progress_age_longest_seconds",
        "rl_rank_stage_open_seconds",
    ):
        fleet.change_all(
            name, lambda step: STEP_SECONDS * step + 1 if step < steps else 0.5, **which
        )
    steps_made = {"rl_rank_step": 100.0, "rl_newest_step": 100.0, "rl_rank_collective_seq": 1000.0}
    for name, value in steps_made.items():
        fleet.change_all(name, lambda step, value=value: value, **which)  # type: ignore[misc]
    fleet.change_all("rl_rank_wait_class", lambda step: 1 if wait == "spin" else None, **which)
    for key in [k for k in fleet.series if k.startswith("rl_rank_wait_class") and f'"{job}"' in k]:
        if wait != "spin":
            other = key.replace('"spin"', f'"{wait}"')
            fleet.series[other] = [None] * (BEFORE + AFTER)
            fleet.change(other, lambda step: 1)
        inside = key.replace("rl_rank_wait_class", "rl_rank_collective_inside_seconds")
        inside = inside.replace('class="spin"', 'group="world", op="all_reduce", peer=""')
        fleet.series[inside] = [None] * (BEFORE + AFTER)
        if wait == "spin":
            fleet.change(inside, lambda step: STEP_SECONDS * step + 1 if step < steps else None)


@dataclass(frozen=True)
class Event:
    """What happens, whether somebody must be woken, and what may be named first."""

    name: str
    happens: Callable[[Fleet], None]
    pages: bool
    causes: tuple[str, ...] = ()
    copies: int = COPIES


def _dead(fleet: Fleet, numbers: Iterable[int]) -> None:
    """Nodes that lose power: Slurm notices after 105 s, and ends their jobs after 300 s."""
    numbers = list(numbers)
    names = [node_name(number) for number in numbers]
    for job in {job_of(number) for number in numbers}:
        stall(fleet, job)
    fleet.silence(names, range(AFTER))
    for name in names:

        def course(step: int) -> tuple[str, str, tuple[str, ...], str] | None:
            if step < 7:
                return None
            state = "MIXED" if step < 20 else "DOWN"
            return state, "down", ("NOT_RESPONDING",), "Not responding"

        fleet.slurm_node(name, course)
    for job in {job_of(number) for number in numbers}:
        _end_job(fleet, job, 21)
    failed = lambda step: len({job_of(n) for n in numbers}) if step >= 21 else None  # noqa: E731
    ended = {"partition": "gpu", "state": "NODE_FAIL", "instance": "slurm"}
    fleet.add("slurm_jobs_ended_total", failed, **ended)


def _end_job(fleet: Fleet, job: int, step: int) -> None:
    for key in fleet.series:
        if f'job_id="{job}"' in key:
            fleet.change(key, lambda step: None, step)


def _rack_down(fleet: Fleet) -> None:
    _dead(fleet, range(6, 9))


def _controller_down(fleet: Fleet) -> None:
    fleet.change_all("slurm_source_success", lambda step: 0)
    fleet.change_all("slurm_controller_up", lambda step: 0)
    for name in ("slurm_node_state", "slurm_node_gpus", "slurm_job_node", "slurm_job_info"):
        fleet.change_all(name, lambda step: 1 if step < 6 else None)
    fleet.change_all("slurm_cluster_nodes", lambda step: NODES if step < 6 else None)
    age = lambda step: 15 * max(step, 0) + 5  # noqa: E731
    for source in ("jobs", "nodes", "accounting_jobs"):
        fleet.add("slurm_source_age_seconds", age, source=source, instance="slurm")
        slow = lambda step: 8 if step >= 0 else 0.1  # noqa: E731
        fleet.add("slurm_controller_response_seconds", slow, source=source, instance="slurm")


def _mount_full(fleet: Fleet) -> None:
    fleet.change_all(
        "io_filesystem_available_bytes", lambda step: 5e13 if step < 4 else 0, mount="/shared"
    )
    for number in range(NODES):
        name = node_name(number)
        on = {"node": name, "instance": f"{name}:9947", "job": "stagewatch", "mount": "/shared"}
        full = lambda step: 1 if step >= 4 else None  # noqa: E731
        fleet.add("io_canary_error", full, **on, phase="write", error="ENOSPC")
    for job in range(500, 502):
        for number in range(JOB_NODES):
            name = node_name((job - 500) * JOB_NODES + number)
            on = {"node": name, "instance": f"{name}:9947", "job": "stagewatch"}
            who = {"job_id": job, "role": "train", "rank": number}
            when = lambda step: 15 * (BEFORE + 6) if step >= 6 else None  # noqa: E731
            first = {"stage": "checkpoint", "error": "OSError"}
            fleet.add("rl_rank_first_failure_timestamp_seconds", when, **on, **who, **first)


def _nfs_dead(fleet: Fleet) -> None:
    fleet.change_all("nfs_transport_replies_received_total", lambda step: 1e6)
    for number in range(NODES):
        name = node_name(number)
        on = {"node": name, "instance": f"{name}:9947", "job": "stagewatch"}
        silent = lambda step: 1 if step >= 4 else 0  # noqa: E731
        fleet.add("nfs_server_not_responding", silent, **on, server=SERVER)
        stuck = lambda step: 15 * step if step > 0 else 0  # noqa: E731
        fleet.add("io_canary_stuck_seconds", stuck, **on, mount="/shared", phase="open")
    for job in range(500, 508):
        stall(fleet, job, wait="io")


def _agents_upgraded(fleet: Fleet) -> None:
    batch = NODES // 8
    for turn in range(8):
        names = map(node_name, range(turn * batch, (turn + 1) * batch))
        fleet.silence(names, range(turn * 5, min(turn * 5 + 6, AFTER)), whole_node=False)


def _maintenance(fleet: Fleet) -> None:
    """A tenth is drained and reserved; after two minutes it is switched off for new firmware."""
    numbers = range(NODES - 7, NODES)
    flags = ("DRAIN", "MAINTENANCE")
    for number in numbers:
        name = node_name(number)
        for key in fleet.by_node[name]:
            if key.startswith("rl_"):
                fleet.change(key, lambda step: None, -20)

        def course(step: int) -> tuple[str, str, tuple[str, ...], str]:
            if step < 8:
                return "IDLE", "drain", flags, "firmware update"
            return "DOWN", "down", (*flags, "NOT_RESPONDING"), "firmware update"

        fleet.slurm_node(name, course)
        fleet.change_all("gpu_up", lambda step: 0 if step >= 4 else 1, node=name)
    fleet.silence(map(node_name, numbers), range(8, 36))


def _reboot(fleet: Fleet) -> None:
    """`scontrol reboot ASAP` of a rack; Slurm drains, then shows DOWN until a node is back."""
    numbers = range(40, 42)
    for number in numbers:
        name = node_name(number)
        for key in fleet.by_node[name]:
            if key.startswith("rl_"):
                fleet.change(key, lambda step: None, -20)

        def course(step: int) -> tuple[str, str, tuple[str, ...], str] | None:
            if step < 2:
                return "IDLE", "drain", ("DRAIN", "REBOOT_REQUESTED"), "Reboot ASAP"
            if step < 20:
                return "DOWN", "down", ("REBOOT_ISSUED", "NOT_RESPONDING"), "Reboot ASAP"
            return None

        fleet.slurm_node(name, course)
    fleet.silence(map(node_name, numbers), range(2, 19))


def _job_ends(fleet: Fleet, after: int = 5) -> None:
    """All ranks are killed but three, which save; the job is gone after some steps."""
    job = 503
    stall(fleet, job)
    for number in range(JOB_NODES):
        who = {"job_id": str(job), "rank": str(number)}
        if number >= 3:
            fleet.change_all("rl_rank_up", lambda step: 0 if step < after - 1 else None, **who)
            name = node_name((job - 500) * JOB_NODES + number)
            node = {"job_id": str(job), "node": name}
            on = node | {"instance": f"{name}:9947", "job": "stagewatch", "role": "train"}
            gone = lambda step: 1 if 0 <= step < after - 1 else None  # noqa: E731
            fleet.add("rl_rank_gone", gone, **on, rank=number)
            fleet.change_all("rl_ranks_live", lambda step: None, **node)
            fleet.change_all("rl_stage_ranks", lambda step: 0, **node)
            fleet.change_all("rl_progress_age_shortest_seconds", lambda step: None, **node)
            for name in ("rl_rank_progress", "rl_rank_stage", "rl_rank_coll", "rl_rank_wait"):
                for key in fleet.series:
                    if key.startswith(name) and all(f'{k}="{v}"' in key for k, v in who.items()):
                        fleet.change(key, lambda step: None)
    _end_job(fleet, job, after)
    ended = lambda step: 1 if step >= after - 3 else None  # noqa: E731
    fleet.add("slurm_jobs_ended_total", ended, partition="gpu", state="CANCELLED", instance="slurm")


def _preempted(fleet: Fleet) -> None:
    """Slurm signals the job, which saves for a grace time of three minutes; another one follows."""
    saved = 12
    _job_ends(fleet, saved)
    who = {"job_id": 503, "partition": "gpu", "user": "ann", "instance": "slurm"}
    signalled = lambda step: BEFORE * STEP_SECONDS if 0 < step < saved else None  # noqa: E731
    of_job = who | {"account": "rl"}
    fleet.add("slurm_job_preempted_since_timestamp_seconds", signalled, **of_job)
    count = lambda step: 1 if step >= saved else None  # noqa: E731
    fleet.add("slurm_job_restarts", count, **who)
    first = 3 * JOB_NODES
    for number in range(first, first + JOB_NODES):
        name = node_name(number)
        rank = {"node": name, "instance": f"{name}:9947", "job": "stagewatch"}
        rank |= {"job_id": 900, "role": "train", "rank": str(number - first)}
        add_rank(fleet, rank, saved + 3)


def _array_fails(fleet: Fleet) -> None:
    """The thousand tasks of an array begin, run out of memory, and are put back again and again."""
    for number in range(NODES):
        name = node_name(number)
        begins = number % 8
        on = {"node": name, "instance": f"{name}:9947", "job": "stagewatch"}
        who = {"job_id": 2000 + number, "role": "train", "rank": 0}
        when = STEP_SECONDS * (BEFORE + begins)

        def since(value: float, begins: int = begins) -> Callable[[int], float | None]:
            return lambda step: value if step >= begins else None

        killed = {"scope": "cgroup", **who}
        fleet.add("log_oom_kill_last_timestamp_seconds", since(when), **on, **killed)
        error = {"pattern": "cuda_oom", "file": "", **who}
        fleet.add("log_first_match_timestamp_seconds", since(when), **on, **error)
        if number < 12:
            owner = {"partition": "gpu", "user": "bob", "instance": "slurm"}
            again = lambda step: min(step // 5, 4) if step > 4 else None  # noqa: E731
            fleet.add("slurm_job_restarts", again, job_id=2000 + number, **owner)
    failed = lambda step: min(50 * step, 1000) if step > 0 else None  # noqa: E731
    fleet.add("slurm_jobs_ended_total", failed, partition="gpu", state="FAILED", instance="slurm")


def _prometheus_restarted(fleet: Fleet) -> None:
    """Nothing is scraped for 75 s; a page was open before."""
    fleet.change_all("gpu_up", lambda step: 0, node=node_name(3))
    for values in fleet.series.values():
        values[BEFORE + 8 : BEFORE + 13] = [float("nan")] * 5


NODE_CAUSES = ("JobLostNode", "NodesLost", "SlurmNodeDown", "StagewatchAgentUnreachable")
EVENTS = (
    Event("node down", lambda fleet: _dead(fleet, [20]), True, NODE_CAUSES, copies=1),
    Event("rack down", _rack_down, True, NODE_CAUSES),
    Event("controller down", _controller_down, True, ("SlurmControllerDown",)),
    Event("shared mount full", _mount_full, True, ("StorageSpaceExhausted", "StorageSpaceLow")),
    Event("NFS server dead", _nfs_dead, True, ("NFSServerNotResponding", "StorageStuck")),
    Event("agents upgraded", _agents_upgraded, False),
    Event("maintenance", _maintenance, False),
    Event("reboot", _reboot, False),
    Event("job cancelled", _job_ends, False),
    Event("job preempted", _preempted, False),
    Event("array fails", _array_fails, False),
    Event("Prometheus restarted", _prometheus_restarted, True, ("GPULost",), copies=1),
)
