"""What one user's records, as many and as full as may be, do to another's ranks as installed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stagewatch.core.processes import Children
from tests.as_installed import need_users, start, systemd
from tests.exposition import series_of
from tests.full_records import NEIGHBOUR, neighbour
from tests.node_agent import TRAINER, NodeAgent
from tests.waiting import wait_for

RANKS = 8
AGENT_UID = 60_030

pytestmark = [pytest.mark.xdist_group("as_installed"), pytest.mark.timeout(600)]


@pytest.fixture
def agent(children: Children) -> Iterator[NodeAgent]:
    """An agent by the unit, beside eight ranks of a job."""
    need_users()
    with tempfile.TemporaryDirectory(prefix="sw-", dir="/dev/shm") as name:
        agent = NodeAgent(
            Path(name),
            *("--collector.kmsg.state-file", f"{name}/kmsg.json"),
            *("--collector.incidents.dir", f"{name}/incidents"),
        )
        for rank in range(RANKS):
            children.start(
                [sys.executable, "-c", TRAINER, str(rank)],
                environ=os.environ | {"STAGEWATCH_DIR": str(agent.ranks)},
                log=Path(name, "ranks.log"),
            )
        start(systemd(), agent, children, AGENT_UID)
        yield agent


def honest(agent: NodeAgent) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """The series of the eight ranks; some are there only once the agent has looked twice."""
    return {key for key in agent.series() if dict(key[1]).get("job_id") == "540"}


def whole(agent: NodeAgent) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """The same, once all ranks show as many."""

    def all_alike() -> set[tuple[str, frozenset[tuple[str, str]]]]:
        found = honest(agent)
        names = [name for name, _ in found]
        some = ("rl_rank_stage_completed_age_seconds", "rl_rank_step_work_seconds_total")
        return found if all(names.count(name) == RANKS for name in some) else set()

    return wait_for(all_alike, "all series of eight ranks")


def left_out(agent: NodeAgent) -> float | None:
    return agent.value("stagewatch_rank_series_left_out", uid=str(NEIGHBOUR))


def memory(agent: NodeAgent) -> float:
    """MiB of the agent and its children."""
    process = psutil.Process(agent.process.pid)
    everybody = [process, *process.children(recursive=True)]
    return sum(one.memory_full_info().uss for one in everybody) / 2**20


def test_a_neighbour_with_256_full_records_takes_nothing_from_others(
    agent: NodeAgent, children: Children
) -> None:
    telling = ("rl_rank_st", "rl_stage", "rl_progress")
    before = {key for key in whole(agent) if key[0].startswith(telling)}
    neighbour(children, agent.ranks, agent.directory / "log", 256)

    def all_of_both() -> str:
        """A page that has looked at all records."""
        page = agent.get("/metrics")[1]
        found = set(series_of(page))
        jobs = {dict(pairs).get("job_id") for name, pairs in found if name == "rl_rank_up"}
        return page if before <= found and len(jobs) == 257 else ""

    page = wait_for(all_of_both, "all series of the eight ranks beside 256 of the neighbour")
    assert len(page.encode()) < 4_000_000
    assert memory(agent) < 256
    assert series_of(page)["stagewatch_rank_series_left_out", frozenset({("uid", str(NEIGHBOUR))})]
    wait_for(lambda: f"series of user {NEIGHBOUR}" in agent.get("/")[1], "the page tells it")


def test_a_neighbour_who_renews_his_records_does_not_fill_the_page_in_time(
    agent: NodeAgent, children: Children
) -> None:
    """Eight records that are others every two seconds: the totals of ended jobs remain."""
    neighbour(children, agent.ranks, agent.directory / "log", 8, 2)
    wait_for(
        lambda: len({dict(pairs).get("job_id") for _, pairs in agent.series()}) > 48, "many jobs"
    )
    page = agent.get("/metrics")[1]
    assert len(page.encode()) < 4_000_000
    assert memory(agent) < 256
    assert left_out(agent)
