"""Ranks and whoever else they wait for, out of what the kernel shows of real processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.incidents.files import RankEvidence
from stagewatch.incidents.kernel_waits import NOTHING, far_ends, kernel_waits
from stagewatch.judgement.facts import ANYBODY, KernelWait, RankFacts
from stagewatch.judgement.from_prometheus import JobSeries, moment
from stagewatch.judgement.judge import judge
from stagewatch.ranks.model import Rank
from stagewatch.ranks.stacks import Stack
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.ranks.waits.model import Connection, Kind, Mode, Process, State, Wait, Waiting
from tests.judgement.jobs import HEALTHY
from tests.ranks.waits.chain import ends
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code

NO_PROCESS = 1 << 22
"""No pid is as great."""


def rank(role: str, number: int, pid: int) -> Rank:
    return Rank("540", role, number, pid)


def hung(ranks: Sequence[Rank], told: dict[tuple[str, str, str], tuple[KernelWait, ...]]) -> list:  # type: ignore[type-arg]
    facts: list[RankFacts] = [
        replace(
            HEALTHY,
            role=one.role,
            rank=one.rank,
            pid=one.pid,
            wait_class=WaitClass.PARKED,
            progress_age_seconds=400.0,
            collectives={},
            kernel_waits=told.get(one.key, ()),
        )
        for one in ranks
    ]
    return [
        (verdict.evidence, charge.rank.rank)
        for verdict in judge(facts)
        for charge in verdict.charges
    ]


QUEUES = code("""
    import multiprocessing
    def worker(todo, done, stuck, number):
        say(f"worker{number}")
        while True:
            item = todo.get()
            if number == 1:
                stuck.set()
                sleep()
            done.put(item)
    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        todo, done, stuck = context.Queue(), context.Queue(), context.Event()
        workers = [
            context.Process(target=worker, args=(todo, done, stuck, number), daemon=True)
            for number in range(3)
        ]
        for one in workers:
            one.start()
        while not stuck.is_set():
            todo.put(0)
            time.sleep(0.05)
        say("trainer")
        while True:
            done.get()
""")


def test_the_worker_of_a_queue_is_named_without_its_own_word(
    program: Start, settled: Settled
) -> None:
    running = program(QUEUES, "spawn")
    pids = [running[name] for name in ("trainer", "worker0", "worker1", "worker2")]
    look = settled(*pids, until=lambda look: ends(look, pids[:1]).pids == (pids[2],))
    ranks = [rank("train", number, pid) for number, pid in enumerate(pids)]
    told = kernel_waits(look, ranks, Procfs())
    reads = told["540", "train", "0"]
    assert {(wait.role, wait.rank) for wait in reads} == {("train", n) for n in (1, 2, 3)}
    assert {wait.how for wait in reads} == {"a read of a pipe"}
    assert told["540", "train", "2"] == (NOTHING,)
    assert hung(ranks, told) == [("awaited", 2)]


def test_a_rank_that_waits_for_its_own_helper_waits_for_nobody_else(
    program: Start, settled: Settled
) -> None:
    running = program(QUEUES, "fork")
    trainer, worker = running["trainer"], running["worker1"]
    look = settled(trainer, until=lambda look: ends(look, [trainer]).pids == (worker,))
    assert kernel_waits(look, [rank("train", 0, trainer)], Procfs()) == {
        ("540", "train", "0"): (NOTHING,)
    }


ASKS = code("""
    server = socket.create_server(("127.0.0.1", 0))
    def serve():
        accepted, _ = server.accept()
        accepted.recv(1)
        say("server")
        sleep()
    fork(serve)
    def ask():
        client = socket.create_connection(server.getsockname())
        client.send(b"?")
        say("client")
        client.recv(1)
    fork(ask)
    sleep()
""")


IDLE_SERVICE = code("""
    reads, writes = os.pipe()
    def work():
        os.close(writes)
        os.read(reads, 1)
    for number in range(2):
        say(f"worker{number}", fork(work))
    server = socket.create_server(("127.0.0.1", 0))
    say("main")
    server.accept()
