"""Just enough HTML building that nothing reaches the page unescaped, and values for people."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Literal

MAX_TEXT = 60
"""Longest text from outside shown in full, in characters; the rest is in its tooltip."""

MAX_TOOLTIP = 400

Tone = Literal["good", "warn", "bad", "plain"]


class Markup(str):
    """Text that already is HTML; every other string is escaped where it enters the page."""

    __slots__ = ()


Content = str | int | None


def escaped(value: Content) -> Markup:
    """HTML for a value; characters that do not print or that reorder text are replaced."""
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    if not text.isprintable():
        text = "".join(
            [char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text]
        )
    return Markup(html.escape(text))


def tag(name: str, *children: Content, **attributes: Content) -> Markup:
    """An element; a trailing underscore in an attribute's name is dropped, others become `-`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[Content], separator: str = "") -> Markup:
    """Parts after one another, each escaped unless it is markup."""
    return Markup(escaped(separator).join([escaped(part) for part in parts]))


def foreign(text: str | None, limit: int = MAX_TEXT) -> Markup | None:
    """Text that somebody else wrote: cut, and kept from reordering what stands around it."""
    if not text:
        return None
    if len(text) <= limit:
        return tag("bdi", text)
    return tag("bdi", text[: limit - 1] + "…", title=text[:MAX_TOOLTIP])


def chip(text: str, tone: str) -> Markup:
    """A short word on a coloured ground."""
    return tag("span", text, class_=f"chip {tone}")


def ago(seconds: float) -> Markup:
    """How long something is past; narrow screens drop the word."""
    return join((duration(seconds), tag("span", " ago", class_="ago")))


def bar(share: float | None, tone: Tone, text: Content) -> Markup:
    """A bar beneath its value, sized by an attribute, since the page allows no inline styles."""
    value = tag("span", text, class_="reading")
    if share is None:
        return value
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    drawn = (
        f'<svg class="bar {tone}" viewBox="0 0 100 1" preserveAspectRatio="none" '
        f'aria-hidden="true"><rect width="{width}" height="1"/></svg>'
    )
    return Markup(value + drawn)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under their headings; the first column names the row."""

    headings: Sequence[str]
    numeric: frozenset[str] = field(default_factory=frozenset)
    """Headings of columns that are set flush right."""

    def render(self, rows: Iterable[Sequence[Content]]) -> Markup:
        """The table; cells repeat their heading, which narrow screens show beside the value."""
        head = join(
            tag("th", name, scope="col", class_="number" if name in self.numeric else None)
            for name in self.headings
        )
        body = join(tag("tr", join(self._cells(row))) for row in rows)
        return tag(
            "div", tag("table", tag("thead", tag("tr", head)), tag("tbody", body)), class_="scroll"
        )

    def _cells(self, row: Sequence[Content]) -> Iterable[Markup]:
        for position, (name, value) in enumerate(zip(self.headings, row, strict=True)):
            number = "number" if name in self.numeric else None
            shown = value if value is not None else tag("span", "–", class_="none")
            if position == 0:
                yield tag("th", shown, scope="row", class_=number, data_label=name)
            else:
                yield tag("td", tag("div", shown), class_=number, data_label=name)


def duration(seconds: float | None) -> str | None:
    """A length of time, to two units: `0.3 s`, `48 s`, `6 min 52 s`, `3 h 5 min`, `2 d 4 h`."""
    if seconds is None:
        return None
    if seconds < 0.001:
        return "0 s" if seconds <= 0 else "< 1 ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {name}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def size(amount: float | None) -> str | None:
    """An amount of memory in binary units."""
    if amount is None:
        return None
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit in ("B", "KiB", "MiB") else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError


def percent(ratio: float | None) -> str | None:
    """A ratio as a percentage."""
    return None if ratio is None else f"{100 * ratio:.0f} %"


def moment(timestamp: float | None) -> str | None:
    """A Unix time as a date and time in UTC."""
    if timestamp is None:
        return None
    try:
        return datetime.fromtimestamp(timestamp, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # other users can write what this is read from
        return None


def counted(number: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
