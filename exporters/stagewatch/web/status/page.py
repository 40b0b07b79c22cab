"""`/`: this node at a glance, for a person who has only a browser.

Made on the server from the collectors' last samples: no script, nothing loaded from elsewhere.
The page states facts about this node; verdicts need the whole job and are Prometheus' work.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from importlib import resources
from pathlib import Path

import stagewatch
from stagewatch.core.runner import Runner, Snapshot
from stagewatch.web.message import Request, Response
from stagewatch.web.status.facts import Facts, Key
from stagewatch.web.status.headline import headline
from stagewatch.web.status.markup import Markup, duration, join, moment, tag
from stagewatch.web.status.ranks import RANK, ranks
from stagewatch.web.status.sections import Section, collectors, faults, gpus

REFRESH_SECONDS = 5

_KEPT_SECONDS = 1.0
"""Age up to which a page is given out again, so that many viewers cost no more than one."""

_CPU = "rl_rank_cpu_seconds_total"


class StatusPage:
    """Answers with the page; `links` are further paths to name at its foot."""

    def __init__(
        self,
        runner: Runner,
        *,
        node: str,
        record_dir: Path | None = None,
        links: Sequence[str] = (),
    ) -> None:
        self._runner = runner
        self._node = node
        self._record_dir = record_dir
        self._links = ("/metrics", "/-/healthy", "/-/ready", *links)
        self._started = time.monotonic()
        self._cpu = _CpuShares()
        self._making = threading.Lock()
        self._last: tuple[float, bytes] | None = None
        style = (resources.files(__package__) / "page.css").read_text("utf-8")
        self._style = Markup(f"<style>{style}</style>")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self._headers = {
            "Content-Security-Policy": (
                f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
            "Referrer-Policy": "no-referrer",
        }

    def __call__(self, _: Request) -> Response:
        """The page, made anew at most once a second whoever asks."""
        with self._making:
            now = time.monotonic()
            if self._last is None or now - self._last[0] > _KEPT_SECONDS:
                page = "<!doctype html>\n" + self._page()
                self._last = (now, page.encode("utf-8", "replace"))
            body = self._last[1]
        return Response(HTTPStatus.OK, "text/html; charset=utf-8", body, self._headers)

    def _page(self) -> Markup:
        jobs = self._runner.jobs
        fresh = [found for job in jobs.values() if (found := job.fresh()) is not None]
        facts = Facts(snapshot.samples for snapshot in fresh)
        now = time.time()
        sections = [*self._about_node(facts, self._cpu.shares(fresh)), collectors(jobs, now)]
        up = duration(time.monotonic() - self._started)
        return tag(
            "html",
            tag(
                "head",
                Markup('<meta charset="utf-8">'),
                Markup(f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'),
                Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
                Markup('<link rel="icon" href="data:,">'),
                tag("title", f"{self._node} · stagewatch"),
                self._style,
            ),
            tag(
                "body",
                tag(
                    "header",
                    tag("h1", self._node),
                    tag("p", f"stagewatch {stagewatch.__version__}, up {up}"),
                    tag("p", f"{moment(now)}, renewed every {REFRESH_SECONDS} s", class_="when"),
                ),
                tag(
                    "main",
                    headline(facts, jobs),
                    join(section.render() for section in sections),
                ),
                tag("footer", join(tag("a", link, href=link) for link in self._links)),
            ),
            lang="en",
        )

    def _about_node(self, facts: Facts, cpu: dict[Key, float]) -> Iterator[Section]:
        """The sections for which this agent has a collector."""
        jobs = self._runner.jobs
        open_faults = None
        if "faults" in jobs:
            open_faults = faults(facts, self._why_empty("faults", "No fault is marked as open."))
        if open_faults is not None and open_faults.rows:
            yield open_faults
        if "ranks" in jobs or "stages" in jobs:
            where = f" in {self._record_dir}" if self._record_dir else ""
            nothing = (
                f"No ranks on this node: no stage record{where} "
                "and no process with RANK or SLURM_PROCID."
            )
            name = "ranks" if "ranks" in jobs else "stages"
            yield ranks(facts, self._why_empty(name, nothing), cpu)
        if "gpu" in jobs:
            yield gpus(facts, self._why_empty("gpu", "No GPU on this node."))
        if open_faults is not None and not open_faults.rows:
            yield open_faults

    def _why_empty(self, name: str, nothing: str) -> str:
        """Whether there is nothing, or nothing is known."""
        job = self._runner.jobs[name]
        if job.answering():
            return nothing
        if job.stuck_seconds():
            return f"Nothing is known: the collector {name} is stuck."
        if job.error is not None:
            return f"Nothing is known: the collector {name} fails: {job.error[:300]}"
        return "Not collected yet."


class _CpuShares:
    """CPU use between two collections; the first view of a rank has none yet."""

    def __init__(self) -> None:
        self._last: tuple[float, dict[Key, float]] | None = None
        self._shares: dict[Key, float] = {}

    def shares(self, snapshots: Sequence[Snapshot]) -> dict[Key, float]:
        """The share of one core that each rank used between the last two views."""
        for snapshot in snapshots:
            totals = Facts([snapshot.samples]).sums(_CPU, RANK)
            if totals:
                return self._since_last(snapshot.taken, totals)
        return {}

    def _since_last(self, taken: float, totals: dict[Key, float]) -> dict[Key, float]:
        if self._last is None or taken > self._last[0]:
            if self._last is not None:
                since, before = self._last
                self._shares = {
                    key: (total - before[key]) / (taken - since)
                    for key, total in totals.items()
                    if total >= before.get(key, total + 1)
                }
            self._last = (taken, totals)
        return self._shares
