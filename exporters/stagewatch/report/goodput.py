"""What the GPUs were paid for over a period: what `report goodput` shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stagewatch.core.config import number, option
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.attempts import Attempt, Job, find_attempts, move_lost
from stagewatch.report.history import Labels
from stagewatch.report.ledger import GROUPS, NOT_OBSERVED, STATES, Key, Ledger, missing, read_ledger
from stagewatch.report.periods import Period, PeriodOptions, minute, month_words

MAX_ROWS = 15
"""The most rows of a table on the page, the largest ones; the others become one row."""

OTHER = "other"
"""Stands for every model without a price of its own."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a GPU-hour by the short name of the model, as in `slurm_node_gpus`."""

    by_model: Mapping[str, float]
    currency: str

    def of(self, model: str) -> float | None:
        """The price of a GPU-hour of a model; None if the site gave none."""
        return self.by_model.get(model, self.by_model.get(OTHER))


def prices(value: object) -> tuple[tuple[str, float], ...]:
    """an amount of money above zero, as 2.50; or one for each model of GPU, as h100=2.50,other=1"""
    if isinstance(value, str) and "=" in value:
        pairs = (each.split("=") for each in value.split(","))
        return tuple((model.strip(), number(amount)) for model, amount in pairs)
    return () if value in ("", None) else ((OTHER, number(value)),)


@dataclass(frozen=True, slots=True)
class GoodputOptions(PeriodOptions):
    """Options of `stagewatch report goodput`."""

    cluster: str = option("", "only this cluster; all if empty")
    price: tuple[tuple[str, float], ...] = option(
        (),
        "what a GPU-hour costs, as 2.50, or by model of GPU, as h100=2.50,a100=1.20,other=1; no "
        "money is shown without",
        parse=prices,
    )
    currency: str = option("USD", "unit of the prices")


@dataclass(frozen=True, slots=True)
class Asked:
    """The request for a report."""

    options: GoodputOptions
    period: Period
    title: str
    when: str
    """The period, as the beginning of a sentence."""

    @property
    def clusters(self) -> Labels:
        """Labels that all series must have."""
        return {"cluster": self.options.cluster} if self.options.cluster else {}

    @property
    def prices(self) -> Prices:
        """What GPU-hours cost."""
        return Prices(dict(self.options.price), self.options.currency)


def asked_of(options: GoodputOptions) -> Asked:
    """The request that options make.  Raises `ConfigError`."""
    period, whole = options.periods()
    if options.month:
        title = month_words(whole)
        if period.end < whole.end:
            title += f" (until {minute(period.end)} UTC)"
        return Asked(options, period, title, f"In {title}")
    title = f"{minute(period.start)} to {minute(period.end)} UTC"
    return Asked(options, period, title, f"From {title}")


