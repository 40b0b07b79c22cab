"""Whole programs: whom the others wait for is found without a line of client code."""

from __future__ import annotations

from stagewatch.ranks.waits.model import State
from tests.ranks.waits.chain import ends
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import code
from tests.ranks.waits.test_pipes import Start

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


def test_the_worker_of_a_queue_that_does_not_answer(program: Start, settled: Settled) -> None:
    running = program(QUEUES)
    trainer, *workers = (running[name] for name in ("trainer", "worker0", "worker1", "worker2"))
    look = settled(trainer, until=lambda look: ends(look, [trainer]).pids == (workers[1],))
    assert look.processes[workers[1]].state is State.SLEEPING
    assert {look.processes[pid].state for pid in (workers[0], workers[2])} == {State.WAITING}
