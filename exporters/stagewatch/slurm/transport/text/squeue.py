"""The queue, from `squeue -O` with separators of our own.

`--array` gives each pending task of an array its own record.  Without it squeue folds tasks with
different reasons into one, at a cost that grows with the square of the queue.

No field that users may write freely (names, comments, paths) is asked for, so that no job can
break or forge a record.  https://slurm.schedmd.com/squeue.html
"""

from __future__ import annotations

import sys
from functools import lru_cache

from stagewatch.core.errors import SourceError
from stagewatch.slurm.gres import gpus_of_request, gpus_of_tres
from stagewatch.slurm.model import GpuCounts, Job, Records
from stagewatch.slurm.states import job_state, pending_reason
from stagewatch.slurm.transport.text.parts import FIELD, RECORD, known, number, records, seconds

_FIELDS = (
    "JobID",
    "ArrayJobID",
    "State",
    "Reason",
    "Partition",
    "UserName",
    "Account",
    "NumNodes",
    "NumTasks",
    "NodeList",
    "tres-alloc",
    "tres-per-node",
    "tres-per-job",
    "tres-per-task",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "RestartCnt",
    "exit_code",
)
ARGUMENTS = (
    "--noheader",
    "--all",
    "--states=all",
    "--array",
    "--sort=i",
    "--Format=" + ",".join(f"{name}:{FIELD}" for name in _FIELDS[:-1]) + f",{_FIELDS[-1]}:{RECORD}",
)


def parse(output: bytes) -> Records[Job]:
    """The jobs in squeue's output.  Raises `SourceError` where it is no list of jobs."""
    jobs: list[Job] = []
    malformed = 0
    for values, times in records(output, len(_FIELDS)):
        try:
            if values is None:
                raise ValueError("a record of another shape")
            jobs.append(_job(values, times))
        except ValueError:
            malformed += times
    if malformed and not jobs:
        raise SourceError(f"squeue printed something that is not a list: {bytes(output[:80])!r}")
    return Records(tuple(jobs), malformed)


def _job(values: list[str], tasks: int) -> Job:
    job_id, array_id, state, reason, partition, user, account, nodes, processes = values[:9]
    node_list, tres, per_node, per_job, per_task = values[9:14]
    submit, eligible, start, end, restarts, status = values[14:]
    exit_code, signal = _exit(status)
    number_of_nodes = _least(nodes)
    state = job_state(state)
    return Job(
        job_id=int(job_id),
        array_job_id=int(array_id) if array_id.isdecimal() and array_id != job_id else None,
        tasks=tasks,
        state=sys.intern(state),
        reason=pending_reason(reason) if state == "PENDING" else "",
        partitions=_names(partition),
        user=sys.intern(user),
        account=sys.intern(known(account)),
        nodes=number_of_nodes,
        node_list=node_list,
        gpus=_gpus(tres, per_node, per_job, per_task, number_of_nodes, _least(processes)),
        submit=seconds(submit),
        eligible=seconds(eligible),
        start=seconds(start),
        end=seconds(end),
        restarts=number(restarts),
        exit_code=exit_code,
        signal=signal,
    )


def _gpus(
    tres: str, per_node: str, per_job: str, per_task: str, nodes: int, tasks: int
) -> GpuCounts:
    found = gpus_of_tres(tres)
    if found is not None:
        return found
    if "gpu" not in per_node + per_job + per_task:
        return ()
    return gpus_of_request(known(per_node), known(per_job), known(per_task), nodes, tasks)


def _least(text: str) -> int:
    """`4`, or the least of `4-8`."""
    return number(text.partition("-")[0])


@lru_cache(maxsize=4096)
def _names(partition: str) -> tuple[str, ...]:
    return tuple(name.rstrip("*") for name in partition.split(",") if name)


@lru_cache(maxsize=1024)
def _exit(status: str) -> tuple[int, int]:
    """Exit code and signal of a raw wait status (22.05), or of `code:signal`."""
    code, colon, signal = status.partition(":")
    if colon:
        return number(code), number(signal)
    raw = number(code)
    return (raw >> 8) & 0xFF, raw & 0x7F
