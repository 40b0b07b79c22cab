"""How fast and how rightly stalls are found: a seeded run of real faults, beside other detectors.

All detectors judge the same jobs.  A fault counts as found if the alarm comes after it, a healthy
phase (before each fault, and a whole look-alike job) as a false alarm if there is any.  Where a
detector only has to wait (time-out, heartbeat), its time is that of the measured end of progress
plus its limit.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.bench.accuracy_run import NODES, WATCH_SECONDS, Case, rounds
from tests.bench.accuracy_score import HEADER, Score
from tests.bench.table import percentile, row
from tests.lab.lab import Lab

SEED = int(os.environ.get("STAGEWATCH_BENCH_SEED", "4"))
ROUNDS = int(os.environ.get("STAGEWATCH_BENCH_ROUNDS", "5"))
TIMEOUT_SECONDS = 600.0
HEARTBEAT_SECONDS = 60.0
HASH_SECONDS = 14
OURS = "BusyPollHang|LeftLoopEarly|RankHoldsUpJob|RankGone|GroupStall|Deadlock|Straggler"


class Judge:
    """Scores every detector on one case after the other."""

    def __init__(self, lab: Lab) -> None:
        self._api = lab.api
        self.ours = Score("stagewatch")
        self.timeout = Score(f"{TIMEOUT_SECONDS:.0f} s time-out")
        self.heartbeat = Score(f"{HEARTBEAT_SECONDS:.0f} s heartbeat")
        self.hash = Score(f"stat unchanged for {HASH_SECONDS} s")
        self.sigma = Score("mean + 2 sigma")
        self.after_trigger: list[float] = []
        self.late: list[tuple[float, str]] = []
        self.wrong: list[str] = []

    def judge(self, case: Case) -> None:
        """Score one case that has been watched to its end."""
        job = f'job_id="{case.job.job_id}"'
        start = case.began
        if not case.healthy:
            self._healthy_phase(job, start, case.injected, f"before {case.kind}")
            self._fault(case, job)
        else:
            self._healthy_phase(job, start, case.injected + WATCH_SECONDS, case.kind)

    def _healthy_phase(self, job: str, start: float, end: float, what: str) -> None:
        seconds = max(1, int(end - start))
        at = f"[{seconds}s] @ {end:.3f}"
        alerts = self._names(f'count_over_time(ALERTS{{alertname=~"{OURS}", {job}, {FIRING}}}{at})')
        if alerts:
            self.wrong.append(f"{what}: {sorted(alerts)} ({job})")
        age = max(
            self._values(f"max_over_time(rl_rank_progress_age_seconds{{{job}}}{at})"), default=0
        )
        frozen = f"max_over_time(({_frozen(job)})[{seconds}s:2s] @ {end:.3f})"
        sigma = f"count_over_time(rank:rl_stage_beyond_two_sigma:seconds{{{job}}}{at})"
        for score, alarm in (
            (self.ours, bool(alerts)),
            (self.timeout, age > TIMEOUT_SECONDS),
            (self.heartbeat, age > HEARTBEAT_SECONDS),
            (self.hash, bool(self._values(frozen))),
            (self.sigma, bool(self._values(sigma))),
        ):
            score.false_alarms += alarm
            score.silent += not alarm

    def _fault(self, case: Case, job: str) -> None:
        end = case.injected + WATCH_SECONDS
        at = f"[{int(WATCH_SECONDS)}s:1s] @ {end:.3f}"
        alerts = f'ALERTS{{alertname=~"{OURS}", {job}, {FIRING}}}'
        times = self._values(f"min_over_time((timestamp({alerts})){at})")
        named = self._ranks(f"count_over_time({alerts}[{int(WATCH_SECONDS)}s] @ {end:.3f})")
        slow = case.kind == "straggler"
        stopped = case.injected if slow or case.kind == "kill" else self._stopped(case, job, end)
        right = named == case.ranks
        if times:
            self.ours.found += 1
            self.ours.seconds.append(min(times) - stopped)
            if not slow and case.kind != "kill":
                late = min(times) - stopped - self._budget(job, end)
                self.after_trigger.append(late)
                self.late.append((late, f"{late:.1f} s after the trigger: {case.kind} ({job})"))
        else:
            self.ours.missed += 1
        self.ours.named += right
        if not right or not times:
            self.wrong.append(
                f"{case.kind}: {sorted(named)} named, not {sorted(case.ranks)} ({job})"
            )
        nobody = not case.ranks
        for score, limit in ((self.timeout, TIMEOUT_SECONDS), (self.heartbeat, HEARTBEAT_SECONDS)):
            score.found += not slow
            score.missed += slow
            score.named += nobody
            if not slow:
                score.seconds.append(
                    limit + (stopped - case.injected if case.kind != "kill" else 0)
                )
        self._hash_and_sigma(case, job, end)

    def _hash_and_sigma(self, case: Case, job: str, end: float) -> None:
        flagged = self._ranks(f"last_over_time(({_frozen(job)})[4s:2s] @ {end:.3f})")
        seconds = int(WATCH_SECONDS)
        sigma = f"rank:rl_stage_beyond_two_sigma:seconds{{{job}}}[{seconds}s] @ {end:.3f}"
        beyond = self._ranks(f"count_over_time({sigma})")
        for score, ranks in ((self.hash, flagged), (self.sigma, beyond)):
            score.found += bool(ranks)
            score.missed += not ranks
            score.named += ranks == case.ranks
        first = f"min_over_time((timestamp({_frozen(job)}))[{seconds}s:1s] @ {end:.3f})"
        self.hash.seconds += [
            min(times) - case.injected for times in [self._values(first)] if times
        ]
        first = f"min_over_time(timestamp(rank:rl_stage_beyond_two_sigma:seconds{{{job}}})"
        first += f"[{seconds}s:1s] @ {end:.3f})"
        self.sigma.seconds += [
            min(times) - case.injected for times in [self._values(first)] if times
        ]

    def _stopped(self, case: Case, job: str, end: float) -> float:
        """When the last live rank stopped to make progress."""
        ages = self._values(f"rank:rl_progress_age:seconds{{{job}}} @ {end:.3f}")
        return end - min(ages) if ages else case.injected

    def _budget(self, job: str, end: float) -> float:
        """The largest among the stages that its ranks are in, for that is what they wait for."""
        open_now = f"rank:rl_progress_age:seconds{{{job}}} @ {end:.3f}"
        budget = f"job_role_stage:rl_stall_budget:seconds{{{job}}} @ {end:.3f}"
        known = f"{budget} and on (job_id, role, stage) ({open_now})"
        return max(self._values(known), default=10.0)

    def _values(self, expression: str) -> list[float]:
        return [found.value for found in self._api.query(expression)]

    def _names(self, expression: str) -> set[str]:
        return {found.labels["alertname"] for found in self._api.query(expression)}

    def _ranks(self, expression: str) -> frozenset[int]:
        found = self._api.query(expression)
        return frozenset(int(one.labels["rank"]) for one in found if "rank" in one.labels)


FIRING = 'alertstate="firing"'


def _frozen(job: str) -> str:
    """Ranks whose CPU time has not changed, which is what a hash of their stat looks at."""
    window = f"rl_rank_cpu_seconds_total{{{job}}}[{HASH_SECONDS}s]"
    whole = f"count_over_time({window}) >= {HASH_SECONDS // 2 - 1}"
    return f"sum by (job_id, rank) (increase({window}) and {whole}) == 0"


def main() -> None:
    """Run all rounds and print the table."""
    with (
        tempfile.TemporaryDirectory(prefix="accuracy-") as directory,
        Lab(Path(directory), NODES) as lab,
    ):
        judge = Judge(lab)
        for number, cases in enumerate(rounds(lab, SEED, ROUNDS)):
            for case in cases:
                judge.judge(case)
            print(f"round {number + 1} of {ROUNDS}: {len(cases)} jobs", flush=True)
            for line in judge.wrong:
                print(f"  wrong so far: {line}", flush=True)
    report(judge)


def report(judge: Judge) -> None:
    """Print the figures."""
    ours = judge.ours
    print(f"seed {SEED}: {ours.found + ours.missed} faults, "
          f"{ours.silent + ours.false_alarms} healthy phases")  # fmt: skip
    print(HEADER)
    for score in (ours, judge.timeout, judge.heartbeat, judge.hash, judge.sigma):
        print(score.row())
    if judge.after_trigger:
        row("trigger to firing alert, p50", percentile(judge.after_trigger, 0.5), "s")
        row("trigger to firing alert, p90", percentile(judge.after_trigger, 0.9), "s", 10.0)
    for line in judge.wrong:
        print(f"wrong: {line}")
    for _, line in sorted(judge.late)[-5:]:
        print(f"slowest: {line}")
