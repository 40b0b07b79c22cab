"""How soon a hang is seen, named and paged for at scrape intervals of 5, 15, 30 and 60 s.

HangBench's jobs of one node or two are put wrong in front of several Prometheus servers that scrape
the same agents: one for each interval with the rules as shipped, whose groups have intervals of
their own, and one whose groups are evaluated no more often than it scrapes.  Only ranks with the
public client take part, in steps under 10 s, and only faults that must page.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from stagewatch.assets import assets
from stagewatch.demo.prometheus import CONFIG, TARGET, arguments, prometheus_command
from stagewatch.demo.stack import free_port, wait_for
from stagewatch.prometheus.api import PrometheusApi
from tests.bench.table import percentile
from tests.hangbench.field import Field
from tests.hangbench.player import Played, play
from tests.hangbench.score import RIGHT, answers, collect, grade
from tests.hangbench.shape import Shape, find

INTERVALS = (5, 15, 30, 60)
WATCH_SECONDS = 300.0
"""After a fault: a minute's scrapes and evaluations and the patience before a page fit in twice."""
JOBS, CORES = 16, 6.0
GROUP = re.compile(r"^    interval: (\d+)s", re.MULTILINE)


@dataclass(frozen=True)
class Watcher:
    """A Prometheus that scrapes the agents every so many seconds."""

    seconds: int
    as_shipped: bool
    """Whether its groups keep their own intervals."""
    api: PrometheusApi


@dataclass(frozen=True)
class Answer:
    """What one of them said of one fault: seconds after it, None for never."""

    suspected: float | None
    named: float | None
    """When exactly the right ranks were named."""
    nameless: bool
    """Whether the fault is nobody's, so that naming nobody is right."""
    paged: float | None
    right: bool


def main(options: Sequence[str] = ()) -> None:
    """Play the jobs, and print a table in Markdown."""
    parser = argparse.ArgumentParser(prog='make bench ARGS="intervals ..."', description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="part of a name, repeatable")
    parser.add_argument("--rounds", type=int, default=2, help="times each is played (default: 2)")
    given = parser.parse_args(options)
    shapes = [
        dataclasses.replace(shape, watch=WATCH_SECONDS)
        for shape in find("open", tuple(given.only))
        if fits(shape)
    ]
    answers_of: dict[tuple[int, bool], list[Answer]] = {}
    for _ in range(given.rounds):
        one_round(shapes, answers_of)
    print(table(answers_of))


def one_round(shapes: list[Shape], answers_of: dict[tuple[int, bool], list[Answer]]) -> None:
    """Play each shape once, before servers that know nothing of the last round."""

    def say(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)

    with Field(watched=True) as field:
        watchers = list(watch(field))

        def done(played: Played) -> None:
            if problem := played.sound():
                say(f"{played.shape.name} is not counted: {problem}")
                return
            for watcher in watchers:
                key = watcher.seconds, watcher.as_shipped
                answers_of.setdefault(key, []).append(ask(watcher.api, played))
            say(f"{played.shape.name}: done")

        play(shapes, field, JOBS, CORES, say, done)


def fits(shape: Shape) -> bool:
    """Whether a shape is an ordinary fault that must page."""
    ordinary = shape.backend == "client" and not shape.disturbs
    return ordinary and not shape.healthy and shape.expect.page == "must"


def watch(field: Field) -> Iterator[Watcher]:
    """Start a Prometheus for every interval, with either kind of rules."""
    command = prometheus_command(Path.home() / ".cache" / "stagewatch")
    targets = "".join(
        TARGET.format(address=address, node=node) for node, address in field.agents.items()
    )
    for seconds, as_shipped in product(INTERVALS, (True, False)):
        directory = field.directory / f"prometheus-{seconds}-{as_shipped}"
        rules = directory / "rules"
        ignored = shutil.ignore_patterns("tests", "runbooks")
        shutil.copytree(assets("alerts"), rules, ignore=ignored)
        if not as_shipped:
            for file in rules.glob("*.rules.yaml"):
                file.write_text(slowed(file.read_text(), seconds))
        config = directory / "prometheus.yml"
        config.write_text(CONFIG.format(interval=seconds, rules=rules) + targets)
        port = free_port()
        field.children.start(arguments(command, config, port), log=directory / "log")
        api = PrometheusApi(f"http://127.0.0.1:{port}")
        if not wait_for(api.ready, 60):
            raise SystemExit(f"Prometheus did not start: {(directory / 'log').read_text()[-500:]}")
        yield Watcher(seconds, as_shipped, api)


def slowed(rules: str, seconds: int) -> str:
    """A file of rules, no group of which is evaluated more often than that."""
    return GROUP.sub(lambda match: f"    interval: {max(seconds, int(match[1]))}s", rules)


def ask(api: PrometheusApi, played: Played) -> Answer:
    """What a Prometheus has recorded of a job that was put wrong."""
    seen, right = collect(api, played), answers(played)
    named = [when for when, ranks in seen.named.items() if ranks in right]
    order = [seen.named[when] for when in sorted(seen.named)]
    last = seen.at(played.ended - 4)

    def after(when: float) -> float | None:
        return when - played.triggered if when else None

    return Answer(
        after(seen.suspected),
        after(min(named, default=0.0)),
        frozenset() in right,
        after(seen.paged),
        grade(bool(seen.suspected), [*order, last], right) == RIGHT,
    )


def table(answers_of: dict[tuple[int, bool], list[Answer]]) -> str:
    """Median and p90 of each time, by interval."""
    lines = [
        "| scrapes every | rules every | suspected | named rightly | right at the end | paged |"
    ]
    lines.append("| --- " * 6 + "|")
    for (seconds, as_shipped), given in sorted(answers_of.items(), key=lambda one: one[0]):
        groups = "5 s, as shipped" if as_shipped else f"{seconds} s"
        cells = [
            times([one.suspected for one in given]),
            times([one.named for one in given if not one.nameless]),
            f"{sum(one.right for one in given)} of {len(given)}",
            times([one.paged for one in given]),
        ]
        lines.append(f"| {seconds} s | {groups} | {' | '.join(cells)} |")
    return "\n".join(lines)


def times(all_times: Sequence[float | None]) -> str:
    """How often it happened, and after how long."""
    known = [one for one in all_times if one is not None]
    if not known:
        return f"0 of {len(all_times)}"
    middle, slow = statistics.median(known), percentile(known, 0.9)
    return f"{len(known)} of {len(all_times)}: {middle:.0f} s, p90 {slow:.0f} s"
