"""Running agents, and a certificate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stagewatch.web.agent_server import AgentServer
from tests.waiting import wait_for
from tests.web.http_helpers import Agent, Serve
from tests.web.status_scenes import SCENES, Hangs, Parts, runner_of


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Starts agents: `serve("hang")` or `serve({"gpu": make})`, options as in AgentServer."""
    started: list[Agent] = []

    def start(what: str | Parts = "healthy", *, interval: float = 60.0, **options: object) -> Agent:
        parts = SCENES[what]() if isinstance(what, str) else what
        runner = runner_of(parts, interval)
        options.setdefault("node", "gpu-node-17")
        server = AgentServer(("127.0.0.1", 0), runner, **options)
        agent = Agent(server, runner)
        started.append(agent)
        runner.start()
        server.start()
        return agent

    yield start
    for agent in started:
        agent.server.close()
        agent.runner.close()


@pytest.fixture
def settled(serve: Serve) -> Serve:
    """Like `serve`, but every collector that can answer has done so."""

    def start(*args: object, **options: object) -> Agent:
        agent = serve(*args, **options)
        jobs = agent.runner.jobs.values()
        wait_for(
            lambda: all(
                job.duration is not None or isinstance(job.collector, Hangs) for job in jobs
            ),
            "every collector that can has answered",
        )
        return agent

    return start