""")


def test_a_server_without_clients_waits_for_whoever_asks_and_is_not_at_fault(
    program: Start, settled: Settled
) -> None:
    running = program(IDLE_SERVICE)
    pids = [running[name] for name in ("main", "worker0", "worker1")]
    states = dict.fromkeys(pids, State.WAITING)
    look = settled(*pids, until=lambda look: ends(look, pids[1:]).pids, states=states)
    ranks = [rank("train", number, pid) for number, pid in enumerate(pids)]
    told = kernel_waits(look, ranks, Procfs())
    assert told["540", "train", "0"] == (
        KernelWait("a wait for the next request", process=ANYBODY),
    )
    assert all(wait.rank == 0 for number in "12" for wait in told["540", "train", number])
    assert hung(ranks, told) == []


def test_a_helper_that_waits_for_a_signal_is_no_server(program: Start, settled: Settled) -> None:
    """As a compiler's helper does, or a child that was stopped: its rank does not go on."""
    running = program(WAITS_FOR_A_SIGNAL)
    pid = running["rank"]
    look = settled(pid, until=lambda look: running["helper"] in look.processes)
    mine = rank("train", 0, pid)
    assert kernel_waits(look, [mine], Procfs()) == {
        mine.key: (KernelWait("a wait for the end of a process"),)
    }


WAITS_FOR_A_SIGNAL = code("""
    helper = fork(signal.pause)
    say("helper", helper)
    say("rank")
    os.waitpid(helper, 0)
""")


def test_a_server_that_is_no_rank_is_named_by_its_command(program: Start, settled: Settled) -> None:
    running = program(ASKS)
    client, server = running["client"], running["server"]
    look = settled(client, until=lambda look: ends(look, [client]).pids == (server,))
    (wait,) = kernel_waits(look, [rank("train", 0, client)], Procfs())["540", "train", "0"]
    assert (wait.how, wait.rank) == ("a receive from a connection", None)
    assert f"(pid {server})" in wait.process


def looked(*processes: tuple[int, State], waits: Sequence[Wait]) -> Waiting:
    return Waiting({pid: Process(pid, 0, state, "redis") for pid, state in processes}, tuple(waits))


def test_a_queue_server_leads_to_the_ranks_that_may_have_to_fill_it() -> None:
    server, asks, fills = (NO_PROCESS + number for number in range(3))
    connection = Connection("127.0.0.1:2", "127.0.0.1:1", holders=(server,), owed=True)
    look = looked(
        (server, State.WAITING),
        (asks, State.WAITING),
        (fills, State.SLEEPING),
        waits=[
            Wait(server, server, Kind.ACCEPT, "epoll_wait", 1.0, Mode.ANYBODY, (asks, fills)),
            Wait(asks, asks, Kind.TCP, "recvfrom", 1.0, Mode.ALL, (server,), "", (connection,)),
        ],
    )
    told = kernel_waits(look, [rank("train", 0, asks), rank("rollout", 1, fills)], Procfs())
    name = f"redis (pid {server})"
    how = "a receive from a connection"
    assert told == {
        ("540", "train", "0"): (
            KernelWait(how, through=name),
            KernelWait(how, "rollout", 1, through=name),
        ),
        ("540", "rollout", "1"): (NOTHING,),
    }


