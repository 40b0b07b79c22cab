"""Periods, times and numbers, as a person writes and reads them."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from stagewatch.core import config, words
from stagewatch.core.config import duration, option
from stagewatch.core.errors import ConfigError

NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` to `end`, Unix seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PeriodOptions:
    """Options of reports on a period."""

    start: str = option(
        "",
        "beginning, as 2026-11-21T14:30:00Z, or 12h, which is 12 hours ago; 24 hours before the "
        "end if empty",
        flag="--from",
    )
    end: str = option("", "end, likewise: from 12h to 2h are ten hours; now if empty", flag="--to")
    month: str = option("", "a whole month in UTC instead, as 2026-11")

    def periods(self) -> tuple[Period, Period]:
        """The period to look at, which ends now at the latest, and the whole month or the same
        period.

        Raises `ConfigError`.
        """
        now = time.time()
        if self.month:
            if self.start or self.end:
                raise ConfigError("--month and --from or --to exclude each other")
            whole = month(self.month)
            if whole.start >= now:
                raise ConfigError(f"--month {self.month} has not begun")
            return Period(whole.start, min(whole.end, now)), whole
        end = min(now, _when(self.end, "--to", now)) if self.end else now
        start = _when(self.start, "--from", now) if self.start else end - 86400
        period = between(start, end, "--from and --to")
        return period, period


def _when(text: str, flag: str, now: float) -> float:
    """A time, or a duration ago."""
    if text[-1:] == "Z" or not text[-1:].isalpha():
        return moment(text, flag)
    try:
        return now - duration(text)
    except ValueError as error:
        raise ConfigError(f"{flag} {text!r}: must be a time or a duration such as 24h") from error


def moment(text: str, flag: str) -> float:
    """Unix seconds of `2026-11-21T14:30:00Z` (without a zone: UTC) or of a plain number."""
    try:
        return config.moment(text)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{flag} {text!r}: must be a time such as 2026-11-21T14:30:00Z, or Unix seconds"
        ) from error


def between(start: float, end: float, flag: str) -> Period:
    """A period that has a length.  Raises `ConfigError`."""
    if end <= start:
        raise ConfigError(f"{flag}: the end ({iso(end)}) must be after the start ({iso(start)})")
    return Period(start, end)


def baseline_period(text: str, injected: float) -> Period:
    """`START..END`, or `10m-before`: that long, up to the injection."""
    start, dots, end = text.partition("..")
    if dots:
        period = between(moment(start, "--baseline"), moment(end, "--baseline"), "--baseline")
        if period.end > injected:
            raise ConfigError(f"--baseline: must end before the injection, {iso(injected)}")
        return period
    try:
        length, before, rest = text.partition("-before")
        if not before or rest:
            raise ValueError(text)
        return Period(injected - duration(length), injected)
    except ValueError as error:
        raise ConfigError(
            f"--baseline {text!r}: must be such as 10m-before, or START..END"
        ) from error


def month(text: str) -> Period:
    """A month in UTC, such as `2026-11`."""
    match = re.fullmatch(r"(\d{4})-(\d{2})", text)
    if not match or not 1 <= int(match[2]) <= 12 or int(match[1]) < 1970:
        raise ConfigError(f"--month {text!r}: must be such as 2026-11")
    first = datetime(int(match[1]), int(match[2]), 1, tzinfo=timezone.utc)
    days = calendar.monthrange(first.year, first.month)[1]
    return Period(first.timestamp(), first.timestamp() + days * 86400)


def month_words(period: Period) -> str:
    """The month that begins a period: `November 2026`."""
    first = datetime.fromtimestamp(period.start, timezone.utc)
    return f"{calendar.month_name[first.month]} {first.year}"


def union(periods: Iterable[Period]) -> list[Period]:
    """The periods without overlaps."""
    merged: list[Period] = []
    for each in sorted(periods, key=lambda period: period.start):
        if merged and each.start <= merged[-1].end:
            merged[-1] = Period(merged[-1].start, max(merged[-1].end, each.end))
        else:
            merged.append(each)
    return merged


def iso(when: float) -> str:
    """UTC, to the second."""
    return datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def minute(when: float) -> str:
    """Day and time, UTC, to the minute: `2026-11-21 14:30`."""
    return iso(when)[:16].replace("T", " ")


def date(when: float) -> str:
    """The day, UTC."""
    return iso(when)[:10]


def clock(when: float) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(when, timezone.utc).strftime("%H:%M:%S")


def span(seconds: float | None) -> str:
    """A length of time; below two minutes to a tenth of a second, as delays are compared."""
    if seconds is None:
        return NOT_SEEN
    short = abs(seconds) < 120
    return f"{seconds:.1f} s".replace("-", "−") if short else words.duration(seconds)


def share(value: float | None) -> str:
    """A share in percent, with enough digits to distinguish 99.9 from 99.99 %."""
    if value is None:
        return NOT_SEEN
    return "100 %" if value == 1 else f"{100 * min(value, 0.99999):.3f} %"


def portion(value: float | None) -> str:
    """A share in percent, as one says it."""
    if value is None:
        return "–"
    percent = 100 * value
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent >= 99.95 or not percent else f"{percent:.1f} %"


def amount(value: float | None, unit: str = "") -> str:
    """A number of things in full, with commas between thousands, and its unit."""
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 100 or not value else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def number(value: float | None, unit: str = "") -> str:
    """A value with its unit, in few digits."""
    if value is None:
        return "–"
    if unit in ("B", "B/s"):
        for size, prefix in ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
            if abs(value) >= size:
                return f"{value / size:.3g} {prefix}{unit}"
        return f"{value:.3g} {unit}"
    if unit == "ratio":
        return f"{100 * value:.3g} %"
    if unit == "s" and 0 < abs(value) < 0.9995e-3:  # what rounds to 1000 has the next unit
        return f"{value * 1e6:.3g} µs"
    if unit == "s" and 0 < abs(value) < 0.9995:
        return f"{value * 1000:.3g} ms"
    if 9999.5 <= abs(value) < 999_999.5:  # as %g would show it, with a power of ten
        return f"{value:,.0f} {unit}".rstrip()
    shown = f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    return f"{shown} {unit}".rstrip()
