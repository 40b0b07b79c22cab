"""Periods of time as a person writes them, and times as a person reads them."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import datetime, timezone

from stagewatch.core.config import duration
from stagewatch.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` to `end`, Unix seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start

    def __contains__(self, when: float) -> bool:
        return self.start <= when <= self.end


def moment(text: str, flag: str) -> float:
    """Unix seconds of `2026-11-21T14:30:00Z` (without a zone: UTC) or of a plain number."""
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text)
        when = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError) as error:
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
    if text.endswith("-before"):
        try:
            return Period(injected - duration(text.removesuffix("-before")), injected)
        except ValueError as error:
            raise ConfigError(
                f"--baseline {text!r}: must be such as 10m-before, or START..END"
            ) from error
    start, dots, end = text.partition("..")
    if not dots:
        raise ConfigError(f"--baseline {text!r}: must be such as 10m-before, or START..END")
    found = between(moment(start, "--baseline"), moment(end, "--baseline"), "--baseline")
    if found.end > injected:
        raise ConfigError(f"--baseline: must end before the injection, {iso(injected)}")
    return found


def month(text: str) -> Period:
    """A month in UTC, such as `2026-11`."""
    match = re.fullmatch(r"(\d{4})-(\d{2})", text)
    if not match or not 1 <= int(match[2]) <= 12 or int(match[1]) < 1970:
        raise ConfigError(f"--month {text!r}: must be such as 2026-11")
    first = datetime(int(match[1]), int(match[2]), 1, tzinfo=timezone.utc)
    days = calendar.monthrange(first.year, first.month)[1]
    return Period(first.timestamp(), first.timestamp() + days * 86400)


def iso(when: float) -> str:
    """UTC, to the second."""
    return datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(when: float) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(when, timezone.utc).strftime("%H:%M:%S")


def span(seconds: float | None) -> str:
    """How long, for a person; what is not known was not seen."""
    if seconds is None:
        return "not seen"
    sign, seconds = ("−" if seconds < 0 else ""), abs(seconds)
    if seconds < 120:
        return f"{sign}{seconds:.1f} s"
    if seconds < 7200:
        return f"{sign}{seconds / 60:.1f} min"
    return f"{sign}{seconds / 3600:.1f} h"
