"""Following who waits for whom."""

from __future__ import annotations

from stagewatch.ranks.waits.model import Connection, Kind, Mode, Process, State, Wait, Waiting
from tests.ranks.waits.chain import ends


def look(states: dict[int, State], *waits: Wait) -> Waiting:
    return Waiting(
        {pid: Process(pid, 1, state, "python", thread=pid) for pid, state in states.items()}, waits
    )


def waiting(pid: int, *targets: int, mode: Mode = Mode.ALL, thread: int = 0) -> Wait:
    return Wait(pid, thread or pid, Kind.PIPE, "read", 2.0, mode, targets, "reads")


W, S = State.WAITING, State.SLEEPING


def test_of_several_holders_those_that_wait_in_turn_are_not_blamed() -> None:
    queue = look(
        {1: W, 2: W, 3: S, 4: W},
        waiting(1, 2, 3, 4, mode=Mode.ANY),
        waiting(2, 1, 3, 4, mode=Mode.ANY),
        waiting(4, 1, 2, 3, mode=Mode.ANY),
    )
    assert ends(queue, [1]).pids == (3,)
    assert ends(queue, [1, 2, 4]).pids == (3,)


def test_a_thread_within_counts_where_the_main_one_waits_for_it() -> None:
    own = Wait(1, 1, Kind.OWN, "futex", 2.0)
    assert ends(look({1: W, 2: S}, own, waiting(1, 2, thread=9)), [1]).pids == (2,)


def request(pid: int, server: int, *, owed: bool) -> Wait:
    to_it = Connection("127.0.0.1:1", "127.0.0.1:2", (server,), owed=owed)
    return Wait(pid, pid, Kind.TCP, "read", 2.0, targets=(server,), connections=(to_it,))


def test_a_server_that_owes_an_answer_is_at_the_end() -> None:
    serves = waiting(2, 1, 3, mode=Mode.ANYBODY)
    found = ends(look({1: W, 2: W, 3: S}, request(1, 2, owed=True), serves), [1])
    assert found.pids == (2,)


def test_a_collector_waits_for_those_that_do_not_wait_for_it() -> None:
    serves = waiting(2, 1, 3, mode=Mode.ANYBODY)
    found = ends(look({1: W, 2: W, 3: S}, request(1, 2, owed=False), serves), [2])
    assert found.pids == (3,)