ENDED = "vllm serve (pid 7), which has ended"
IN_VAIN = KernelWait("a connection that nobody accepts", process=ENDED)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (State.SLEEPING, IN_VAIN),
        (State.RETRYING, IN_VAIN),
        (State.UNKNOWN, IN_VAIN),
        (State.RUNNING, NOTHING),
        (State.STORAGE, KernelWait("a call to storage")),
    ],
)
def test_a_rank_that_asks_a_server_in_vain_waits_for_it(state: State, told: KernelWait) -> None:
    """Unless it does something else."""
    asks = rank("rollout", 0, NO_PROCESS)
    found = kernel_waits(
        looked((asks.pid, state), waits=[]), [asks], Procfs(), gone={asks.key: {asks.pid: (ENDED,)}}
    )
    assert found == {asks.key: (told,)}


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (State.RETRYING, None),
        (State.SLEEPING, None),
        (State.UNKNOWN, None),
        (State.INWARD, KernelWait("a wait for a thread or process of its own")),
        (State.RUNNING, NOTHING),
    ],
)
def test_a_rank_that_asks_a_server_again_and_again_waits_for_it(
    state: State, told: KernelWait | None
) -> None:
    """And for its other clients, since it may be a queue; unless it does something else."""
    asks, other, server = (NO_PROCESS + number for number in range(3))
    ranks = [rank("rollout", 0, asks), rank("rollout", 1, other)]
    name = f"router (pid {server})"
    asked = {ranks[0].key: {name: frozenset((asks, other))}}
    look = looked((asks, state), (other, State.SLEEPING), waits=[])
    how = "calls that are tried again and again"
    both = (KernelWait(how, through=name), KernelWait(how, "rollout", 1, through=name))
    found = kernel_waits(look, ranks, Procfs(), asked=asked)
    assert found == {ranks[0].key: (told,) if told else both, ranks[1].key: (NOTHING,)}


def test_a_rank_waits_for_the_engine_that_the_router_lacks() -> None:
    """The queue that a peer asks lacks nobody."""
    router, asks, reads, broker = (NO_PROCESS + number for number in range(4))
    ranks = [rank("rollout", 0, asks), rank("train", 0, reads)]
    to_router = Connection("127.0.0.1:2", "127.0.0.1:1", holders=(router,), owed=True)
    to_broker = Connection("127.0.0.1:4", "127.0.0.1:3", holders=(broker,), owed=True)
    look = looked(
        *((pid, State.WAITING) for pid in (router, asks, reads, broker)),
        waits=[
            Wait(router, router, Kind.ACCEPT, "epoll_wait", 1.0, Mode.ANYBODY, (asks,)),
            Wait(broker, broker, Kind.ACCEPT, "epoll_wait", 1.0, Mode.ANYBODY, (reads,)),
            Wait(asks, asks, Kind.TCP, "recvfrom", 1.0, Mode.ALL, (router,), "", (to_router,)),
            Wait(reads, reads, Kind.TCP, "recvfrom", 1.0, Mode.ALL, (broker,), "", (to_broker,)),
        ],
    )
    gone = {one.key: {router: (ENDED,)} for one in ranks}
    told = kernel_waits(look, ranks, Procfs(), gone=gone)
    how = "a receive from a connection"
    assert told == {
        ranks[0].key: (KernelWait(how, process=ENDED),),
        ranks[1].key: (KernelWait(how, through=f"redis (pid {broker})"),),
    }


def test_a_connection_between_two_nodes_is_joined_by_the_judge() -> None:
    near, far = rank("train", 0, NO_PROCESS), rank("rollout", 3, NO_PROCESS)
    here = Connection("10.0.0.1:4711", "10.0.0.2:29500", owed=True)
    wait = Wait(near.pid, near.pid, Kind.TCP, "recvfrom", 1.0, connections=(here,))
    told = kernel_waits(looked((near.pid, State.WAITING), waits=[wait]), [near], Procfs())
    (seen,) = told[near.key]
    there = Connection("10.0.0.2:29500", "10.0.0.1:4711", owners=(far.pid,), accepted=True)
    ends = far_ends(Waiting({}, connections=(there,)), [far], Procfs())
    found = joined(("a", near, WAITS, (seen,)), ("b", far, ENDS, ends[far.key]))
    assert found["train"] == [KernelWait("a receive from a connection", "rollout", 3)]


WAITS, ENDS = "rl_rank_waits_for", "rl_rank_connection_info"


