"""What happens to the jobs of the lab: how each begins, and what is then done to it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.fakes.faultfs import FaultFs, missing
from tests.lab.lab import Job, Lab

Start = Callable[[Lab], Job]
SERVED = ("sh", "-c", 'echo -20 2>/dev/null >/proc/self/autogroup; exec "$@"', "sh")
"""Before ranks of which one computes: it is not starved, however full the machine is."""
Inject = Callable[[Job], None]


@dataclass(frozen=True, slots=True)
class Scene:
    """How a job begins, what it is done to once its budget is known, and what that needs."""

    start: Start
    inject: Inject
    lacks: Callable[[], str] = lambda: ""
    """What this machine lacks for it, empty if nothing."""
    armed: bool = True
    """Whether to wait until the rules have learnt how long a step takes."""


class Running:
    """A scene in a lab."""

    def __init__(self, scene: Scene, lab: Lab, dead_mount: FaultFs | None) -> None:
        self._scene = scene
        self._lab = lab
        self._dead_mount = dead_mount
        self.missing = scene.lacks()
        self.job: Job

    def start(self) -> None:
        """Start the job."""
        if not self.missing:
            self.job = self._scene.start(self._lab)

    def ready(self) -> bool:
        """Whether the job is where the fault is to find it."""
        return bool(self.missing or not self._scene.armed or self.job.armed())

    def inject(self) -> None:
        """Put it wrong."""
        if not self.missing:
            if self._dead_mount and self._scene is SCENES["dead_mount"]:
                self.job.order(f"train read {self._dead_mount.mount / 'batch'}", 1)
                self._dead_mount.fault("hang", "open")
            self._scene.inject(self.job)

    def stop(self) -> None:
        """Kill the job; whoever waits for the dead mount can be killed only once it answers."""
        if self._dead_mount and self._scene is SCENES["dead_mount"]:
            self._dead_mount.ok()
        self.job.stop()


def train(name: str, ranks: int, **options: object) -> Start:
    """A job over all nodes of the lab."""
    return lambda lab: lab.job(name, ranks, **options)  # type: ignore[arg-type]


def on(name: str, ranks: int, nodes: int, **options: object) -> Start:
    """A job over the first nodes of the lab."""
    return lambda lab: lab.job(
        name,
        [lab.nodes[rank * nodes // ranks] for rank in range(ranks)],
        **options,  # type: ignore[arg-type]
    )


def order(text: str, *ranks: int) -> Inject:
    """Tell ranks (all, if none is given) to do something."""
    return lambda job: job.order(text, *ranks)


def send(number: signal.Signals, *ranks: int) -> Inject:
    """Send ranks a signal."""
    return lambda job: job.signal(number, *ranks)


def nothing(job: Job) -> None:
    """Leave it alone."""


def no_torch() -> str:
    """Whether PyTorch can be had."""
    if importlib.util.find_spec("torch") is None:
        return "needs PyTorch (pip install torch, the CPU's build will do)"
    return ""


def no_namespaces() -> str:
    """Whether this process may make PID namespaces."""
    command = [*NAMESPACE, "true"]
    if shutil.which("unshare") is None or subprocess.run(command, capture_output=True).returncode:
        return "needs unshare(1) and the right to make PID namespaces"
    return ""


def cannot_trace() -> str:
    """Whether this process may act as a debugger of any of its children."""
    return "" if os.geteuid() == 0 else "needs root, or kernel.yama.ptrace_scope=0, to trace"


NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

DEBUGGER = """
import ctypes, os, sys, time
libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
assert libc.ptrace(16, pid, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PTRACE_ATTACH
os.waitpid(pid, 0x40000000)  # __WALL
time.sleep(float(sys.argv[2]))
libc.ptrace(17, pid, 0, 0)  # PTRACE_DETACH
"""


def debug(job: Job) -> None:
    """Hold a rank as a debugger does, for a minute."""
    command = [sys.executable, "-c", DEBUGGER, str(job.processes[1].pid), "60"]
    job.lab.children.start(command, log=job.directory / "debugger.log")


def pair(lab: Lab) -> Job:
    """Train and rollout ranks with the same numbers in one job, on the same nodes."""
    rollout = lab.job("pair", [lab.nodes[0]] * 2 + [lab.nodes[1]] * 2, role="rollout", wait="park")
    return lab.job("pair", rollout.nodes)


def requeue(job: Job) -> None:
    """Kill all ranks, as a node failure does, and start them anew on other nodes."""
    job.signal(signal.SIGKILL)
    job.directory.rename(job.directory.with_name("job-requeued-before"))
    again = job.lab.job(job.job_id, job.lab.nodes[-job.size :], wait="park")
    job.processes += again.processes


SCENES = {
    # The sync stall.
    "s0_8": Scene(on("s0-8", 8, 2), order("lap leave", 3)),
    # One rank that the others wait for.
    "behind_spin": Scene(train("behind-spin", 4), order("train park", 3)),
    "torch": Scene(
        train("torch", 4, program="tests.lab.torch_rank"), order("train wait", 2), lacks=no_torch
    ),
    "raised": Scene(train("raised", 4, wait="park"), order("lap fail", 2)),
    "stopped": Scene(train("stopped", 4), send(signal.SIGSTOP, 2)),
    "dead_mount": Scene(train("dead-mount", 4, wait="park"), nothing, lacks=missing),
    # Ranks in odd places.
    "container": Scene(
        train("container", 4, prefix=NAMESPACE, wait="park"),
        order("lap leave", 1),
        lacks=no_namespaces,
    ),
    "pair": Scene(pair, order("lap leave", 1)),
    "shell": Scene(lambda lab: lab.shell_job(lab.nodes[2], 4), order("lap leave", 2)),
    # Nobody stands out.
    "group": Scene(train("group", 4), order("train spin")),
    "event_lost": Scene(train("event-lost", 4, wait="park"), order("rollout park")),
    # Slow, not stuck: five times as slow as ever before, which is within the budget of the stage.
    "straggler": Scene(
        train("straggler", 8, wait="park", rollout=4.0), order("rollout slow 16", 5)
    ),
    # Healthy, whatever it looks like.
    "compile_again": Scene(
        train("compile-again", 3, prefix=SERVED, wait="park"), order("train compile 80", 0)
    ),
    "checkpoint": Scene(train("checkpoint", 3, wait="park"), order("lap checkpoint 150")),
    "evaluation": Scene(train("evaluation", 3), order("lap evaluate 150", 0)),
    "first_step": Scene(
        train("first-step", 3, wait="park", orders="init sleep 120"), nothing, armed=False
    ),
    "idle": Scene(train("idle", 3, wait="park"), order("lap sleep 150")),
    "data_pause": Scene(train("data-pause", 3, wait="park", pause=8.0), nothing),
    "debugger": Scene(train("debugger", 3), debug, lacks=cannot_trace),
    "requeued": Scene(lambda lab: lab.job("requeued", lab.nodes[:2], wait="park"), requeue),
}
