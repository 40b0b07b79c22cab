"""A trainer with a stage record, and what an agent shows of its process."""

from __future__ import annotations

import socket
from pathlib import Path

from stagewatch.core.processes import Children
from tests.faults_real.agent import Agent
from tests.ranks.fakes import program
from tests.waiting import wait_for

TRAINER = """
import os, socket, sys
os.environ |= {"STAGEWATCH_DIR": sys.argv[1], "STAGEWATCH_JOB_ID": "540", "RANK": "5"}
os.environ |= {"WORLD_SIZE": "32"}
import stagewatch
stagewatch.init(role="train")
connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
connection.sendall(b"x" * 100_000)
with open(sys.argv[3], "wb") as file:
    file.write(bytes(1 << 20))
print("ready")
with stagewatch.stage("weights_update", step=1):
    sys.stdin.readline()
"""


def test_a_ranks_io_sockets_and_limits_carry_its_labels(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    rank = {"job_id": "540", "role": "train", "rank": "5"}
    with socket.create_server(("127.0.0.1", 0)) as server, Children() as children:
        port = server.getsockname()[1]
        agent = Agent(children, tmp_path)
        checkpoint = tmp_path / "checkpoint"
        with program(TRAINER, str(tmp_path / "ranks"), str(port), str(checkpoint)) as trainer:
            assert trainer.hear() == "ready"
            flow = rank | {"side": "client", "port": str(port), "direction": "sent"}
            wait_for(
                lambda: agent.value("rl_rank_tcp_bytes_total", **flow), "bytes on its connection"
            )
            io = rank | {"direction": "write", "layer": "call"}
            wait_for(
                lambda: (agent.value("rl_rank_io_bytes_total", **io) or 0) >= 1 << 20, "its writing"
            )
            assert agent.value("stagewatch_collector_success", collector="net") == 1
        wait_for(
            lambda: agent.value("rl_rank_io_bytes_total", **io) is None, "nothing after its end"
        )
