"""Asks a cluster through Slurm's commands, in text or in JSON.

A command runs with a deadline, a limit on its output, and an environment that is known.  JSON says
which GPUs each job has, and no reason is cut short; it costs several times the time and memory of
text, and what an installed version offers only in text is read in text.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from stagewatch.core.errors import NoData, SourceError, Stuck
from stagewatch.slurm.model import (
    Claim,
    Controller,
    Diagnostics,
    EndedJob,
    Job,
    License,
    Node,
    NodeEvent,
    Records,
    Reservation,
)
from stagewatch.slurm.transport import accounting, diagnostics, json, text

MAX_OUTPUT = 512 * 1024 * 1024
"""Bytes of output after which a command is taken to run wild."""

_MAX_COMPLAINT = 64 * 1024
_FORMATTING = (
    "SLURM_TIME_FORMAT",
    "SLURM_BITSTR_LEN",
    "SLURM_CLUSTERS",
    "SLURM_JSON",
    "SLURM_YAML",
)
_COMMAND_PREFIXES = ("SQUEUE_", "SINFO_", "SACCT_", "SACCTMGR_", "SCONTROL_", "SDIAG_")


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what would change the output's shape.

    Times come as Unix seconds and array task lists in full.
    """
    kept = {
        name: value
        for name, value in base.items()
        if name not in _FORMATTING and not name.startswith(_COMMAND_PREFIXES)
    }
    fixed = {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    return {**kept, **fixed}


class NoAnswer(SourceError):
    """The command was killed at its deadline."""


@dataclass(slots=True)
class CommandRunner:
    """Runs one command at a time; each source has its own."""

    environ: Mapping[str, str] = field(default_factory=lambda: environment(os.environ))
    max_output: int = MAX_OUTPUT
    _unreaped: subprocess.Popen[bytes] | None = None
    _running: subprocess.Popen[bytes] | None = None
    _closed: bool = False

    def run(self, argv: Sequence[str], timeout: float, *, accept_status: bool = False) -> bytes:
        """Run a command, and return what it prints on standard output.

        With `accept_status` a command that fails but printed something has answered.

        Raises `SourceError` where it is missing, fails, floods or is killed at its deadline of
        `timeout` seconds; `Stuck` while a killed one has not gone away.  The message of a failure
        that repeats is the same each time.
        """
        name = argv[0].rpartition("/")[2]
        self._wait_for_killed(name)
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environ),
                cwd="/",
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise SourceError(f"{argv[0]} is not installed, or not on PATH") from error
        except OSError as error:
            raise SourceError(f"{argv[0]} cannot be run: {error.strerror}") from error
        self._running = process
        if self._closed:  # while the command was being started
            _kill_group(process)
        try:
            output = self._finish(process, name, timeout, accept_status)
        finally:
            self._running = None
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        return output

    def close(self) -> None:
        """Kill what is running or about to run, from another thread; after the last `run`."""
        self._closed = True
        process = self._running
        if process is not None:
            _kill_group(process)

    def _finish(
        self, process: subprocess.Popen[bytes], name: str, timeout: float, accept_status: bool
    ) -> bytes:
        output, complaint, ended = _read(process, timeout, self.max_output)
        if not ended:
            self._kill(process)
            if len(output) > self.max_output:
                raise SourceError(
                    f"{name} printed more than {self.max_output >> 20} MiB and was killed"
                )
            raise NoAnswer(f"{name} gave no answer within {timeout:g} s and was killed")
        if process.returncode != 0 and not (accept_status and output):
            raise SourceError(f"{name} failed ({_status(process)}): {_one_line(complaint)}")
        return bytes(output)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        _kill_group(process)
        try:
            process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self._unreaped = process

    def _wait_for_killed(self, name: str) -> None:
        if self._unreaped is None:
            return
        if self._unreaped.poll() is None:
            raise Stuck(f"{name} was killed but does not go away; not started again until it does")
        self._unreaped = None


