"""What PyTorch and NCCL tell, from stand-ins that speak as their documents have it.

RAS: docs/userguide/source/troubleshooting/ras.rst of NCCL 2.29 (commands, replies, JSON, text).
Flight recorder: https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html;
`flight_recorder_gloo.pickle` is a dump that PyTorch 2.13 has made of two ranks over gloo.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.processes import Children
from stagewatch.host.guarded import GuardedFiles
from stagewatch.incidents.flight_recorder import calls, load, positions, trigger
from stagewatch.incidents.libraries import Libraries
from stagewatch.incidents.nccl_ras import MAX_READ_BY_ALL
from stagewatch.ranks.model import Rank
from stagewatch.ranks.nccl.layout import Communicator
from tests.records import SECOND_USER
from tests.waiting import wait_for

REAL = Path(__file__).parents[1] / "fixtures/flight_recorder_gloo.pickle"
FR = "PyTorch flight recorder: "


@pytest.fixture
def libraries(request: pytest.FixtureRequest) -> Iterator[Libraries]:
    """Patient, but for a test that gives a deadline for RAS."""
    files = GuardedFiles(timeout=60.0)
    asks = Libraries(files, timeout=120.0, ras_timeout=getattr(request, "param", 60.0))
    yield asks
    asks.close()
    files.close()


@pytest.fixture
def rank(children: Children) -> Callable[..., Rank]:
    """Starts a process with these variables, which is a rank."""

    def start(number: int, **environ: str) -> Rank:
        process = children.start(
            [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"],
            environ=os.environ | environ,
        )
        return Rank("540", "train", number, process.pid, uid=os.getuid())

    return start


# RAS


def member(rank: int, pid: int, all_reduce: int) -> dict[str, Any]:
    return {
        "rank": rank,
        "host": "172.16.64.245",
        "pid": pid,
        "cuda_dev": rank,
        "nvml_dev": rank,
        "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": False,
        },
        "collective_counts": {"Broadcast": 4, "AllReduce": all_reduce},
    }


def missing(rank: int, *, unresponsive: bool, dead: bool) -> dict[str, Any]:
    status = {"unresponsive": unresponsive, "considered_dead": dead}
    return {"rank": rank, "host": "172.16.64.245", "pid": 1, "status": status}


def communicator(ranks: list[dict[str, Any]], lost: Sequence[dict[str, Any]] = ()) -> str:
    one = {
        "hash": "0xae94423cfbb2ef4a",
        "size": len(ranks) + len(lost),
        "ranks": ranks,
        "missing_ranks": list(lost),
    }
    return json.dumps({"nccl_version": "2.29.1", "communicators": [one]}, indent=2)


class Ras:
    """A RAS thread: replies line by line, and closes behind a status."""

    def __init__(self, status: str | None) -> None:
        self.status = status
        self.commands: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._server.accept()
                with link, link.makefile() as lines, contextlib.suppress(OSError):
                    self._talk(lines, link)

    def _talk(self, lines: Iterable[str], link: socket.socket) -> None:
        for line in lines:
            command = line.strip().upper()
            self.commands.append(command)
            if command.endswith("STATUS"):
                if self.status is None:
                    continue
                link.sendall(self.status.encode())
                return
            link.sendall(self._reply(command).encode())

    def _reply(self, command: str) -> str:
        if command.startswith("CLIENT PROTOCOL"):
            return "SERVER PROTOCOL 2\n"
        return "OK\n"

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def ras() -> Iterator[Callable[..., Ras]]:
    made: list[Ras] = []

    def start(status: str | None) -> Ras:
        made.append(Ras(status))
        return made[-1]

    yield start
    for one in made:
        one.close()


def asked(libraries: Libraries, ras: Ras, rank: Rank) -> Sequence[str]:
    del ras
    return libraries.read(libraries.ask([rank])).lines


def test_ras_tells_which_ranks_are_behind_or_missing(
    libraries: Libraries, ras: Callable[..., Ras], rank: Callable[..., Rank]
) -> None:
    server = ras(None)
    one = rank(0, NCCL_RAS_ADDR=f"localhost:{server.port}")
    server.status = communicator(
        [member(0, one.pid, 812), member(1, 7, 812), member(3, 8, 811)],
        [missing(2, unresponsive=True, dead=False), missing(4, unresponsive=True, dead=True)],
    )
    where = "NCCL RAS: communicator 0xae94423cfbb2ef4a: "
    assert asked(libraries, server, one) == [
        where + "rank 3 has not started AllReduce 812",
        where + "rank 2 has not answered",
        where + "rank 4 has died",
    ]
    assert server.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT JSON", "STATUS"]


def test_communicators_of_another_job_of_the_user_are_left_out(
    libraries: Libraries, ras: Callable[..., Ras], rank: Callable[..., Rank]
) -> None:
    server = ras(communicator([member(0, 1, 812), member(1, 2, 811)]))
    one = rank(0, NCCL_RAS_ADDR=f"localhost:{server.port}")
    assert asked(libraries, server, one) == []
    assert "STATUS" in server.commands


@pytest.mark.parametrize("libraries", [0.5], indirect=True)
def test_silence_has_a_deadline(
    libraries: Libraries, ras: Callable[..., Ras], rank: Callable[..., Rank]
) -> None:
    server = ras(None)
    one = rank(0, NCCL_RAS_ADDR=f"localhost:{server.port}")
    where = f"NCCL RAS at 127.0.0.1:{server.port}"
    assert asked(libraries, server, one) == [f"{where}: no answer within 0.5 s"]


def test_a_hostile_answer_costs_a_line_at_most(
    libraries: Libraries, ras: Callable[..., Ras], rank: Callable[..., Rank]
) -> None:
    server = ras("")
    one = rank(0, NCCL_RAS_ADDR=f"localhost:{server.port}")
    for status in (
        "[" * 100_000,
        '{"communicators": 1}',
        '{"communicators": [{"ranks": [{"pid": []}], "missing_ranks": [], "hash": 1}]}',
        "x\n" * 100_000,
    ):
        server.status = status
        lines = asked(libraries, server, one)
        assert len(lines) <= 1
        assert all(line.isprintable() for line in lines)


def test_without_a_listener_of_the_user_nobody_is_asked(
    libraries: Libraries, ras: Callable[..., Ras], rank: Callable[..., Rank]
) -> None:
    server = ras("")
    one = rank(0, NCCL_RAS_ADDR=f"localhost:{server.port}")
    other = Rank("540", "train", 0, one.pid, uid=SECOND_USER)
    off = rank(1, NCCL_RAS_ADDR=f"localhost:{server.port}", NCCL_RAS_ENABLE="0")
    assert not libraries.ask([other, off]).lines
    assert server.commands == []


def test_of_a_large_job_only_the_node_of_rank_0_asks(
    libraries: Libraries, ras: Callable[..., Ras], rank: Callable[..., Rank]
) -> None:
    """RAS asks all processes of a job for each question."""
    server = ras("")
    large = {"NCCL_RAS_ADDR": f"localhost:{server.port}", "WORLD_SIZE": str(MAX_READ_BY_ALL + 1)}
    first, other = rank(0, **large), rank(9, **large)
    libraries.ask([other])
    assert server.commands == []
    libraries.ask([first, other])
    assert "STATUS" in server.commands


# The flight recorder


def entry(sequence: int, state: str, *, name: str = "nccl:all_reduce") -> dict[str, Any]:
    return {
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": sequence,
        "profiling_name": name,
        "state": state,
        "is_p2p": False,
    }


def dump(*entries: dict[str, Any], members: int = 2) -> dict[str, Any]:
    ranks = json.dumps(list(range(members)))
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "entries": list(entries),
    }


class Recorder:
    """PyTorch's heartbeat monitor: a pipe, and a dump for whatever is written to it."""

    def __init__(self, prefix: Path, rank: int, content: bytes) -> None:
        self.pipe = Path(f"{prefix}{rank}.pipe")
        os.mkfifo(self.pipe)
        self._keep = os.open(self.pipe, os.O_RDWR)
        self._dump = Path(f"{prefix}{rank}")
        self._content = content
        self.written = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        if os.read(self._keep, 128):
            self._dump.write_bytes(self._content)
            self.written.set()


