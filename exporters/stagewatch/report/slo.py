"""A service level objective and its error budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slo:
    """All times in seconds.  `verdict` is met, missed or undecided.

    Undecided: it hangs on time in which nothing was seen, or no job was seen at all.
    """

    objective: float
    budget: float
    downtime: float
    unseen: float
    availability: float | None
    verdict: str

    @property
    def left(self) -> float:
        """What is left of the budget; negative when it is overspent."""
        return self.budget - self.downtime

    @property
    def spent(self) -> float:
        """Share of the budget."""
        return self.downtime / self.budget if self.budget else float("inf")


def judge(
    objective: float,
    budget_period: float,
    period: float,
    downtime: float,
    unseen: float,
    *,
    seen: bool,
) -> Slo:
    """The budget is of `budget_period` (a whole month), availability of the `period` looked at."""
    budget = (1 - objective) * budget_period
    looked_at = period - unseen
    if downtime > budget:
        verdict = "missed"
    elif not seen or downtime + unseen > budget:
        verdict = "undecided"
    else:
        verdict = "met"
    availability = max(0.0, 1 - downtime / looked_at) if seen and looked_at > 0 else None
    return Slo(objective, budget, downtime, unseen, availability, verdict)
