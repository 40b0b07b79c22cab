"""Servers that real processes call, and that end."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks import servers
from stagewatch.ranks.held_sockets import RankSockets
from tests.fakes.open_files import OpenFiles
from tests.ranks.fakes import FakeRanks, families
from tests.ranks.waits.programs import Start, code
from tests.waiting import wait_for

PROC = Path("/proc")
ENGINE = code("""
    server = socket.create_server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    say("port", server.getsockname()[1])
    say("engine")
    accepted = []
    while True:
        accepted.append(server.accept())
""")
CALLS = code("""
    server = socket.create_server(("127.0.0.1", 0))
    engine = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    say("port", server.getsockname()[1])
    say("caller")
    accepted = []
    while True:
        accepted.append(server.accept())
""")
"""A rank, or a router."""
REPEATS = code("""
    engine = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    engine.sendall(b"?")
    say("caller")
    while sys.argv[2] == "again":
        time.sleep(0.1)
        engine.sendall(b"?")
    sleep()
""")
"""A rank that asks again and again, or once."""


@dataclass
class Watch:
    """Remembers the servers of ranks; its clock is the test's."""

    ranks: FakeRanks
    now: float = 1000.0

    def __post_init__(self) -> None:
        files, proc = OpenFiles(PROC), Procfs(PROC)
        found = families(self.ranks)
        self.sockets = RankSockets(found, PROC, files)
        self._servers = servers.Servers(self.sockets, found, proc, files, clock=lambda: self.now)

    def look(self) -> None:
        """Look again, after some time."""
        self.now += servers.LOOK_SECONDS
        self.sockets.look()
        self._servers.look()

    def asked(self, pid: int, silent: float) -> dict[str, frozenset[int]]:
        """Whom a process asks again and again."""
        return dict(self.ask({pid: silent})[pid])

    def ask(
        self, silent: Mapping[int, float], inside: Collection[int] = ()
    ) -> Mapping[int, servers.Repeated]:
        """The same of several processes."""
        return self._servers.asked(silent, inside)

    def gone(self, pid: int, silent: float = 0.0, late: float = 0.0) -> dict[int, tuple[str, ...]]:
        """The servers of a process that have ended."""
        return dict(self._servers.gone(pid, silent, late))


@pytest.fixture
def watch() -> Iterator[Watch]:
    found = Watch(FakeRanks())
    with closing(found.sockets):
        yield found


def test_a_server_that_has_ended_is_named_to_who_called_it(watch: Watch, program: Start) -> None:
    engine = program(ENGINE)
    rank, stranger = program(CALLS, engine["port"]), program(CALLS, engine["port"])
    watch.ranks.add(rank["caller"], 0)
    assert stranger["caller"]
    watch.look()
    assert watch.gone(rank["caller"]) == {}
    engine.script.kill()
    watch.look()
    [name] = watch.gone(rank["caller"], silent=20.0)[rank["caller"]]
    assert name.startswith("python")
    assert name.endswith(f" (pid {engine['engine']}), which has ended")
    assert watch.gone(stranger["caller"], silent=20.0) == {}


def test_the_engine_behind_a_router_is_named(watch: Watch, program: Start) -> None:
    engine = program(ENGINE)
    router = program(CALLS, engine["port"])
    rank = program(CALLS, router["port"])
    watch.ranks.add(rank["caller"], 0)
    watch.look()
    engine.script.kill()
    watch.look()
    found = watch.gone(rank["caller"], silent=20.0)
    assert found.keys() == {router["caller"]}
    assert f"(pid {engine['engine']})" in found[router["caller"]][0]


def test_a_server_that_ended_before_or_after_is_no_cause(watch: Watch, program: Start) -> None:
    engine = program(ENGINE)
    rank = program(CALLS, engine["port"])["caller"]
    watch.ranks.add(rank, 0)
    watch.look()
    engine.script.kill()
    watch.look()
    watch.now += 100.0
    assert watch.gone(rank, silent=100.0, late=90.0)
    assert not watch.gone(rank, silent=100.0 - servers.USED_SECONDS, late=1.0), (
        "it went on without it"
    )
    assert not watch.gone(rank, silent=300.0, late=290.0), "it was overdue before"


def test_a_server_that_has_come_back_is_another(watch: Watch, program: Start) -> None:
    engine = program(ENGINE)
    port = engine["port"]
    watch.ranks.add(program(CALLS, port)["caller"], 0)
    rank = watch.ranks.ranks[0].pid
    watch.look()
    engine.script.kill()
    watch.look()
    assert watch.gone(rank, silent=20.0)
    again = program(ENGINE, port)
    assert again["engine"]
    watch.ranks.add(program(CALLS, port)["caller"], 1)
    watch.look()
    assert not watch.gone(rank, silent=20.0)
    again.script.kill()
    watch.look()
    [name] = watch.gone(watch.ranks.ranks[1].pid, silent=20.0)[watch.ranks.ranks[1].pid]
    assert f"(pid {again['engine']})" in name