def variables(prefix: Path) -> dict[str, str]:
    return {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(prefix),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(prefix),
        "NCCL_RAS_ENABLE": "0",
    }


def told(
    libraries: Libraries, rank: Callable[..., Rank], prefix: Path, *contents: bytes
) -> list[str]:
    """What ranks whose recorders write these dumps tell."""
    recorders = [Recorder(prefix, number, content) for number, content in enumerate(contents)]
    ranks = [rank(number, **variables(prefix)) for number in range(len(contents))]
    answer = libraries.ask(ranks)
    for recorder in recorders:
        assert recorder.written.wait(30)
    return list(libraries.read(answer).lines)


def test_the_recorder_tells_which_rank_is_behind(
    libraries: Libraries, rank: Callable[..., Rank], tmp_path: Path
) -> None:
    there = dump(entry(811, "completed"), entry(812, "scheduled"), members=4)
    late = dump(entry(811, "completed"), members=4)
    contents = (pickle.dumps(there, 2), pickle.dumps(late, 2), json.dumps(there).encode())
    assert told(libraries, rank, tmp_path / "fr_", *contents) == [
        FR + "process group default_pg (3 of 4 members here): "
        "rank 1 has not enqueued all_reduce 812, ranks 0, 2 have"
    ]


def test_a_rank_without_a_recorder_is_told_only_if_another_has_one(
    libraries: Libraries, rank: Callable[..., Rank], tmp_path: Path
) -> None:
    """`stagewatch run` sets the variable for programs without NCCL as well."""
    ranks = [rank(number, **variables(tmp_path / "fr_")) for number in range(3)]
    assert not libraries.ask(ranks).lines
    Recorder(tmp_path / "fr_", 0, b"")
    assert list(libraries.ask(ranks).lines) == [FR + "ranks 1, 2 have made no pipe"]


