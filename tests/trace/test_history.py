"""What is asked of a Prometheus beside the events."""

from __future__ import annotations

from stagewatch.prometheus.api import Series, Track
from stagewatch.trace.history import agents_of, verdicts


class Server:
    """Answers with what a test gives it."""

    def __init__(self, ups: list[dict[str, str]], targets: list[tuple[dict[str, str], str]]):
        self.ups = ups
        self._targets = targets
        self.tracks: dict[str, list[Track]] = {}

    def query(self, expression: str) -> list[Series]:
        wanted = "540" if '"540"' in expression else None
        return [Series(up, 1.0) for up in self.ups if wanted in (None, up["job_id"])]

    def targets(self) -> list[tuple[dict[str, str], str]]:
        return self._targets

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Track]:
        return self.tracks.get(expression.partition("{")[0], [])


def up(instance: str, job_id: str = "540") -> dict[str, str]:
    return {"job": "stagewatch", "instance": instance, "job_id": job_id}


def target(instance: str, url: str, job: str = "stagewatch") -> tuple[dict[str, str], str]:
    return {"job": job, "instance": instance}, url


def test_agents_are_asked_where_the_server_scrapes_them() -> None:
    server = Server(
        [up("n1"), up("n1"), up("n2"), up("n3", job_id="7")],
        [
            target("n1", "https://10.0.0.1:9947/metrics"),
            target("n2", "http://10.0.0.2:9947/some/metrics?x=y"),
            target("n3", "http://10.0.0.3:9947/metrics"),
            target("n1", "http://10.0.0.1:9100/metrics", job="node-exporter"),
        ],
    )
    found = agents_of(server, "540")  # type: ignore[arg-type]
    assert found == ["http://10.0.0.2:9947", "https://10.0.0.1:9947"]


def test_a_verdict_lasts_while_its_series_is_there() -> None:
    server = Server([], [])
    labels = {"role": "train", "rank": "2", "evidence": "awaited"}
    times = [100.0, 105.0, 110.0, 200.0]
    server.tracks = {"job:rl_stall:culprit": [Track(labels, [(time, 1.0) for time in times])]}
    found = list(verdicts(server, "540", 100.0, 200.0))  # type: ignore[arg-type]
    assert [(one.track, one.name, one.start, one.end) for one in found] == [
        ("culprit train/2", "awaited", 100_000_000, 115_000_000),
        ("culprit train/2", "awaited", 200_000_000, 205_000_000),
    ]
