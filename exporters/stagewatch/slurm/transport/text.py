"""Asks Slurm's commands for text: squeue for jobs, scontrol for nodes and the rest.

squeue prints records with our own separators. The agent asks for no field that users write freely
(names, comments, paths), so no job can break or forge a record. `--array` gives every pending task
of an array its own record: without it squeue merges tasks with different reasons, at a cost that
grows with the square of the queue.  https://slurm.schedmd.com/squeue.html

scontrol prints one line of `Name=value` pairs per record, with line breaks in free text turned into
spaces. Free text comes after all structural fields, and is cut off before these are parsed
(`slurm_sprint_node_table` in src/api/node_info.c of 20.11 to 26.05).
https://slurm.schedmd.com/scontrol.html
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from stagewatch.core.commands import CommandRunner, NoAnswer
from stagewatch.core.errors import NoData, SourceError
from stagewatch.slurm import model, notation
from stagewatch.slurm.model import Records, joined, moment, names, number, required
from stagewatch.slurm.model import text as value
from stagewatch.slurm.transport import accounting, diagnostics

_FORMATTING = frozenset({
    "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN", "SLURM_CLUSTERS", "SLURM_JSON", "SLURM_YAML",
})  # fmt: skip
_COMMAND_PREFIXES = ("SQUEUE_", "SINFO_", "SACCT_", "SACCTMGR_", "SCONTROL_", "SDIAG_")


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without variables that change the output format.

    Times come as Unix seconds and array task lists in full.
    """
    kept = {
        name: value
        for name, value in base.items()
        if name not in _FORMATTING and not name.startswith(_COMMAND_PREFIXES)
    }
    fixed = {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    return {**kept, **fixed}


_STEPS = ("--allsteps", "--noheader", "--parsable2", "--format=JobID")
_NO_STEPS = ("No steps running", "couldn't get steps", "has expired", "Invalid job id")
"""What sstat says of a job without steps."""


def slurm_runner() -> CommandRunner:
    """A runner of Slurm's commands."""
    return CommandRunner(environment(os.environ))


class SlurmCli:
    """Asks Slurm's commands.

    Every method asks once, takes a timeout in seconds, and raises `SourceError`.  `prefix` is the
    directory of the commands, if they are not on PATH.
    """

    def __init__(
        self, *, prefix: Path | None = None, runner: Callable[[], CommandRunner] = slurm_runner
    ) -> None:
        self._prefix = prefix
        self._make_runner = runner
        self._runners: dict[str, CommandRunner] = {}
        self._jobs: dict[bytes, model.Job] = {}

    def jobs(self, timeout: float) -> Records[model.Job]:
        """The queue, with jobs that ended within the controller's MinJobAge: 2 requests to the
        controller (squeue loads the partitions too)."""
        jobs, self._jobs = parse_queue(self._run("jobs", timeout, "squeue", *JOBS), self._jobs)
        return jobs

    def nodes(self, timeout: float) -> Records[model.Node]:
        """The nodes: 2 requests to the controller (scontrol loads the partitions too)."""
        return parse_nodes(self._run("nodes", timeout, "scontrol", *NODES))

    def diagnostics(self, timeout: float) -> model.Diagnostics:
        """The controller's statistics: 1 request."""
        return diagnostics.parse_text(self._run("diagnostics", timeout, "sdiag"))

    def ping(self, timeout: float) -> tuple[model.Controller, ...]:
        """Which controllers answer: 1 request to each."""
        return parse_ping(self._run("ping", timeout, "scontrol", "ping", accept_status=True))

    def ended_jobs(self, timeout: float, ago: float) -> Records[model.EndedJob]:
        """Runs that ended in the last `ago` seconds: one query to slurmdbd; `NoData` without it."""
        arguments = accounting.job_arguments(ago)
        return accounting.parse_jobs(self._account("ended_jobs", timeout, "sacct", *arguments))

    def node_events(self, timeout: float, ago: float) -> Records[model.NodeEvent]:
        """Events of nodes in the last `ago` seconds: one query to slurmdbd; `NoData` without it."""
        arguments = accounting.event_arguments(ago)
        return accounting.parse_events(
            self._account("node_events", timeout, "sacctmgr", *arguments)
        )

    def steps_answer(self, job_id: int, timeout: float) -> bool:
        """Whether the steps of a job answer in time, each asked once by its slurmd.

        Raises `NoData` if the job has no step.
        """
        try:
            output = self._run("steps", timeout, "sstat", *_STEPS, f"--jobs={job_id}")
        except NoAnswer:
            return False
        except SourceError as error:
            if any(sign in str(error) for sign in _NO_STEPS):
                raise NoData(f"job {job_id} has no steps") from error
            raise
        return bool(output.strip())  # sstat prints nothing and has status 0 where a step is silent

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


FIELD = accounting.FIELD
RECORD = "\x1e"
_COLUMNS = (
    *("JobID", "ArrayJobID", "State", "Reason", "Partition", "UserName", "Account"),
    *("NumNodes", "NumTasks", "Sockets", "NodeList", "tres-alloc", "tres-per-node"),
    *("tres-per-job", "tres-per-socket", "tres-per-task", "SubmitTime", "EligibleTime"),
    *("StartTime", "EndTime", "PreemptTime", "RestartCnt"),
)
"""squeue's fields."""
JOBS = (
    "--noheader",
    "--all",
    "--states=all",
    "--array",
    "--sort=i",
    f"--Format={f':{FIELD},'.join(_COLUMNS)}:{FIELD},ArrayTaskID:{RECORD}",
)


def parse_jobs(output: bytes) -> Records[model.Job]:
    """The jobs in squeue's output. Raises `SourceError` if it is not a list of jobs."""
    return parse_queue(output, {})[0]


def parse_queue(
    output: bytes, known: dict[bytes, model.Job]
) -> tuple[Records[model.Job], dict[bytes, model.Job]]:
    """The jobs in squeue's output, and the same jobs by a digest of their text.

    Jobs in `known`, from the previous output, are not parsed again: most jobs of a large queue
    wait, and squeue prints the same text. This consumes `known`. Equal neighbours, such as the
    pending tasks of an array, become one job.
    """
    jobs: dict[bytes, model.Job] = {}

    def read(record: tuple[bytes, int]) -> model.Job:
        raw, tasks = record
        digest = blake2b(raw, digest_size=16).digest()  # the text would take half as much again
        job = known.pop(digest, None)
        if job is None or job.tasks != tasks:
            values = raw.decode(errors="replace").split(FIELD)
            job = _job(dict(zip(_COLUMNS, values, strict=True)), tasks)
        jobs[digest] = job
        return job

    found = model.read_all(records(output), read)
    if found.malformed and not found.items:
        raise SourceError(f"squeue printed something that is not a list: {bytes(output[:80])!r}")
    return found, jobs


def _job(record: Mapping[str, str], tasks: int) -> model.Job:
    state = notation.job_state(record["State"])
    job_id = required(number(record["JobID"]))
    array = number(record["ArrayJobID"]) or None
    return model.Job(
        job_id=job_id,
        array_job_id=array if array != job_id else None,
        tasks=tasks,
        state=sys.intern(state),
        reason=notation.pending_reason(value(record["Reason"])) if state == "PENDING" else "",
        partitions=names(record["Partition"]),
        user=sys.intern(value(record["UserName"])),
        account=sys.intern(value(record["Account"])),
        node_list=value(record["NodeList"]),
        gpus=_job_gpus(record),
        submit=moment(record["SubmitTime"]),
        eligible=moment(record["EligibleTime"]),
        start=moment(record["StartTime"]),
        end=moment(record["EndTime"]),
        restarts=number(record["RestartCnt"]) or 0,
        gpus_per_node=notation.gpus_of_request(value(record["tres-per-node"]), "", "", "", 1, 1, 1),
        preempted=moment(record["PreemptTime"]),
    )


def _job_gpus(record: Mapping[str, str]) -> notation.GpuCounts:
    """The GPUs that the job has by its TRES, else those that it asks for."""
    gpus = notation.gpus_of_tres(value(record["tres-alloc"]))
    if gpus is not None:
        return gpus
    node, job, socket, task = (
        value(record[f"tres-per-{unit}"]) for unit in ("node", "job", "socket", "task")
    )
    nodes, sockets, tasks = (
        number(record[count]) or 1 for count in ("NumNodes", "Sockets", "NumTasks")
    )
    return notation.gpus_of_request(node, job, socket, task, nodes, sockets, tasks)


def records(output: bytes) -> Iterator[tuple[bytes, int]]:
    """Split the output at the separators without a second copy of it.

    Neighbours that differ only in the last field, their number in an array, come once.
    """
    separator, field = RECORD.encode(), FIELD.encode()
    last, start = b"", 0
    numbers: list[bytes] = []
    while start < len(output):
        end = output.find(separator, start)
        end = len(output) if end < 0 else end
        chunk, _, number = output[start:end].lstrip(b"\n").rpartition(field)
        chunk = chunk or number  # of something else than a record
        start = end + 1
        if chunk != last:
            if last.strip():
                yield last, _tasks(numbers)
            last, numbers = chunk, []
        numbers.append(number)
    if last.strip():
        yield last, _tasks(numbers)


def _tasks(numbers: list[bytes]) -> int:
    """How many tasks an array has, given the task numbers that squeue printed.

    If more than 5 tasks span more than 10 in equal steps, squeue omits the last one, in every
    release from 20.11 to 26.05: it receives them as `0-40:4` (`xlate_array_task_str` in
    src/common/slurm_protocol_defs.c), and `bitfmt2int` (bitstring.c) turns that into 0 to 36. So 5
    tasks in steps of 3 or more, and 6 in steps of 2, may be one more; these count as printed.
    """
    printed = len(numbers)
    if printed < 6 or not all(map(bytes.isdigit, numbers)):
        return printed
    first, second, *_ = whole = list(map(int, numbers))
    step = second - first
    in_steps = step > 1 and whole == list(range(first, first + step * printed, step))
    return printed + (in_steps and step * printed > 12)


NODES = ("--oneliner", "--details", "--all", "show", "nodes")

_PAIR = re.compile(r"(\w+)=(\S*)")
_FREE_TEXT = re.compile(
    r" (Reason|Comment|Extra|InstanceId|InstanceType|ReservationName|TLSCert\w+|Topology"
    r"|Parameters)="
)
"""The fields after a record's structure, in this order; every release has added some."""
_TIME = r"\d{9,10}|[A-Za-z]\w*|[\d-]+T[\d:]+"
_SIGNED = re.compile(rf" ?\[([^\s\[\]@]+)@({_TIME})\](?=\s*$|\s{{8}}|{_FREE_TEXT.pattern})")
"""Slurm signs the first line of a reason; every further line comes after 8 spaces."""
_CONTROLLER = re.compile(r"Slurmctld\((\w+)\) at (\S+) is (\w+)")
T = TypeVar("T")


def parse_nodes(output: bytes) -> Records[model.Node]:
    """The nodes of `scontrol -o -d show nodes`."""
    return _lines(output, "NodeName=", _node, "nodes")


def parse_ping(output: bytes) -> tuple[model.Controller, ...]:
    """Which controllers answer; Slurm says only UP or DOWN."""
    controllers = tuple(
        model.Controller(host=match[2], role=match[1], up=match[3] == "UP")
        for match in _CONTROLLER.finditer(output.decode(errors="replace"))
    )
    if not controllers:
        raise SourceError(f"scontrol ping printed something unknown: {output[:80]!r}")
    return controllers


def _lines(output: bytes, start: str, read: Callable[[str], T], what: str) -> Records[T]:
    """Read the records that begin with `start`."""
    found = model.read_all(joined(output, lambda line: line.startswith(start)), read)
    if not found.items:
        if not output.strip():
            raise NoData(f"there are no {what}")
        shape = "of an unknown shape" if found.malformed else "not at all"
        raise SourceError(f"scontrol printed {what} {shape}: {output[:80]!r}")
    return found


def _pairs(line: str) -> dict[str, str]:
    """Names and values of `A=1 B=two C=3`; values end at a space."""
    return dict(_PAIR.findall(line))


def _node(line: str) -> model.Node:
    free = _FREE_TEXT.search(line)
    pairs = _pairs(line[: free.start()] if free else line)
    text = line[free.end() :] if free and free[1] == "Reason" else ""
    signature = _SIGNED.search(text)
    if signature:
        text = f"{text[: signature.start()]} {_FREE_TEXT.split(text[signature.end() :])[0]}"
    else:
        text = _FREE_TEXT.split(text)[0]
    state, flags = notation.node_state(pairs["State"])
    name = pairs["NodeName"]
    return model.Node(
        name=sys.intern(name),
        state=sys.intern(state),
        flags=flags,
        partitions=names(pairs.get("Partitions", "")),
        gpus=notation.node_gpus(value(pairs.get("Gres", "")), value(pairs.get("GresUsed", ""))),
        address=value(pairs.get("NodeAddr", "")) or name,
        reason=value(" ".join(text.split())),
        reason_user=value(signature[1]) if signature else "",
        reason_time=moment(signature[2]) if signature else None,
    )