def test_a_dump_that_pytorch_has_written_is_read() -> None:
    groups = positions(load(str(REAL), REAL.stat().st_uid))
    assert {(one.name, one.enqueued, one.completed) for one in groups.values()} == {
        ("default_pg", 1, 1),
        ("mine", 1, 1),
    }


class Bomb:
    def __init__(self, touched: Path) -> None:
        self._touched = touched

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._touched}",)


HOSTILE = {
    "no pickle": b"\x80\x02garbage",
    "a cut pickle": pickle.dumps(dump(entry(1, "started")), 2)[:-20],
    "another object": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "memory": b"\x80\x02r\xff\xff\xff\x7f.",
    "many bytes": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.",
    "wrong types": pickle.dumps({"entries": [{"process_group": 1}]}, 2),
    "a deep list": b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b".",
    "deep JSON": b'{"entries":' + b"[" * 1_000_000,
    "too much": b"{" + b" " * (32 << 20),
}


def test_hostile_dumps_cost_a_line_each(
    libraries: Libraries, rank: Callable[..., Rank], tmp_path: Path
) -> None:
    good = pickle.dumps(dump(entry(1, "started")), 2)
    first, *lines = told(libraries, rank, tmp_path / "fr_", good, *HOSTILE.values())
    assert first.endswith("rank 0 has enqueued all_reduce 1 and not completed it")
    assert [line.partition(": its dump ")[0] for line in lines] == [
        f"{FR}rank {number}" for number in range(1, len(HOSTILE) + 1)
    ]


def test_a_bomb_is_never_called(
    libraries: Libraries, rank: Callable[..., Rank], tmp_path: Path
) -> None:
    content = pickle.dumps(Bomb(tmp_path / "touched"), 2)
    (line,) = told(libraries, rank, tmp_path / "fr_", content)
    assert line == FR + "rank 0: its dump is damaged (UnpicklingError)"
    assert not (tmp_path / "touched").exists()


