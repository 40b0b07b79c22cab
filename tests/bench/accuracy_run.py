"""One seeded run: rounds of jobs side by side in a lab, most of them put wrong at some moment."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab.lab import Job, Lab

NODES = 4
FAULTS_PER_ROUND = 12
LOOKALIKES_PER_ROUND = 3
PRELUDE_SECONDS = (15.0, 30.0)
"""Of healthy training once the budget is known, before a fault."""
WATCH_SECONDS = 75.0
"""From the faults on."""

FAULTS = ("leave", "node", "behind", "kill", "stop", "disk", "group", "event", "straggler")
LOOKALIKES = {
    "compile": "train compile 80",
    "checkpoint": "lap checkpoint 80",
    "evaluation": "lap evaluate 80",
    "idle": "lap sleep 80",
    "pause": "",
}


@dataclass
class Case:
    """One job, and the truth about it."""

    job: Job
    kind: str
    ranks: frozenset[int]
    """At fault; empty where nobody is, or it is healthy."""
    wait: str
    began: float = 0.0
    """Unix time from which it trained as usual."""
    injected: float = 0.0

    @property
    def healthy(self) -> bool:
        """Whether it was only made to look like a stall."""
        return self.kind in LOOKALIKES


def rounds(lab: Lab, seed: int, count: int) -> Iterator[list[Case]]:
    """Each round's cases, when it has been watched to its end; they are killed afterwards."""
    choose = random.Random(seed)
    kinds = [FAULTS[i % len(FAULTS)] for i in range(count * FAULTS_PER_ROUND)]
    choose.shuffle(kinds)
    for number in range(count):
        mine = kinds[number * FAULTS_PER_ROUND : (number + 1) * FAULTS_PER_ROUND]
        mine += choose.sample(sorted(LOOKALIKES), LOOKALIKES_PER_ROUND)
        cases = [_start(lab, choose, kind, f"{number}-{i}-{kind}") for i, kind in enumerate(mine)]
        lab.wait(lambda cases=cases: all(case.job.armed() for case in cases), "all jobs train")
        began = time.time()
        for case in cases:
            case.began = began
        due = sorted((choose.uniform(*PRELUDE_SECONDS), i) for i in range(len(cases)))
        for after, i in due:
            time.sleep(max(0.0, began + after - time.time()))
            cases[i].injected = time.time()
            _inject(cases[i])
        time.sleep(WATCH_SECONDS)
        yield cases
        for case in cases:
            case.job.stop()


def _start(lab: Lab, choose: random.Random, kind: str, name: str) -> Case:
    size = choose.choice((4, 6, 8, 12)) if kind != "node" else 8
    wait = "spin" if kind in ("leave", "node", "group") else choose.choice(("spin", "park"))
    if kind in ("straggler", "event", "checkpoint", "idle", "pause"):
        wait = "park"
    options: dict[str, object] = {"wait": wait, "rollout": choose.uniform(0.3, 0.8)}
    if kind == "straggler":
        size, options["rollout"] = 12, 3.0
    if kind == "pause":
        options["pause"] = 8.0
    ranks = {choose.randrange(size)}
    if kind == "node":
        node = choose.randrange(NODES)
        ranks = {2 * node, 2 * node + 1}
    if kind in ("group", "event") or kind in LOOKALIKES:
        ranks = set()
    return Case(lab.job(name, size, **options), kind, frozenset(ranks), wait)


def _inject(case: Case) -> None:
    job, ranks = case.job, sorted(case.ranks)
    match_kind = {
        "leave": "lap leave",
        "node": "lap leave",
        "behind": "train park",
        "disk": "train uninterruptible",
        "group": "train spin",
        "event": "rollout park",
        "straggler": "rollout slow 18",
        **LOOKALIKES,
    }
    if case.kind == "kill":
        job.signal(signal.SIGKILL, *ranks)
    elif case.kind == "stop":
        job.signal(signal.SIGSTOP, *ranks)
    elif case.kind in ("compile", "evaluation"):
        job.order(match_kind[case.kind], 0)
    elif match_kind[case.kind]:
        job.order(match_kind[case.kind], *ranks)
