"""NCCL's RAS: which ranks of a communicator are behind, missing or do not answer.

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html, from NCCL 2.24;
JSON from 2.28.7 on.  Every process of a job answers for all of it, on a port of the node.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stagewatch.incidents.flight_recorder import have
from stagewatch.incidents.talk import TimedConnection, listeners
from stagewatch.ranks.nccl.layout import IDLE, LAUNCHED, RAS, Communicator

DEADLINE_SECONDS = 2.0
"""Time for the whole connection."""
PORT = 28028
MAX_CALLS = 512
MAX_READ_BY_ALL = 1024
"""In a job of up to so many ranks, the agent of every node asks.  As RAS asks all processes of the
job for every question, only the agent of rank 0 asks in a larger job."""
UNROOTED = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
}
"""Operations that no member completes before all have entered them."""


Call = tuple[int, Communicator]
"""A process, and its communicator in one group."""


def facts(
    targets: Sequence[dict[str, Any]], timeout: float = DEADLINE_SECONDS
) -> tuple[list[str], list[Call]]:
    """The facts of RAS on the communicators of these processes, one a line, and how far these
    processes are.

    The first process whose user listens on the port of its NCCL_RAS_ADDR is asked: only its own
    user's sockets are, whatever the variable names.
    """
    for target in targets if _reads(targets) else ():
        environ = target["environ"]
        if environ.get("NCCL_RAS_ENABLE", "1") != "0" and target["reachable"]:
            wanted = _port(environ)
            for address in ((at, on) for at, on, _ in listeners(target["uid"]) if on == wanted):
                try:
                    answer = _ask(*address, timeout)
                except OSError as error:
                    where = f"NCCL RAS at {address[0]}:{address[1]}"
                    return [f"{where}: {error.strerror or error}"], []
                try:
                    pids = {pid: one["pid"] for one in targets for pid in _pids(one["pid"])}
                    return _facts(answer, pids)
                except Exception as error:  # it may answer whatever it likes
                    return [f"NCCL RAS gave a damaged answer ({type(error).__name__})"], []
    return [], []


def _reads(targets: Sequence[dict[str, Any]]) -> bool:
    """Whether this node asks RAS."""
    sizes = [_whole(target["environ"].get("WORLD_SIZE", "")) for target in targets]
    here = any(target["rank"] == 0 for target in targets)
    return here or max(sizes, default=0) <= MAX_READ_BY_ALL


def _ask(host: str, port: int, timeout: float) -> str:
    with contextlib.closing(TimedConnection((host, port), timeout)) as connection:
        connection.send(b"CLIENT PROTOCOL 2\nTIMEOUT 1\nSET FORMAT json\n")
        while connection.received.count(b"\n") < 3 and connection.receive():
            pass
        *_, formatted = connection.received.split(b"\n")[:3]
        if formatted != b"OK":
            raise OSError(0, "it speaks no JSON, as NCCL does from 2.28.7 on")
        connection.received.clear()
        connection.send(b"STATUS\n")
        while connection.receive():
            pass
        return connection.received.decode("utf-8", "replace")


def _facts(answer: str, pids: Mapping[int, int]) -> tuple[list[str], list[Call]]:
    """The facts and calls in an answer; `pids`: the processes by their number in each PID
    namespace."""
    lines: list[str] = []
    calls: list[Call] = []
    for communicator in json.loads(answer)["communicators"]:
        everyone = [*communicator["ranks"], *communicator["missing_ranks"]]
        if any(one["pid"] in pids for one in everyone):
            where = f"NCCL RAS: communicator {str(communicator['hash'])[:20]}"
            lines += [f"{where}: {fact}" for fact in _of_communicator(communicator)]
            calls += _calls(communicator, pids)
    return lines, calls[:MAX_CALLS]


def _calls(communicator: dict[str, Any], pids: Mapping[int, int]) -> Iterator[Call]:
    """The open operations of these processes in a communicator, without those with a root.

    A process that has launched more than another waits in the next operation that the other will
    launch.  A number that processes of several nodes share identifies none of them."""
    ranks = communicator["ranks"]
    numbers = Counter(int(one["pid"]) for one in ranks)
    name = str(communicator["hash"])[:20]
    members = len(ranks) + len(communicator["missing_ranks"])
    for operation, op in UNROOTED.items():
        counts = {
            int(one["rank"]): int(one["collective_counts"].get(operation, 0)) for one in ranks
        }
        least = min(counts.values())
        for one in ranks if least < max(counts.values()) else ():
            pid, rank = int(one["pid"]), int(one["rank"])
            number, state = (least + 1, LAUNCHED) if counts[rank] > least else (least, IDLE)
            what = f"{name} {op}", name, rank, members, op, number, 0, state, (), RAS
            if pid in pids and numbers[pid] == 1:
                yield pids[pid], Communicator(*what)


def _of_communicator(communicator: dict[str, Any]) -> Iterator[str]:
    ranks = communicator["ranks"]
    for operation in ranks[0]["collective_counts"] if ranks else ():
        counts = {int(one["rank"]): int(one["collective_counts"][operation]) for one in ranks}
        most = max(counts.values())
        if behind := [rank for rank, count in counts.items() if count < most]:
            yield f"{have(behind)} not started {str(operation)[:40]} {most}"
    for name, fine, told in (
        ("init_state", (0,), "not finished its initialisation"),
        ("async_error", (0, 7), "an asynchronous error"),
        ("abort_flag", (False,), "been aborted"),
    ):
        if those := [int(one["rank"]) for one in ranks if one["status"][name] not in fine]:
            yield f"{have(those)} {told}"
    states: dict[str, list[int]] = {}
    for one in communicator["missing_ranks"]:
        status = one["status"]
        dead, silent = status["considered_dead"], status["unresponsive"]
        told = "died" if dead else "not answered" if silent else "not joined it, or left it"
        states.setdefault(told, []).append(int(one["rank"]))
    for told, those in states.items():
        yield f"{have(those)} {told}"


def _port(environ: dict[str, str]) -> int:
    return _whole(environ.get("NCCL_RAS_ADDR", "").rpartition(":")[2]) or PORT


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _pids(pid: int) -> Iterator[int]:
    """The number of a process in each PID namespace that it is in."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                yield from map(int, line.split()[1:])
