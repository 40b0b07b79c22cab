"""State that an agent keeps over a restart, in a JSON file that may be damaged later.

A function reads the content and checks every value (`whole`, `real`, `past`, `text`). An unusable
file is set aside, with one log line, and the agent starts afresh: Prometheus expects counters that
restart at 0, but not wrong ones.
"""

from __future__ import annotations

import json
import logging
import math
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

from stagewatch.core.files import write_atomically
from stagewatch.core.words import printable

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BYTES = 256 << 20
MAX_WHOLE = 2**63
MAX_MOMENT = 1e11
"""Seconds since 1970, in the year 5138."""
MAX_TEXT = 4096
MAX_ITEMS = 4096
"""Items of a list that `decode` reads."""

BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What reading a damaged file may raise."""


def parse(data: bytes) -> Any:
    """Parse JSON strictly, without NaN and Infinity.  Raises one of `BROKEN`."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"it has a {constant}")

    return json.loads(data, parse_constant=refuse)


def whole(value: Any) -> int:
    """A count or an id, at least 0.  Raises `ValueError`."""
    if type(value) is not int or not 0 <= value < MAX_WHOLE:
        raise ValueError(f"{value!r:.40} is no whole number")
    return value


def real(value: Any) -> float:
    """A finite number, as a time or a sum.  Raises `ValueError`."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is not a number")
    return float(value)


def moment(value: Any) -> float:
    """A Unix time that a clock may show.  Raises `ValueError`."""
    if not 0 <= (when := real(value)) < MAX_MOMENT:
        raise ValueError(f"{value!r:.40} is no time")
    return when


def past(value: Any) -> float:
    """A Unix time; one that is still to come, as a wrong clock leaves it, is now.

    Else what waits for that time to be over would wait for ever.  Raises `ValueError`.
    """
    return min(moment(value), time.time())


def text(value: Any) -> str:
    """A text that can be a label.  Raises `ValueError`."""
    if type(value) is not str or len(value) > MAX_TEXT or _broken(value):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def _broken(value: str) -> bool:
    """Whether it holds surrogates, which UTF-8 cannot encode."""
    return not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)


def optional(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """A reader that also accepts None."""
    return lambda value: None if value is None else read(value)


def flag(value: Any) -> bool:
    """True or false.  Raises `ValueError`."""
    if type(value) is not bool:
        raise ValueError(f"{value!r:.40} is neither true nor false")
    return value


Moment = Annotated[float, moment]
Past = Annotated[float, past]
"""Times in a dataclass that `decode` reads by `moment` and by `past`."""

_READERS: dict[Any, Callable[[Any], Any]] = {int: whole, float: real, str: text, bool: flag}


def decode(kind: Any, value: Any) -> Any:
    """A value of a type, from JSON: a dataclass with all of its fields, by name or in their order,
    a named tuple, an enumeration, a tuple, a list, a set, a `Counter`, a mapping, `T | None`, what
    is `Annotated` with its reader, or what `whole`, `real`, `text` and `flag` read.

    Raises one of `BROKEN`.
    """
    return _reader(kind)(value)


@cache  # to look at a type takes longer than to read a value of it
def _reader(kind: Any) -> Callable[[Any], Any]:
    if readers := getattr(kind, "__metadata__", ()):
        return cast("Callable[[Any], Any]", readers[0])
    if (by_name := is_dataclass(kind)) or hasattr(kind, "_fields"):
        parts = {name: _reader(hint) for name, hint in hints_of(kind).items()}

        def with_fields(value: Any) -> Any:
            if type(value) is list or not by_name:
                value = dict(zip(parts, _of_type(list, value), strict=True))
            return kind(**{name: read(value[name]) for name, read in parts.items()})

        return with_fields
    first, *others = get_args(kind) or (None,)
    if first is None:
        return cast("Callable[[Any], Any]", _READERS.get(kind, kind))
    one, origin = _reader(first), get_origin(kind)
    if origin is list:
        return lambda value: [one(item) for item in _of_type(list, value)]
    if others == [Any]:
        return lambda value: dict(_of_type(dict, value))
    if origin in (Counter, dict, Mapping):
        other = _reader(int if origin is Counter else others[0])

        def mapping(value: Any) -> Any:
            # A list of pairs stands for an object whose keys are no texts.
            pairs = value.items() if type(value) is dict else _of_type(list, value)
            found = {one(key): other(item) for key, item in pairs}
            return Counter(found) if origin is Counter else found

        return mapping
    if origin in (tuple, frozenset):
        fixed = [one, *map(_reader, others)] if others and others != [...] else []

        def items(value: Any) -> Any:
            if type(value) not in (list, tuple) or len(value) > MAX_ITEMS:
                raise ValueError("it is no list, or too long")
            reads = fixed or [one] * len(value)
            return origin(read(item) for read, item in zip(reads, value, strict=True))

        return items
    return lambda value: None if value is None else one(value)


hints_of = cache(partial(get_type_hints, include_extras=True))
"""The types of a class's fields, by their names."""


def _of_type(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise ValueError(f"it is no {kind.__name__}")
    return value


def encode(value: Any) -> Any:
    """JSON out of which `decode` makes the same value."""
    if is_dataclass(value):
        return {each.name: encode(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        pairs = [(key, encode(item)) for key, item in value.items()]
        return dict(pairs) if all(isinstance(key, str) for key in value) else pairs
    return [encode(item) for item in value] if isinstance(value, (list, tuple)) else value


class StateFile:
    """A JSON object in a file; `ok` is false after a failure, which is logged once.

    `lost` says what happens at a restart without the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        lost: str = "counters begin at 0",
        make_directory: bool = False,
        durable: bool = True,
    ) -> None:
        self.path = path
        self.ok = True
        self._lost = lost
        self._make_directory = make_directory
        self._durable = durable
        self._said = ""

    def load(self, read: Callable[[Any], T]) -> T | None:
        """The result of `read` for the content; `None` without a usable file."""
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is not a file")
            if status.st_size > MAX_BYTES:
                raise ValueError("it is too large")
            return read(parse(self.path.read_bytes()))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._failed(f"cannot be read ({error.strerror}); {self._lost}")
        except BROKEN as error:
            self._set_aside(f"{type(error).__name__}: {error}")
        return None

    def save(self, content: Mapping[str, Any]) -> None:
        """Replace the file."""
        data = json.dumps(content, separators=(",", ":")).encode()
        try:
            if self._make_directory:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, data, durable=self._durable)
        except OSError as error:
            self._failed(f"cannot be written ({error.strerror}); after a restart {self._lost}")
        else:
            self.ok, self._said = True, ""

    def _set_aside(self, why: str) -> None:
        aside = self.path.with_name(self.path.name + ".corrupt")
        try:
            self.path.replace(aside)
        except OSError:
            aside = self.path
        self._failed(f"is not usable: {printable(why, 200)}; kept as {aside.name}, {self._lost}")

    def _failed(self, message: str) -> None:
        self.ok = False
        if message != self._said:
            log.warning("state file %s %s", self.path, message)
            self._said = message