def test_who_called_a_server_long_ago_is_forgotten_while_others_call_it(
    watch: Watch, program: Start
) -> None:
    engine = program(ENGINE)
    callers = [program(CALLS, engine["port"]) for _ in range(2)]
    gone, stays = (caller["caller"] for caller in callers)
    for number, pid in enumerate((gone, stays)):
        watch.ranks.add(pid, number)
    watch.look()
    callers[0].script.kill()
    watch.now += servers.KEPT_SECONDS
    watch.look()
    engine.script.kill()
    watch.look()
    silent = servers.KEPT_SECONDS + 100.0
    assert watch.gone(stays, silent)
    assert not watch.gone(gone, silent)


def test_a_rank_that_serves_others_is_no_server(watch: Watch, program: Start) -> None:
    serves = program(ENGINE)
    calls = program(CALLS, serves["port"])
    for number, pid in enumerate((serves["engine"], calls["caller"])):
        watch.ranks.add(pid, number)
    watch.look()
    serves.script.kill()
    watch.look()
    assert watch.gone(calls["caller"], silent=20.0) == {}


def test_what_ranks_ask_while_they_are_in_a_collective_nobody_waits_for(
    watch: Watch, program: Start
) -> None:
    engine = program(ENGINE)
    inside, outside = (program(REPEATS, engine["port"], "again")["caller"] for _ in range(2))
    for number, pid in enumerate((inside, outside)):
        watch.ranks.add(pid, number)
    watch.look()
    silent = dict.fromkeys((inside, outside), 400.0)
    assert all(watch.ask(silent).values())
    assert not any(watch.ask(silent, [inside]).values())


def test_a_server_that_a_rank_asks_again_and_again_is_named_with_all_who_call_it(
    watch: Watch, program: Start
) -> None:
    engine = program(ENGINE)
    ranks = [program(REPEATS, engine["port"], how)["caller"] for how in ("again", "once")]
    for number, pid in enumerate(ranks):
        watch.ranks.add(pid, number)
    watch.look()
    again = ranks[0]
    [(name, callers)] = watch.asked(again, silent=400.0).items()
    assert name.endswith(f"(pid {engine['engine']})")
    assert callers == set(ranks)
    assert not watch.asked(again, silent=servers.AGAIN_SECONDS / 2), (
        "its last step was a moment ago"
    )
    watch.now += servers.USED_SECONDS + 1.0
    assert not watch.asked(again, silent=400.0), "it has asked nothing since"
    watch.look()
    assert watch.asked(again, silent=400.0)
    engine.script.kill()
    watch.look()
    assert not watch.asked(again, silent=400.0), "it has ended"


DROPS = code("""
    server = socket.create_server(("127.0.0.1", 0))
    say("port", server.getsockname()[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    say("engine")
    kept = [server.accept()]
    signal.sigwait({signal.SIGUSR1})
    kept.clear()
    while True:
        server.accept()[0].close()
""")
"""A server that closes each connection without an answer, once it is told to."""
RETRIES = code("""
    address = "127.0.0.1", int(sys.argv[1])
    engine = socket.create_connection(address)
    say("caller")
    engine.recv(1)
    while True:
        engine.close()
        time.sleep(float(sys.argv[2]))
        engine = socket.create_connection(address)
        engine.recv(1)
""")


@pytest.mark.parametrize(("pause", "often"), [(0.2, True), (600.0, False)])
def test_a_server_that_drops_all_connections_is_named_to_who_called_it_before(
    watch: Watch, program: Start, pause: float, *, often: bool
) -> None:
    engine = program(DROPS)
    rank = program(RETRIES, engine["port"], str(pause))["caller"]
    watch.ranks.add(rank, 0)
    watch.look()
    assert not watch.asked(rank, silent=5.0), "it answers"
    os.kill(engine["engine"], signal.SIGUSR1)

    def closed() -> int:
        ends = [
            one for ended in watch.sockets.ended(servers.AGAIN_SECONDS).values() for one in ended
        ]
        return sum(one.local_port == engine["port"] for one in ends)

    wait_for(lambda: closed() >= (2 if often else 1), "connections that the server has closed")
    assert bool(watch.asked(rank, silent=5.0)) == often
    assert not watch.asked(rank, silent=-servers.USED_SECONDS - 10.0), (
        "its last step came after its call"
    )


def test_who_asks_a_server_once_does_not_ask_again_and_again(watch: Watch, program: Start) -> None:
    engine = program(ENGINE)
    rank = program(REPEATS, engine["port"], "once")["caller"]
    watch.ranks.add(rank, 0)
    watch.look()
    assert watch.asked(rank, silent=400.0), "just now"

    def rests() -> bool:
        watch.look()
        return not watch.asked(rank, silent=servers.AGAIN_SECONDS + 1.0)

    wait_for(rests, "a second without a call")