def _sums() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass(slots=True)
class Use:
    """What GPUs did, in all or for one owner: GPU-seconds by state."""

    states: defaultdict[str, float] = field(default_factory=_sums)
    cost: float | None = None
    """Money; None if there is no price for any of it."""
    attempts: list[Attempt] = field(default_factory=list)
    owner: Key | None = None
    """For a single job, any of its keys."""

    def add(self, key: Key, seconds: float, prices: Prices) -> None:
        """Add GPU-seconds of a state, and what they cost."""
        self.states[key.state] += seconds
        self.owner = key
        price = prices.of(key.model)
        if price is not None:
            self.cost = (self.cost or 0.0) + price * seconds / 3600

    @property
    def seconds(self) -> float:
        """GPU-seconds in all states."""
        return sum(self.states.values())

    @property
    def groups(self) -> dict[str, float]:
        """GPU-seconds by group of states, for every group."""
        sums = dict.fromkeys(GROUPS, 0.0)
        for state, seconds in self.states.items():
            sums[STATES.get(state, ("unknown", ""))[0]] += seconds
        return sums

    @property
    def observed(self) -> float:
        """GPU-seconds while the rules were evaluated."""
        return self.seconds - self.states.get(NOT_OBSERVED, 0.0)

    @property
    def known(self) -> float:
        """GPU-seconds of jobs whose stages are recorded."""
        without = ("busy", "unused", "unobserved")
        inside = ("productive", "overhead", "standing", "lost")
        return sum(
            seconds
            for state, seconds in self.states.items()
            if STATES.get(state, ("unknown", ""))[0] in inside and state not in without
        )

    @property
    def goodput(self) -> float | None:
        """Productive share of the time whose stages are recorded, without what was lost."""
        return self.groups["productive"] / self.known if self.known else None

    @property
    def training_ratio(self) -> float | None:
        """The effective training time ratio: goodput that also counts the time in which jobs waited
        in the queue to run again, with their GPUs."""
        whole = self.known + sum(each.off for each in self.attempts)
        return self.groups["productive"] / whole if self.known else None

    @property
    def lost(self) -> float:
        """GPU-seconds of work that did not last."""
        return self.groups["lost"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A cluster, its mean number of configured GPUs, and the share of the time observed."""

    cluster: str
    gpus: float
    share: float


@dataclass(frozen=True, slots=True)
class Goodput:
    """The whole report."""

    asked: Asked
    ledger: Ledger
    clusters: Sequence[Seen]
    total: Use
    tables: Mapping[str, Mapping[str, Use]]
    """The use by account, user, partition, model and job, the largest first."""
    attempts: Sequence[Attempt]
    unpriced: float
    """GPU-seconds of models without a price, where there are prices."""

    def cost_of(self, seconds: float) -> float | None:
        """The cost of GPU-seconds at the mean price of those with a price."""
        if self.total.cost is None:
            return None
        return self.total.cost * seconds / (self.total.seconds - self.unpriced)


DIMENSIONS: dict[str, Callable[[Key], str]] = {
    "account": lambda key: key.account,
    "user": lambda key: key.user,
    "partition": lambda key: key.partition,
    "model": lambda key: key.model,
    "job": lambda key: f"{key.cluster}/{key.job_id}",
}
"""The tables, and what the keys of one row have in common."""


def make_goodput(api: PrometheusApi, asked: Asked) -> Goodput:
    """Ask the server.  Raises `StagewatchError`, also where the rules are not loaded."""
    ledger = read_ledger(api, asked.period, asked.clusters)
    if ledger is None:
        raise missing(asked.period)
    attempts = find_attempts(api, ledger, asked.clusters)
    move_lost(ledger, attempts)
    total = _use(asked, ledger.rows.items())
    total.attempts += attempts
    unpriced = sum(
        seconds for key, seconds in ledger.rows.items() if asked.prices.of(key.model) is None
    )
    return Goodput(
        asked=asked,
        ledger=ledger,
        clusters=[
            Seen(name, ledger.gpus(name), ledger.seen(name)) for name in sorted(ledger.observed)
        ],
        total=total,
        tables={name: _table(asked, ledger, attempts, of) for name, of in DIMENSIONS.items()},
        attempts=attempts,
        unpriced=unpriced if asked.prices.by_model else 0.0,
    )


def _use(asked: Asked, rows: Iterable[tuple[Key, float]]) -> Use:
    use = Use()
    for key, seconds in rows:
        if seconds > 0:
            use.add(key, seconds, asked.prices)
    return use


def _table(
    asked: Asked, ledger: Ledger, attempts: Sequence[Attempt], of: Callable[[Key], str]
) -> dict[str, Use]:
    """The use by the value of `of` for each key, the largest first.

    A failed run counts for each model that its job has.
    """
    uses: defaultdict[str, Use] = defaultdict(Use)
    names: defaultdict[Job, set[str]] = defaultdict(set)
    for key, seconds in ledger.rows.items():
        if key.allocated and seconds > 0:
            uses[of(key)].add(key, seconds, asked.prices)
            names[key.cluster, key.job_id].add(of(key))
    for attempt in attempts:
        for name in names[attempt.cluster, attempt.job_id]:
            uses[name].attempts.append(attempt)
    return dict(sorted(uses.items(), key=lambda each: (-each[1].seconds, each[0])))


def largest(uses: Mapping[str, Use]) -> Iterator[tuple[str, Use]]:
    """The rows of a table on the page; the last one sums up all others."""
    names = list(uses)
    shown = names if len(names) <= MAX_ROWS + 1 else names[:MAX_ROWS]
    yield from ((name, uses[name]) for name in shown)
    rest = Use()
    for each in (uses[name] for name in names[len(shown) :]):
        for state, seconds in each.states.items():
            rest.states[state] += seconds
        rest.attempts += each.attempts
        if each.cost is not None:
            rest.cost = (rest.cost or 0.0) + each.cost
    if rest.states:
        yield f"{len(names) - len(shown)} others", rest