def _read(
    process: subprocess.Popen[bytes], timeout: float, limit: int
) -> tuple[bytearray, bytearray, bool]:
    """Read standard output and error, and tell whether the process ended by itself in time."""
    deadline = time.monotonic() + timeout
    printed: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
    with selectors.DefaultSelector() as selector:
        pipes: tuple[tuple[IO[bytes] | None, str], ...] = (
            (process.stdout, "out"),
            (process.stderr, "err"),
        )
        for pipe, kind in pipes:
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, kind)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                return printed["out"], printed["err"], False
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 20)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.data == "out" or len(printed["err"]) < _MAX_COMPLAINT:
                    printed[key.data] += chunk
            if len(printed["out"]) > limit:
                return printed["out"], printed["err"], False
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return printed["out"], printed["err"], False
    return printed["out"], printed["err"], True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _status(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return f"signal {-code}" if code < 0 else f"status {code}"


def _one_line(complaint: bytearray) -> str:
    """The last line of a complaint, without what differs from one time to the next."""
    lines = complaint.decode(errors="replace").strip().splitlines()
    last = lines[-1].strip()[:300] if lines else "it said nothing"
    return re.sub(r"^\S+: error: (?=\S)", "", last)


class SlurmCli:
    """Asks in text, one method for each kind of data; see `SlurmClient`.

    `prefix` is the directory of the commands, where they are not on PATH.
    """

    def __init__(
        self, *, prefix: Path | None = None, runner: Callable[[], CommandRunner] = CommandRunner
    ) -> None:
        self._prefix = prefix
        self._make_runner = runner
        self._runners: dict[str, CommandRunner] = {}

    def jobs(self, timeout: float) -> Records[Job]:
        """The queue: 2 requests to the controller (squeue loads the partitions too)."""
        return text.parse_jobs(self._run("jobs", timeout, "squeue", *text.JOBS))

    def nodes(self, timeout: float) -> Records[Node]:
        """The nodes: 2 requests to the controller (scontrol loads the partitions too)."""
        return text.parse_nodes(self._run("nodes", timeout, "scontrol", *text.NODES))

    def diagnostics(self, timeout: float) -> Diagnostics:
        """The controller's statistics: 1 request."""
        return diagnostics.parse_text(self._run("diagnostics", timeout, "sdiag"))

    def ping(self, timeout: float) -> tuple[Controller, ...]:
        """Which controllers answer: 1 request to each."""
        output = self._run("ping", timeout, "scontrol", *text.PING, accept_status=True)
        return text.parse_ping(output)

    def reservations(self, timeout: float) -> Records[Reservation]:
        """The reservations: 1 request."""
        output = self._run("reservations", timeout, "scontrol", *text.RESERVATIONS)
        return text.parse_reservations(output)

    def licenses(self, timeout: float) -> Records[License]:
        """The licences: 1 request."""
        return text.parse_licenses(self._run("licenses", timeout, "scontrol", *text.LICENSES))

    def ended_jobs(self, timeout: float, ago: float) -> Records[EndedJob]:
        """Runs that ended: nothing to the controller, one query to slurmdbd."""
        arguments = accounting.job_arguments(ago)
        return accounting.parse_jobs(self._account("ended_jobs", timeout, "sacct", *arguments))

    def node_events(self, timeout: float, ago: float) -> Records[NodeEvent]:
        """Events of nodes: one query to slurmdbd."""
        arguments = accounting.event_arguments(ago)
        return accounting.parse_events(
            self._account("node_events", timeout, "sacctmgr", *arguments)
        )

    def gpu_claims(self, timeout: float) -> Records[Claim]:
        """Which job has which GPUs: 2 requests to the controller (scontrol loads the nodes too)."""
        return text.parse_claims(self._run("gpu_claims", timeout, "scontrol", *text.JOB_DETAILS))

    def close(self) -> None:
        """Kill every command that is running."""
        for runner in tuple(self._runners.values()):
            runner.close()

    def _run(
        self,
        source: str,
        timeout: float,
        command: str,
        *arguments: str,
        accept_status: bool = False,
    ) -> bytes:
        runner = self._runners.setdefault(source, self._make_runner())
        name = str(self._prefix / command) if self._prefix else command
        return runner.run([name, *arguments], timeout, accept_status=accept_status)

    def _account(self, source: str, timeout: float, command: str, *arguments: str) -> bytes:
        try:
            return self._run(source, timeout, command, *arguments)
        except SourceError as error:
            if any(sign in str(error) for sign in accounting.DISABLED):
                raise NoData("the cluster has no accounting (slurmdbd)") from error
            raise


_SCONTROL_HAS_JSON = (23, 2)


class SlurmJsonCli(SlurmCli):
    """Asks for the queue, the nodes and the diagnostics in JSON, for the rest in text."""

    _version: tuple[int, int] | None = None

    def jobs(self, timeout: float) -> Records[Job]:
        """The queue: 1 request to the controller."""
        output = self._run("jobs", timeout, "squeue", "--json", "--all", "--states=all")
        return json.jobs(json.document(output, "squeue --json"))

    def nodes(self, timeout: float) -> Records[Node]:
        """The nodes: 2 requests to the controller."""
        if self._installed(timeout) >= _SCONTROL_HAS_JSON:
            command: tuple[str, ...] = ("scontrol", "--json", "--details", "--all", "show", "nodes")
        else:
            command = ("sinfo", "--json", "--all")
        output = self._run("nodes", timeout, *command)
        return json.nodes(json.document(output, f"{command[0]} --json"))

    def diagnostics(self, timeout: float) -> Diagnostics:
        """The controller's statistics: 1 request."""
        if self._installed(timeout) < _SCONTROL_HAS_JSON:
            return super().diagnostics(timeout)
        output = self._run("diagnostics", timeout, "sdiag", "--json")
        return diagnostics.parse_json(json.document(output, "sdiag --json"))

    def _installed(self, timeout: float) -> tuple[int, int]:
        """Major and minor version of the commands, asked once; the controller is not."""
        if self._version is None:
            output = self._run("version", timeout, "squeue", "--version")
            match = re.search(rb"(\d+)\.(\d+)", output)
            self._version = (int(match[1]), int(match[2])) if match else (0, 0)
        return self._version
