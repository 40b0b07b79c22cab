"""Options declared once as dataclass fields, set by flags, variables or one TOML file.

A field `interval = option(1.0, "...", parse=duration)` of a command's dataclass becomes the flag
`--interval`, the variable `STAGEWATCH_INTERVAL` and the key `interval` of the command's table in
the file.  Flags win over variables, variables over the file, the file over the default.
"""

from __future__ import annotations

import argparse
import difflib
import ipaddress
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from stagewatch.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Parse = Callable[[Any], Any]


def text(value: Any) -> str:
    """a string"""
    if not isinstance(value, str):
        raise ValueError
    return value


def path(value: Any) -> Path:
    """a path"""
    return Path(text(value))


def integer(value: Any) -> int:
    """a whole number that is not negative"""
    if isinstance(value, (bool, float)):
        raise ValueError
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def boolean(value: Any) -> bool:
    """true or false"""
    if isinstance(value, bool):
        return value
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if not isinstance(value, str) or value.lower() not in known:
        raise ValueError
    return known[value.lower()]


def duration(value: Any) -> float:
    """a duration above zero such as 500ms, 1s, 5m or 2h (a plain number is seconds)"""
    if isinstance(value, bool):
        raise ValueError
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", str(value).strip())
    if not match:
        raise ValueError
    seconds = float(match[1]) * {"ms": 1e-3, "m": 60, "h": 3600, "d": 86400}.get(match[2], 1)
    if not 0 < seconds <= 366 * 86400:
        raise ValueError
    return seconds


def size(value: Any) -> int:
    """a size such as 4096, 64KiB, 16MiB or 1GiB (a plain number is bytes)"""
    if isinstance(value, bool):
        raise ValueError
    match = re.fullmatch(r"(\d{1,15})\s*(?:([KMGT])iB)?", str(value).strip())
    if not match:
        raise ValueError
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


def regex(value: Any) -> str:
    """a regular expression"""
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError from error
    return text(value)


def address(value: Any) -> tuple[str, int]:
    """HOST:PORT, or :PORT for every interface, [IPV6]:PORT for IPv6"""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/\s]*):(\d{1,5})", text(value).strip())
    if not match or int(match[2]) > 65535:
        raise ValueError
    if match[1].startswith("["):
        ipaddress.IPv6Address(match[1].strip("[]"))
    return match[1].strip("[]"), int(match[2])


def listing(each: Parse) -> Parse:
    """A list of values: a TOML array, or one string with commas."""

    def parse(value: Any) -> tuple[Any, ...]:
        items = value if isinstance(value, list) else text(value).split(",")
        stripped = (item.strip() if isinstance(item, str) else item for item in items)
        return tuple(each(item) for item in stripped if item != "")

    parse.__doc__ = f"a list (an array, or separated by commas), each {each.__doc__}"
    return parse


_BY_TYPE: dict[type, Parse] = {bool: boolean, int: integer, float: duration, str: text}


def option(default: Any, help: str, *, parse: Parse | None = None, env: str | None = None) -> Any:
    """A dataclass field that can be configured.  `parse` follows from the default if not given."""
    if parse is None:
        parse = path if isinstance(default, Path) else _BY_TYPE[type(default)]
    return field(default=default, metadata={"help": help, "parse": parse, "env": env})


@dataclass(frozen=True, slots=True)
class Setting:
    """One configurable value; `key` is its dotted path in the command's table."""

    key: str
    default: Any
    parse: Parse
    help: str
    env: str

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.key.replace("_", "-")

    @property
    def attribute(self) -> str:
        """The attribute argparse stores the flag under."""
        return "setting:" + self.key


def settings_of(options: type[Any], prefix: str = "") -> Iterator[Setting]:
    """The settings that a dataclass of options declares."""
    for item in fields(options):
        key = prefix + item.name
        default = item.default if item.default is not MISSING else None
        name = item.metadata["env"] or "STAGEWATCH_" + re.sub(r"\W", "_", key).upper()
        yield Setting(key, default, item.metadata["parse"], item.metadata["help"], name)


def add_flags(parser: argparse._ArgumentGroup, settings: Iterable[Setting]) -> None:
    """Add a flag for each setting; its help names the default and the variable."""
    for setting in settings:
        shown = show(setting.default)
        help = f"{setting.help} [default: {shown or 'none'}; {setting.env}]".replace("%", "%%")
        if setting.parse is boolean:
            parser.add_argument(
                setting.flag,
                dest=setting.attribute,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=help,
            )
        else:
            metavar = setting.key.rsplit(".", 1)[-1].upper()
            parser.add_argument(setting.flag, dest=setting.attribute, metavar=metavar, help=help)


def show(value: Any) -> str:
    """A value as a person would write it in the file or on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        return f"[{value[0]}]:{value[1]}" if ":" in value[0] else f"{value[0]}:{value[1]}"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def read_file(file: Path, table: str) -> dict[str, Any]:
    """The given table of a TOML file, flattened to dotted keys."""
    try:
        with file.open("rb") as handle:
            content = tomllib.load(handle)
    except OSError as error:
        raise ConfigError(f"--config {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"--config {file}: not valid TOML: {error}") from error
    for key, value in content.items():
        if not isinstance(value, dict):
            raise ConfigError(f"{file}: {key} = {value!r}: must stand in a table, [{table}]")
    close = difflib.get_close_matches(table, content, 1)
    if table not in content and close:
        raise ConfigError(f"{file}: unknown table [{close[0]}]; did you mean [{table}]?")
    return dict(_flatten(content.get(table, {})))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def resolve(
    settings: Iterable[Setting],
    *,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    file: Mapping[str, Any],
    where: str = "the file",
) -> dict[str, Any]:
    """The value of every setting, by key.

    Raises `ConfigError` with the key, the value, where it was set and what is accepted.
    """
    known = {setting.key: setting for setting in settings}
    for key in file:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{where}: unknown key {key}{hint}")
    values = {}
    for key, setting in known.items():
        given = flags.get(setting.attribute)
        if given is not None:
            source, value = setting.flag, given
        elif setting.env in environ:
            source, value = setting.env, environ[setting.env]
        elif key in file:
            source, value = f"{where}: {key}", file[key]
        else:
            values[key] = setting.default
            continue
        try:
            values[key] = setting.parse(value)
        except (ValueError, TypeError) as error:
            accepted = " ".join((setting.parse.__doc__ or "").split()).rstrip(".")
            raise ConfigError(f"{source} = {value!r}: must be {accepted}") from error
    return values


def fill(options: type[Any], values: Mapping[str, Any], prefix: str = "") -> Any:
    """An instance of a dataclass of options out of resolved values."""
    return options(**{item.name: values[prefix + item.name] for item in fields(options)})
