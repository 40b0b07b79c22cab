"""PyTorch's debug server, a flight recorder that answers at once: a stand-in, and the real one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from stagewatch.host.guarded import GuardedFiles
from stagewatch.incidents import debug_server
from stagewatch.incidents.libraries import Answers, Libraries
from stagewatch.ranks.model import Rank
from tests.client.hooking import needs
from tests.incidents.test_libraries import dump, entry
from tests.waiting import wait_for

SERVER = """
import http.server, json, socket, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        asked.write(self.command + " " + self.path + "\\n")
        handler = self.path.removeprefix("/handler/")
        content = {"": HANDLERS, json.loads(HANDLERS)[-1]: DUMP}.get(handler, "{}")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content.encode())
    do_GET = do_POST = answer

class Server(http.server.HTTPServer):
    address_family = socket.AF_INET6

HANDLERS, DUMP = sys.argv[1], open("dump").read()
server = Server(("::", 0), Handler)
asked = open("asked", "w", buffering=1)
server.serve_forever()
"""
GLOO = """
import os, time
import torch
import torch.distributed as distributed
from torch.distributed.debug import start_debug_server

distributed.init_process_group("gloo")
try:
    start_debug_server(port=int(os.environ["FRONTEND"]))
except ImportError as error:  # what rank 0 shows people needs more packages
    print(error)
for _ in range(3):
    distributed.all_reduce(torch.ones(5))
open(os.environ["THERE"] + os.environ["RANK"], "x").close()
if distributed.get_rank() == 1:
    time.sleep(600)
distributed.all_reduce(torch.ones(5))
"""


@pytest.fixture
def libraries() -> Iterator[Libraries]:
    files = GuardedFiles(timeout=60.0)
    asks = Libraries(files, timeout=120.0)
    yield asks
    asks.close()
    files.close()


@pytest.fixture
def serving(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Rank]:
    """Starts a rank whose debug server has this flight recorder."""

    def start(content: str, handlers: str = '["ping", "dump_nccl_trace_json"]') -> Rank:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "dump").write_text(content)
        command = [sys.executable, "-c", SERVER, handlers]
        process = children.start(command, environ=os.environ | {"NCCL_RAS_ENABLE": "0"})
        wait_for(lambda: (tmp_path / "asked").exists(), "the server listens")
        return rank_of(process, 0)

    return start


def rank_of(process: Popen[bytes], number: int) -> Rank:
    return Rank("540", "train", number, process.pid, uid=os.getuid())


def told(libraries: Libraries, *ranks: Rank) -> Answers:
    return libraries.read(libraries.ask(ranks))


def test_the_flight_recorder_of_a_rank_with_a_debug_server_is_asked_for(
    libraries: Libraries, serving: Callable[..., Rank], tmp_path: Path
) -> None:
    rank = serving(json.dumps(dump(entry(811, "completed"), entry(812, "started"))))
    found = told(libraries, rank)
    (one,) = found.calls[rank.pid]
    assert (one.name, one.op, one.sequence, one.state) == ("world", "all_reduce", 812, "begun")
    assert found.lines[0].endswith("rank 0 has enqueued all_reduce 812 and not completed it")
    asked = (tmp_path / "asked").read_text()
    assert asked == "GET /handler/\nPOST /handler/dump_nccl_trace_json\n"


def test_the_other_flight_recorder_is_asked_where_a_job_does_not_use_nccl(
    libraries: Libraries, serving: Callable[..., Rank]
) -> None:
    """As a build of PyTorch for GPUs has both."""
    rank = serving(json.dumps(dump(entry(812, "started"))), json.dumps(debug_server.HANDLERS))
    (one,) = told(libraries, rank).calls[rank.pid]
    assert (one.op, one.sequence) == ("all_reduce", 812)


def test_who_has_called_no_collective_yet_has_no_damaged_flight_recorder(
    libraries: Libraries, serving: Callable[..., Rank]
) -> None:
    found = told(libraries, serving('{"version": "2.10"}'))
    assert not found.calls and not found.lines


def test_a_server_of_something_else_is_asked_for_nothing(
    libraries: Libraries, serving: Callable[..., Rank], tmp_path: Path
) -> None:
    found = told(libraries, serving("{}", "<html>"))
    assert not found.calls and not found.lines
    assert (tmp_path / "asked").read_text() == "GET /handler/\n"


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"entries": 1}', "x" * (17 << 20)], ids=range(3)
)
def test_a_hostile_flight_recorder_costs_a_line(
    content: str, libraries: Libraries, serving: Callable[..., Rank]
) -> None:
    found = told(libraries, serving(content))
    assert len(found.lines) == 1
    assert not found.calls


def test_who_has_not_enqueued_what_the_others_have_is_told_by_the_real_one(
    libraries: Libraries, children: Children, tmp_path: Path
) -> None:
    needs("torch")
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    common |= {"TORCH_FR_BUFFER_SIZE": "200", "NCCL_RAS_ENABLE": "0", "OMP_NUM_THREADS": "1"}
    common |= {"FRONTEND": str(free_port()), "THERE": str(tmp_path / "there-")}
    ranks = [
        rank_of(
            children.start(
                [sys.executable, "-c", GLOO], environ=os.environ | common | {"RANK": str(number)}
            ),
            number,
        )
        for number in range(2)
    ]
    there = [tmp_path / f"there-{number}" for number in range(2)]
    wait_for(lambda: all(one.exists() for one in there), "both ranks are there", limit=200)
    found = told(libraries, *ranks)
    assert found.lines == [
        "PyTorch flight recorder: process group default_pg: "
        "rank 1 has not enqueued all_reduce 4, rank 0 has"
    ]
    states = [(one.sequence, one.state, one.members) for r in ranks for one in found.calls[r.pid]]
    assert states == [(4, "launched", 2), (3, "idle", 2)]
