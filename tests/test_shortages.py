"""A node agent that lacks descriptors, address space or threads: one line, and recovery.

See EMFILE in open(2), ENOMEM in mmap(2) and RLIMIT_NPROC in getrlimit(2).
"""

from __future__ import annotations

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagewatch.record import H_PID, H_RANK
from tests.node_agent import NodeAgent
from tests.records import patched, place, real_record
from tests.waiting import wait_for

SHORTAGE = "the agent leaves out what it cannot do until that is over"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[NodeAgent]:
    agent = NodeAgent(tmp_path, "--collector.kmsg.state-file", str(tmp_path / "kmsg.json"))
    agent.start()
    yield agent
    agent.stop()


def descriptors_in_use(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def address_space_in_use(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    size = re.search(r"VmSize:\s+(\d+) kB", status)
    assert size
    return int(size[1]) * 1024


@pytest.mark.parametrize(
    ("limit", "in_use", "more"),
    [
        (resource.RLIMIT_NOFILE, descriptors_in_use, 8),
        (resource.RLIMIT_AS, address_space_in_use, 0),
    ],
    ids=["descriptors", "address space"],
)
def test_a_shortage_is_said_in_one_line_and_the_agent_recovers(
    limit: int, in_use: object, more: int, agent: NodeAgent, tmp_path: Path
) -> None:
    assert callable(in_use)
    raw = real_record(tmp_path)
    wait_for(
        lambda: agent.value("stagewatch_collector_success", collector="clock") == 1, "collectors"
    )
    soft, hard = resource.prlimit(agent.process.pid, limit)
    resource.prlimit(agent.process.pid, limit, (in_use(agent.process.pid) + more, hard))
    with ExitStack() as stack:
        for number in range(1, 300):
            place(agent.ranks, patched(raw, {H_RANK: number, H_PID: number}), number)
        for _ in range(40):
            stack.enter_context(socket.create_connection(("127.0.0.1", agent.port)))
        wait_for(lambda: SHORTAGE in agent.log.read_text(), "the line")
    resource.prlimit(agent.process.pid, limit, (soft, hard))
    for file in agent.ranks.iterdir():
        file.unlink()

    def recovered() -> bool:
        if agent.get("/metrics")[0] != 200:
            return False
        states = [value for (name, _), value in agent.series().items() if name == SUCCESS]
        return len(states) > 5 and all(states)

    wait_for(recovered, "all collectors work again", 180)
    log = agent.log.read_text()
    assert log.count(SHORTAGE) == 1, log
    assert "Traceback" not in log, log
    own = [line for line in log.splitlines() if re.match(r"\d{4}-", line)]
    assert len(own) <= 2, log
    assert log.count("\n") <= 12, log  # Python has two lines for a thread that cannot begin


SUCCESS = "stagewatch_collector_success"
