"""Healthy jobs of a day, as data: what they do again and again, and how they pause.

Rates and lengths that a report gives are named beside it; the rest are our own guesses of the
usual.  Every job varies all lengths by a factor of its own, half of the jobs give their saves and
evaluations a stage, and half of those without several stages mark by heartbeats alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.bench.replay_series import DAY, RANKS, Job

BALANCED, UNEVEN = 0.005, 0.12
"""How much the ranks of one stage differ within a step: 0.5 % at the median with equal sequences, 9
to 14 % with uneven ones, in two real jobs (ST and SE of arXiv:2505.05713)."""


@dataclass(frozen=True, eq=False)
class Work:
    """A part of every step: seconds are log-normal over steps (sigma) and over ranks (spread)."""

    seconds: float
    sigma: float = 0.05
    spread: float = BALANCED
    stage: str = "train"
    manner: str = "gpu"
    beat: float = 0.0


@dataclass(frozen=True, eq=False)
class Pause:
    """What happens between two steps: at regular times (every), or at random ones (a_day)."""

    why: str
    seconds: float
    sigma: float
    manner: str
    every: float = 0.0
    a_day: float = 0.0
    who: str = "all"
    """Or "first", or "one": the others wait in a collective."""
    stage: str = ""
    """The stage that jobs which declare it put it in."""
    inside: str = ""
    """The stage of the loop that it is part of, in jobs that tell of stages."""
    most: float = math.inf
    """Seconds, where something ends it."""
    fades: bool = False
    """Ten times as frequent in the first hour, as shapes are met for the first time."""


@dataclass(frozen=True)
class Shape:
    """A kind of job."""

    source: str
    step: tuple[Work, ...]
    pauses: tuple[Pause, ...] = ()
    start: tuple[Pause, ...] = ()
    restarts_a_day: float = 0.0
    down: float = 240.0
    """Seconds without a process at a restart, or between two jobs."""
    life: float = 10.0 * DAY
    """Seconds after which it ends properly, and another one begins."""
    growth: tuple[float, ...] = (1.0,)
    """Factors of all steps, in equal parts of the job's days."""


LOAD = Pause("loads the checkpoint", 60, 0.5, "reads", stage="init")
COMPILE = Pause("compiles before the first step", 45, 0.5, "compiles", stage="init")