def test_only_a_pipe_of_the_user_is_written_to(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("")
    link = tmp_path / "link"
    os.mkfifo(tmp_path / "pipe")
    listens = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    link.symlink_to(tmp_path / "pipe")
    for path, uid in ((mine, os.getuid()), (link, os.getuid()), (tmp_path / "pipe", 4711)):
        with pytest.raises(OSError, match="is not what PyTorch makes"):
            trigger(str(path), uid)
    assert mine.read_text() == ""
    with pytest.raises(OSError, match="is not what PyTorch makes"):
        load(str(tmp_path / "pipe"), os.getuid())
    trigger(str(tmp_path / "pipe"), os.getuid())
    assert os.read(listens, 10) == b"1\n"
    os.close(listens)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_an_agent_of_another_user_asks_where_a_site_lets_it(tmp_path: Path) -> None:
    """An ACL of the directory of the pipes and dumps does so; here it is their mode."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        place = Path(directory)
        place.chmod(0o755)
        Recorder(place / "fr_", 0, pickle.dumps(dump(entry(812, "started")), 2)).pipe.chmod(0o666)
        start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        target = {"pid": os.getpid(), "start": int(start), "rank": 0, "uid": os.getuid()}
        target |= {"reachable": False, "sockets": [], "environ": variables(place / "fr_")}
        code = "import os, sys; from stagewatch.incidents.libraries_child import main"
        code += "; os.setuid(int(sys.argv[1])); main()"
        command = [sys.executable, "-c", code, str(SECOND_USER)]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        ) as child:
            assert child.stdin and child.stdout
            print(json.dumps({"ask": [target], "ras_timeout": 0.1}), file=child.stdin, flush=True)
            asked = json.loads(child.stdout.readline())
            assert asked["lines"] == []
            wait_for((place / "fr_0").exists, "the dump")
            print(json.dumps({"read": asked["dumps"]}), file=child.stdin, flush=True)
            (line,) = json.loads(child.stdout.readline())["lines"]
    assert line.endswith("rank 0 has enqueued all_reduce 812 and not completed it")


def test_how_far_each_rank_has_come_is_told_for_the_judge(
    libraries: Libraries, ras: Callable[..., Ras], rank: Callable[..., Rank], tmp_path: Path
) -> None:
    server = ras(None)
    prefix = tmp_path / "fr_"
    recorder = Recorder(prefix, 0, pickle.dumps(dump(entry(812, "started")), 2))
    one = rank(0, **variables(prefix) | {"NCCL_RAS_ENABLE": "1"}, NCCL_RAS_ADDR=f":{server.port}")
    server.status = communicator([member(0, one.pid, 812), member(1, one.pid + 1, 811)])
    asked = libraries.ask([one])
    assert recorder.written.wait(30)
    assert libraries.read(asked).calls == {
        one.pid: (
            Communicator(
                *("0xae94423cfbb2ef4a all_reduce", "0xae94423cfbb2ef4a", 0, 2, "all_reduce"),
                *(812, 0, "launched"),
                witness="ras",
            ),
            Communicator(
                *("world", "world", 0, 2, "all_reduce", 812, 0, "begun"), witness="flight_recorder"
            ),
        )
    }


def test_a_process_number_that_two_nodes_have_is_nobodys(
    libraries: Libraries, ras: Callable[..., Ras], rank: Callable[..., Rank]
) -> None:
    server = ras(None)
    one = rank(0, NCCL_RAS_ADDR=f"localhost:{server.port}")
    server.status = communicator([member(0, one.pid, 812), member(1, one.pid, 811)])
    assert libraries.ask([one]).calls == {}


def test_groups_have_the_names_of_the_client_and_unfinished_ones_come_first() -> None:
    groups = positions(load(str(REAL), REAL.stat().st_uid))
    assert [(one.name, one.op, one.sequence, one.state) for one in calls(groups, 0)] == [
        ("world", "all_reduce", 1, "idle"),
        ("mine:1", "all_reduce", 1, "idle"),
    ]
    many = dump(*(entry(7, "completed") | {"process_group": (str(k), "dp")} for k in range(20)))
    many["entries"][19]["state"] = "scheduled"
    told = calls(positions(many), 0)
    assert (len(told), told[0].name, told[0].state) == (8, "dp:19", "launched")


def test_what_a_rank_waits_in_is_the_earliest_that_is_open_and_not_the_furthest() -> None:
    """A host launches far ahead of its GPU."""
    ahead = dump(entry(811, "completed"), entry(812, "started"), entry(813, "scheduled"))
    (told,) = calls(positions(ahead), 1)
    assert (told.sequence, told.state, told.member, told.members) == (812, "begun", 1, 2)
