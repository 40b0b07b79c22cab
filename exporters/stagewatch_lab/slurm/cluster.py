"""A real Slurm cluster on one machine: one slurmctld, several slurmd with pretended GPUs.

Debian builds slurmd with multiple-slurmd, so `slurmd -N NAME` gives as many nodes as wanted
without containers.  It shares nothing with a Slurm that the machine may already run.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.demo.stack import free_ports
from stagewatch.demo.waiting import Condition, T, TookTooLong, wait_for
from stagewatch_lab.slurm.configuration import ClusterSpec, write_configuration
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Accounting, Daemons, Munge, environment


class SlurmCluster:
    """A running cluster; made by `start`, ended with its keeper."""

    def __init__(
        self,
        keeper: Keeper,
        directory: Path,
        spec: ClusterSpec,
        munge: Munge,
        accounting: Accounting | None = None,
    ) -> None:
        self.spec = spec
        self.directory = directory
        self.accounting = accounting
        self.controller_port = free_ports(1)[0]
        for name in ("state", "dev"):
            (directory / name).mkdir(parents=True)
        self._spool = keeper.make_directory("slurm-spool-")
        self.daemons = Daemons(keeper, directory)
        self.config = write_configuration(
            spec, directory, self._spool, self.controller_port, munge, accounting
        )
        self.env = environment({"SLURM_CONF": str(self.config)})

    def start(self) -> None:
        """Start every daemon and wait until every real node can take a job."""
        if self.accounting is not None:
            self.run("sacctmgr", "-i", "add", "cluster", self.spec.name)
        self.start_controller()
        for node in self.real_nodes:
            self.start_slurmd(node)
        for node in self.real_nodes:
            self.wait(partial(self.idle, node), f"{node} to be idle")

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self.daemons.start("slurmctld", ["slurmctld", "-D"], self.env)
        self.wait(self.controller_answers, "slurmctld to answer", limit=120)

    def controller_answers(self) -> bool:
        """Whether a ping gets an answer.  Raises `StagewatchError` if slurmctld has ended."""
        if not self.daemons.running("slurmctld"):
            raise StagewatchError(f"slurmctld ended:\n{self.daemons.log('slurmctld')}")
        return "is UP" in self.run("scontrol", "ping", check=False)

    def start_slurmd(self, node: str) -> None:
        """Start the daemon of one node; jobs that still run continue."""
        self.daemons.start(f"slurmd-{node}", ["slurmd", "-D", "-N", node], self.env)

    def run(self, *argv: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """The output of a command.  Raises `StagewatchError` with its message if it fails."""
        done = subprocess.run(
            list(argv),
            env={**self.env, **(env or {})},
            capture_output=True,
            check=False,
            timeout=120,
            cwd="/",
        )
        stdout = done.stdout.decode(errors="surrogateescape")
        if check and done.returncode:
            raise StagewatchError(
                f"{' '.join(argv)} failed: {done.stderr.decode(errors='replace')}{stdout}"
            )
        return stdout

    def submit(self, *flags: str, script: str = "exec sleep 600", user: str = "root") -> str:
        """Submit a batch job; returns its id."""
        argv = ["sbatch", "--parsable", "--chdir=/", "--output=/dev/null", f"--uid={user}"]
        return self.run(*argv, *flags, f"--wrap={script}").strip().split(";")[0]

    def state(self, node: str) -> str:
        """A node's state as `scontrol show node` prints it."""
        shown = self.run("scontrol", "-o", "show", "node", node, check=False)
        return shown.partition(" State=")[2].split(" ")[0]

    def idle(self, node: str) -> bool:
        """Whether a node is idle and takes jobs."""
        return self.state(node) == "IDLE"

    def job_state(self, job: str) -> str:
        """A job's state, empty once the controller has forgotten it."""
        shown = self.run("scontrol", "-o", "show", "job", job, check=False)
        return shown.partition(" JobState=")[2].split(" ")[0]

    def wait(self, condition: Condition[T], what: str, limit: float = 90) -> T:
        """Wait for a condition; the controller's log goes into the failure."""
        try:
            return wait_for(condition, what, limit)
        except TookTooLong as error:
            raise TookTooLong(f"{error}\n{self.daemons.log('slurmctld')}") from None

    def wait_job(self, job: str, *states: str) -> str:
        """Wait until a job is in one of the states."""

        def there() -> str | None:
            state = self.job_state(job)
            return state if state in states else None

        return self.wait(there, f"job {job} to be {states}")

    def processes_on(self, node: str) -> set[int]:
        """What runs on one of the nodes in jobs, with the step daemons."""
        found = set()
        wanted = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.config}".encode()}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environ = set((entry / "environ").read_bytes().split(b"\0"))
                parent = (entry / "status").read_text().partition("PPid:\t")[2].split()[0]
                title = Path(f"/proc/{parent}/cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            if wanted <= environ:
                found |= {int(entry.name), *([int(parent)] if b"slurmstepd" in title else [])}
        return found

    def wait_job_saved(self, job: str) -> None:
        """Wait until slurmctld has saved its jobs, with this one as it now is.

        It saves some seconds after a change, so this makes one.
        """
        comment = f"saved-{time.time_ns()}"
        self.run("scontrol", "update", f"jobid={job}", f"comment={comment}")
        self._wait_saved("job_state", comment)

    def wait_reason_saved(self, reason: str) -> None:
        """Wait until slurmctld has saved a node with this reason, some seconds after it was set."""
        self._wait_saved("node_state", reason)

    def _wait_saved(self, file: str, text: str) -> None:
        saved = self.directory / "state" / file

        def there() -> bool:
            with suppress(FileNotFoundError):  # for a moment, while it is replaced
                return text.encode() in saved.read_bytes()
            return False

        self.wait(there, f"{text!r} to be saved in {file}")

    def empty(self) -> None:
        """Cancel every job, bring every node back, and wait until nothing is allocated."""
        for user in set(self.run("squeue", "-h", "-o", "%u").split()):
            self.run("scancel", f"--user={user}", check=False)

        def quiet() -> bool:
            for node in self.real_nodes:
                if not self.daemons.running(f"slurmd-{node}"):
                    self.start_slurmd(node)
                self.daemons.send(f"slurmd-{node}", signal.SIGCONT)
            if self.run("squeue", "-h", "-t", "PD,R,CG,S"):
                return False
            for node in self.real_nodes:
                state = self.state(node)
                if "DRAIN" in state or "DOWN" in state:
                    self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
            return all(self.state(node) == "IDLE" for node in self.real_nodes)

        self.wait(quiet, "the cluster to be idle and empty")

    @property
    def real_nodes(self) -> tuple[str, ...]:
        """The nodes that have a slurmd."""
        return self.spec.real_nodes