def joined(*told: tuple[str, Rank, str, Sequence[KernelWait]]) -> dict[str, list[KernelWait]]:
    """Whom ranks wait for, by role, as the judge reads what the agents of their nodes export."""
    job = JobSeries()
    for node, one, metric, seen in told:
        mine = {"role": one.role, "rank": str(one.rank), "node": node}
        job.by["rl_rank_up"].append((mine, 1.0))
        for wait in seen:
            number = "" if wait.rank is None else str(wait.rank)
            whom = {"for_role": wait.role, "for_rank": number, "process": wait.process}
            where = {"how": wait.how, "address": wait.address, "through": wait.through}
            job.by[metric].append((mine | whom | where, 1.0))
    found: dict[str, list[KernelWait]] = {}
    for one in moment("540", job, 1e9).ranks:
        found.setdefault(one.role, []).extend(one.kernel_waits)
    return found


def test_nodes_that_share_a_machine_see_the_same_processes() -> None:
    job = JobSeries()
    for number, (node, machine) in enumerate((("b", "1f"), ("a", "1f"), ("c", "2e"))):
        mine = {"role": "train", "rank": str(number), "node": node}
        job.by["rl_rank_up"].append((mine, 1.0))
        asks = {"how": "a receive", "process": "redis (pid 7)", "machine": machine}
        job.by[WAITS].append((mine | asks, 1.0))
    found = [wait for one in moment("540", job, 1e9).ranks for wait in one.kernel_waits]
    assert [wait.process.partition(" on ")[2] for wait in found] == ["a", "a", "c"]


def test_a_server_of_another_node_is_named_and_leads_on_to_its_clients() -> None:
    """A rank here and one there ask a router there, which has idle clients here and there."""
    router, asker, client = NO_PROCESS, NO_PROCESS + 1, NO_PROCESS + 2
    near, idle = rank("train", 0, NO_PROCESS + 7), rank("driver", 0, NO_PROCESS + 8)
    there = [rank("rollout", 0, asker), rank("rollout", 1, client)]
    look = looked(
        (router, State.WAITING),
        (asker, State.WAITING),
        (client, State.SLEEPING),
        waits=[
            Wait(router, router, Kind.ACCEPT, "epoll_wait", 1.0, Mode.ANYBODY, (asker, client)),
            Wait(asker, asker, Kind.TCP, "recvfrom", 1.0, Mode.ALL, (router,)),
        ],
    )
    look = replace(
        look,
        connections=tuple(
            Connection("10.0.0.2:80", f"10.0.0.1:{port}", owners=(router,), accepted=True)
            for port in (7, 8)
        ),
    )
    first = there[0]
    how = "a receive from a connection"
    own = kernel_waits(look, there, Procfs())[first.key]
    witness = RankEvidence("rollout", 0, asker, Stack(), {}, own)
    assert [wait.address for wait in witness.waits_here] == ["", ""]
    found = joined(
        ("a", near, WAITS, [KernelWait(how, address="10.0.0.2:80 from 10.0.0.1:8")]),
        ("a", idle, ENDS, [KernelWait("", address="10.0.0.1:7 from 10.0.0.2:80")]),
        ("b", first, WAITS, own),
        ("b", first, ENDS, far_ends(look, there, Procfs())[first.key]),
    )
    name = f"redis (pid {router}) on b"
    asks = KernelWait(how, through=name)
    assert set(found["train"]) == {asks, *(replace(asks, role="rollout", rank=n) for n in (0, 1))}
    assert set(found["rollout"]) == {
        asks,
        replace(asks, role="rollout", rank=1),
        replace(asks, role="driver", rank=0),
    }


def test_a_send_to_a_server_that_takes_what_comes_blames_neither() -> None:
    server, sends = NO_PROCESS, NO_PROCESS + 1
    connection = Connection("127.0.0.1:2", "127.0.0.1:1", holders=(server,), unsent=1 << 20)
    look = looked(
        (server, State.WAITING),
        (sends, State.WAITING),
        waits=[
            Wait(server, server, Kind.TCP, "recvfrom", 1.0, Mode.ANYBODY, (sends,)),
            Wait(
                *(sends, sends, Kind.TCP, "poll", 1.0, Mode.ANY, (server,), "", (connection,)),
                writes=True,
            ),
        ],
    )
    told = kernel_waits(look, [rank("rollout", 3, sends)], Procfs())
    assert told == {("540", "rollout", "3"): (NOTHING,)}