SHAPES = {
    # 419 interruptions in 54 days; validation and saves in between.  A save every 30 minutes:
    # Acme, arXiv:2403.07648.  Garbage is collected at different times: MegaScale, arXiv:2402.15627.
    "pretraining": Shape(
        "Llama 3, arXiv:2407.21783",
        (Work(6, 0.03),),
        (
            Pause("saves", 15, 0.6, "saves", every=1800, stage="checkpoint"),
            Pause("validates", 60, 0.3, "gpu", every=3600, stage="eval"),
            Pause("collects garbage", 1, 0.7, "python", a_day=100, who="one"),
            # NCCL gives up after 7 times 4 s: NCCL_IB_RETRY_CNT, NCCL_IB_TIMEOUT.
            Pause("a link retransmits", 8, 0.8, "link", a_day=6, most=30),
        ),
        (LOAD, COMPILE),
        restarts_a_day=7.8,
    ),
    # 384 GPUs, 2,048 x 2,048 tokens: 100 s a step at the 150 TFLOPS reported; saves of 2.3 TB.
    "long steps": Shape(
        "BLOOM, arXiv:2211.05100",
        (Work(100, 0.02),),
        (
            Pause("saves", 40, 0.3, "saves", every=3 * 3600, stage="checkpoint"),
            Pause("validates", 600, 0.2, "gpu", every=8 * 3600, stage="eval"),
            Pause("a lost request", 60, 0.1, "waits for storage", a_day=1, who="one", most=60),
        ),
        (Pause("loads the checkpoint", 180, 0.5, "reads", stage="init"), COMPILE),
        restarts_a_day=1.5,
        down=660.0,  # median interval of retries: arXiv:2605.09370
    ),
    # Rank 0 saves or uploads while the others wait: llm-foundry 733; evaluations: Acme.
    "fine-tuning": Shape(
        "Acme, arXiv:2403.07648",
        (Work(3, 0.15, UNEVEN),),
        (
            Pause("evaluates", 60, 0.4, "gpu", every=1500, stage="eval"),
            Pause("rank 0 saves", 25, 0.5, "saves", every=1501, who="first", stage="checkpoint"),
            Pause("rank 0 uploads", 40, 0.6, "reads", every=6000, who="first", stage="checkpoint"),
        ),
        (LOAD, COMPILE),
        life=5 * 3600.0,
    ),
    # Rollouts take 70 % of the time and have a long tail; answers grow while the model learns.
    "synchronous RL": Shape(
        "RollPacker, arXiv:2509.21009",
        (
            Work(70, 0.25, 0.35, "rollout"),
            Work(4, 0.8, 0.3, "reward", "children"),
            Work(5, 0.1, UNEVEN, "logprob"),
            Work(20, 0.1, UNEVEN, "train", beat=2.5),
            Work(3, 0.4, 0.1, "weights_update"),
        ),
        (
            Pause("evaluates by rollouts", 200, 0.2, "gpu", every=5400, stage="eval"),
            Pause("saves", 30, 0.5, "saves", every=7200, stage="checkpoint"),
            Pause("a verifier is slow", 40, 0.8, "children", a_day=6, who="one", most=300),
        ),
        (LOAD, Pause("the engines start", 70, 0.4, "children", stage="init")),
        growth=(1.0, 1.3, 1.6, 2.0),
    ),
    # Trainers idle until a service has enough rollouts: trl 3094, verl 1696.
    "RL from a service": Shape(
        "AReaL, arXiv:2505.24298",
        (Work(8, 0.2, UNEVEN), Work(2, 0.5, 0.1, "weights_update")),
        (
            Pause("waits for rollouts", 15, 1.0, "asleep", every=60),
            Pause("saves", 20, 0.5, "saves", every=3600, stage="checkpoint"),
        ),
        (LOAD, COMPILE),
    ),
    # Stalls of data by storage and by preparation; epochs begin with new workers: accelerate 314.
    "vision": Shape(
        "data stalls, arXiv:2007.06775",
        (Work(2, 0.2, 0.1),),
        (
            Pause("shuffles between epochs", 20, 0.5, "children", every=1500),
            Pause("validates", 45, 0.3, "gpu", every=1501, stage="eval"),
            # A lost request is sent again after 60 s: timeo of nfs(5), read_timeout of botocore.
            Pause("a batch is late", 4, 1.2, "waits for storage", a_day=60, who="one", most=60),
            Pause("all batches are late", 8, 1.0, "asleep", a_day=10, most=60),
            Pause("rank 0 saves", 5, 0.5, "saves", every=1502, who="first", stage="checkpoint"),
        ),
        (Pause("indexes the data set", 40, 0.7, "reads", stage="init"),),
    ),
    # New shapes compile anew, in the process or in workers, on all ranks or on one.
    "compiled": Shape(
        "pytorch 108971",
        (Work(2.5, 0.1, UNEVEN),),
        (
            Pause("compiles a new shape", 30, 0.6, "compiles", a_day=10, fades=True),
            Pause("one rank compiles", 35, 0.5, "compiles", a_day=4, who="one", fades=True),
            Pause("workers compile", 30, 0.6, "children", a_day=4, fades=True),
            Pause("saves", 15, 0.5, "saves", every=3600, stage="checkpoint"),
        ),
        (LOAD, Pause("compiles the model", 150, 0.5, "compiles")),
    ),
    # Batches and contexts grow in steps, as Llama 3's do.
    "curriculum": Shape(
        "sequence length warm-up, arXiv:2108.06084",
        (Work(2, 0.05),),
        (
            Pause("saves", 15, 0.5, "saves", every=1800, stage="checkpoint"),
            Pause("prepares longer sequences", 30, 0.5, "children", every=DAY / 6),
        ),
        (LOAD, COMPILE),
        growth=(1.0, 2.0, 4.0, 8.0, 12.0, 16.0),
    ),
    # Gang scheduling stops all ranks, and later lets them go on.
    "suspended": Shape(
        "Slurm, gang scheduling",
        (Work(3, 0.1),),
        (
            Pause("suspended", 300, 1.0, "stopped", a_day=4),
            Pause("saves", 15, 0.5, "saves", every=3600, stage="checkpoint"),
        ),
        (LOAD, COMPILE),
    ),
    # Pauses of minutes that no stage tells of, as in jobs that we have seen paged for.
    "undeclared": Shape(
        "our own",
        (Work(3, 0.1),),
        (
            Pause("evaluates inside of train", 150, 0.3, "gpu", every=2400, inside="train"),
            Pause("rank 0 uploads", 120, 0.4, "reads", every=3600, who="first"),
            Pause("rank 0 evaluates on its GPU", 140, 0.3, "gpu", every=5400, who="first"),
        ),
        (LOAD, COMPILE),
        life=6 * 3600.0,
    ),
    # Most jobs are short; one in some ends without a word, by its user or by an error.
    "short jobs": Shape(
        "MLaaS in the wild, NSDI 2022; Delta, arXiv:2503.11901",
        (Work(2, 0.2, 0.1),),
        (Pause("evaluates", 20, 0.6, "gpu", every=600, stage="eval"),),
        (
            Pause("loads", 30, 0.8, "reads", stage="init"),
            Pause("compiles in the first step", 40, 0.6, "compiles"),
        ),
        restarts_a_day=4.0,
        down=120.0,
        life=1500.0,
    ),
}


