"""PyTorch's debug server: a rank that runs one shows its flight recorder.

`torch.distributed.debug.start_debug_server`, from PyTorch 2.10 on, has each rank listen on a port
that it chooses, on all addresses; `WorkerServer.cpp` of PyTorch has what may be asked for.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from stagewatch.incidents.talk import http, listeners

DEADLINE_SECONDS = 1.0
"""Time for one question."""
MAX_SOCKETS = 4
"""The most sockets of a process that are tried."""
HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")
"""The flight recorders of NCCL and of other backends, such as gloo.  A PyTorch built for GPUs has
both; that of NCCL is empty in a job without NCCL."""


def find(target: Mapping[str, Any]) -> str:
    """The address of a process's debug server; empty if it runs none.

    It asks every socket of the process that listens on all IPv6 addresses, except for the store in
    which ranks meet.
    """
    mine = set(target["sockets"]) if target["reachable"] else set()
    meeting = target["environ"].get("MASTER_PORT")
    ports = [
        port
        for address, port, inode in listeners(target["uid"])
        if inode in mine and address == "::1" and str(port) != meeting
    ]
    for port in ports[:MAX_SOCKETS] if mine else ():
        with contextlib.suppress(OSError, ValueError, RecursionError):
            known = json.loads(_ask(port, "GET", ""))
            if found := [one for one in HANDLERS if one in known]:
                return f"{port}/{' '.join(found)}"
    return ""


def load(where: str) -> Any:
    """The content of the first flight recorder with an entry.

    Raises `OSError`, and any exception for damaged content."""
    port, _, handlers = where.partition("/")
    dump: Any = {}
    for handler in handlers.split():
        dump = json.loads(_ask(int(port), "POST", handler))
        if dump.get("entries"):
            break
    return dump


def _ask(port: int, method: str, handler: str) -> bytes:
    return http(("::1", port), f"{method} /handler/{handler}", DEADLINE_SECONDS)