def _normal(rng: random.Random) -> Iterator[float]:
    """What `rng.gauss(0, 1)` would return again and again, but faster."""
    while True:
        angle = rng.random() * math.tau
        length = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
        yield math.cos(angle) * length
        yield math.sin(angle) * length


def script(shape: Shape, job: Job) -> Callable[[Job], None]:
    """What a job of this shape does until it ends; then another one begins, while there is time."""
    rng, exp, normal = job.random, math.exp, _normal(job.random)
    declares, stages = rng.random() < 0.5, len(shape.step) > 1 or rng.random() < 0.5
    own = {one: rng.lognormvariate(0, 0.3) for one in (*shape.step, *shape.pauses, *shape.start)}

    def pause(job: Job, one: Pause) -> None:
        seconds = min(own[one] * one.seconds * rng.lognormvariate(0, one.sigma), one.most)
        who = {"all": None, "first": 0, "one": rng.randrange(RANKS)}[one.who]
        each = [seconds if who in (None, number) else 0.0 for number in range(RANKS)]
        name = f"{one.why} ({one.manner}{', declared' if declares and one.stage else ''})"
        stage = one.stage if declares else one.inside if stages else ""
        job.pause(name, each, one.manner, stage=stage)

    def absent(job: Job, why: str) -> None:
        before = job.now
        job.absent(shape.down * rng.lognormvariate(0, 0.5))
        job.pauses.append((before, job.now, f"{why}, {job.now - before:.0f} s without a process"))

    def step(job: Job) -> None:
        job.step += 1
        part_of = int(job.now / job.span * len(shape.growth))
        factor = shape.growth[min(part_of, len(shape.growth) - 1)]
        for part in shape.step:
            usual = factor * own[part] * part.seconds * exp(next(normal) * part.sigma)
            job.do(
                [usual * exp(next(normal) * part.spread) for _ in range(RANKS)],
                part.manner,
                stage=part.stage if stages else "",
                beat=part.beat,
                mark=not stages,
            )

    def happens(a_day: float, seconds: float) -> bool:
        drawn = rng.random()
        return a_day > 0 and drawn < -math.expm1(-a_day * seconds / DAY)

    def life(job: Job) -> None:
        job.start()
        for one in shape.start:
            pause(job, one)
        begun, due = job.now, {one: job.now + one.every for one in shape.pauses if one.every}
        end = begun + shape.life * rng.lognormvariate(0, 0.5)
        while job.now < job.span:
            before = job.now
            step(job)
            for one in shape.pauses:
                rate = one.a_day * (10 if one.fades and job.now - begun < 3600 else 1)
                if (one.every and job.now >= due[one]) or happens(rate, job.now - before):
                    pause(job, one)
                    due[one] = job.now + one.every
            if happens(shape.restarts_a_day, job.now - before):
                job.kill()
                return absent(job, "restarts")
            if job.now > end:
                job.end()
                return absent(job, "ends")
        return None

    return life
