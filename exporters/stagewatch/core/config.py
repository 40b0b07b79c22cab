"""Options declared once as dataclass fields, set by flags, variables or one TOML file.

A field `interval = option(1.0, "...", parse=duration)` of the options of `[node]` becomes the flag
`--interval`, the variable `STAGEWATCH_INTERVAL` and the key `interval` of that table in the file;
options of other commands have the table in their variables, as `STAGEWATCH_CHECK_GPUS` of
`[check]`.  Flags win over variables, variables over the file, the file over the default.

A command calls `add_options` with its dataclasses by table, and `options_of` for each of them.
Other arguments (a directory to write to, an action) stay with argparse.
"""

from __future__ import annotations

import argparse
import difflib
import ipaddress
import math
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar
from urllib.parse import urlsplit

from stagewatch.core.errors import ConfigError

PREFIX = "STAGEWATCH_"
"""The prefix of every variable."""

Parse = Callable[[Any], Any]
"""Converts text or a TOML value. Its docstring says what it accepts; it raises `ValueError` or
`TypeError` for everything else."""


class OptionsClass(Protocol):
    """A dataclass whose fields are made by `option`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=OptionsClass)


def option(
    default: Any,
    help: str,
    *,
    parse: Parse | None = None,
    env: str | None = None,
    flag: str | None = None,
    group: str = "agent",
) -> Any:
    """A dataclass field that can be configured.

    `parse` follows from the type of the default; `env` and `flag` replace the usual names, and `{}`
    stands for that of a flag; `group` is the heading in an agent's help.
    """
    if parse is None:
        parse = path if isinstance(default, Path) else _BY_TYPE[type(default)]
    metadata = {"help": help, "parse": parse, "env": env, "flag": flag, "group": group}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Setting:
    """One configurable value; `key` is its dotted path in the command's table."""

    key: str
    default: Any
    parse: Parse
    help: str
    env: str
    flag: str
    group: str = "agent"

    @property
    def attribute(self) -> str:
        """The name under which argparse stores the flag."""
        return "setting:" + self.flag

    def show(self, value: Any) -> str:
        """A value of this setting as a person would write it."""
        if value is None:
            return ""
        if type(value) is float and self.parse is not duration:
            return f"{value:g}"
        return show_size(value) if self.parse is size else show(value)


def settings_of(
    options: type[OptionsClass], prefix: str = "", *, env: str = PREFIX, short: bool = False
) -> Iterator[Setting]:
    """The settings that a dataclass of options declares; `short` flags have no prefix."""
    for item in fields(options):
        key = prefix + item.name
        yield Setting(
            key,
            item.default if item.default is not MISSING else None,
            item.metadata["parse"],
            item.metadata["help"],
            item.metadata["env"] or env + re.sub(r"\W", "_", key).upper(),
            (item.metadata["flag"] or "--{}").format(
                (item.name if short else key).replace("_", "-")
            ),
            item.metadata["group"],
        )


def fill(options: type[T], values: Mapping[str, object], prefix: str = "") -> T:
    """An instance of a dataclass of options, from resolved values."""
    make: Callable[..., T] = options
    return make(**{item.name: values[prefix + item.name] for item in fields(options)})


def add_options(
    parser: argparse.ArgumentParser,
    tables: Mapping[str, type[OptionsClass]],
    *,
    without: Collection[str] = (),
) -> None:
    """Adds `--config` and the flags of some dataclasses, by their table in the file.

    Settings in `without`, such as `prometheus.url`, get no flag: the file and variables set them.
    """
    add_config_flag(parser, *tables)
    for table, options in tables.items():
        settings = _table_settings(options, table)
        chosen = [item for item in settings if f"{table}.{item.key}" not in without]
        add_flags(parser.add_argument_group(f"[{table}]"), chosen)


def options_of(
    arguments: argparse.Namespace,
    options: type[T],
    table: str,
    environ: Mapping[str, str] | None = None,
) -> T:
    """The options of one table; an empty variable counts as unset. Raises `ConfigError`."""
    environ = os.environ if environ is None else environ
    given = {name: value for name, value in environ.items() if value}
    return fill(options, values_of(arguments, _table_settings(options, table), table, given))


def _table_settings(options: type[OptionsClass], table: str) -> tuple[Setting, ...]:
    env = PREFIX + re.sub(r"\W", "_", table).upper() + "_"
    return tuple(settings_of(options, env=env))


def add_config_flag(parser: argparse.ArgumentParser, *tables: str) -> None:
    """Adds `--config`; its help names the tables that the command reads."""
    names = " and ".join(f"[{table}]" for table in tables)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=os.environ.get("STAGEWATCH_CONFIG"),
        help=f"TOML file with {'tables' if tables[1:] else 'a table'} {names} [STAGEWATCH_CONFIG]",
    )


def add_flags(parser: argparse._ArgumentGroup, settings: Iterable[Setting]) -> None:
    """Add a flag for each setting; its help names the default and the variable."""
    for setting in settings:
        shown = setting.show(setting.default)
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
            metavar = setting.flag.rsplit(".", 1)[-1].lstrip("-").replace("-", "_").upper()
            parser.add_argument(setting.flag, dest=setting.attribute, metavar=metavar, help=help)


def values_of(
    arguments: argparse.Namespace,
    settings: Iterable[Setting],
    table: str,
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """The values of settings that share a table, by key.  Raises `ConfigError`."""
    file = Path(arguments.config) if arguments.config else None
    return resolve(
        settings,
        flags=vars(arguments),
        environ=environ,
        file=read_file(file, table) if file else {},
        where=f"{file} [{table}]",
    )


def read_file(file: Path, table: str) -> dict[str, Any]:
    """A table of a TOML file, such as `node` or `report.fault`, flattened to dotted keys."""
    content: Mapping[str, Any] = tables(file, table)
    parent = ""
    for name in table.split("."):
        close = difflib.get_close_matches(name, content, 1)
        if name not in content and close:
            meant = f"did you mean [{parent}{name}]?"
            raise ConfigError(f"{file}: unknown table [{parent}{close[0]}]; {meant}")
        for key, value in content.items():
            if not isinstance(value, dict):
                raise ConfigError(f"{file}: {key} = {value!r}: must stand in a table, [{table}]")
        content = content.get(name, {})
        parent += f"{name}."
    return dict(_flatten(content))


def tables(file: Path, table: str) -> dict[str, dict[str, Any]]:
    """All tables of a TOML file, by name; error messages mention `table`."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {file}: {error.strerror}") from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # imported here, so that a command without a file does without the package
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"--config {file}: not valid TOML: {error}") from error
    for key, value in content.items():
        if not isinstance(value, dict):
            raise ConfigError(f"{file}: {key} = {value!r}: must stand in a table, [{table}]")
    return content


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


def text(value: Any) -> str:
    """a string"""
    if not isinstance(value, str):
        raise ValueError
    return value


def path(value: Any) -> Path:
    """a path"""
    return Path(text(value))


def absolute_path(value: Any) -> Path:
    """an absolute path"""
    if not (found := path(value)).is_absolute():
        raise ValueError
    return found


def existing_directory(value: Any) -> Path:
    """a directory that exists"""
    found = path(value)
    try:
        if not stat.S_ISDIR(found.stat().st_mode):
            raise ValueError
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError from error
    except OSError:
        pass  # whoever reads it says why it cannot be
    return found


def http_url(value: Any) -> str:
    """http://HOST:PORT or https://HOST:PORT, or empty"""
    parts = urlsplit(text(value))
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError
    if parts.port == 0:  # which raises for what is no port at all
        raise ValueError
    return text(value)


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


def moment(value: Any) -> float:
    """a time such as 2026-11-21T14:30:00Z (without a zone: UTC), or Unix seconds"""
    if isinstance(value, bool):
        raise ValueError
    if re.fullmatch(r"\d+(\.\d+)?", str(value)):
        return datetime.fromtimestamp(float(value), timezone.utc).timestamp()  # it has its limits
    when = datetime.fromisoformat(text(value).strip().replace("Z", "+00:00"))
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def size(value: Any) -> int:
    """a size such as 4096, 64KiB, 16MiB or 1GiB (a plain number is bytes)"""
    if isinstance(value, bool):
        raise ValueError
    match = re.fullmatch(r"(\d{1,15})\s*(?:([KMGT])iB)?", str(value).strip())
    if not match:
        raise ValueError
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


def address(value: Any) -> tuple[str, int]:
    """HOST:PORT, or :PORT for every interface, [IPV6]:PORT for IPv6"""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/\s]*):(\d{1,5})", text(value).strip())
    if not match or int(match[2]) > 65535:
        raise ValueError
    if match[1].startswith("["):
        ipaddress.IPv6Address(match[1].strip("[]"))
    return match[1].strip("[]"), int(match[2])


def listing(each: Parse) -> Parse:
    """Parses a list: a TOML array, or one string with commas."""

    def parse(value: Any) -> tuple[Any, ...]:
        items = value if isinstance(value, list) else text(value).split(",")
        stripped = (item.strip() if isinstance(item, str) else item for item in items)
        return tuple(each(item) for item in stripped if item != "")

    parse.__doc__ = f"a list (an array, or separated by commas), each {each.__doc__}"
    return parse


def number(value: Any) -> float:
    """a number above zero"""
    if isinstance(value, bool) or not 0 < float(value) < math.inf:
        raise ValueError
    return float(value)


def one_of(*names: str) -> Parse:
    """Parses one of some words."""

    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    parse.__doc__ = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return parse


_BY_TYPE: dict[type, Parse] = {bool: boolean, int: integer, float: duration, str: text}

_DURATION_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def show(value: Any) -> str:
    """A value as a person would write it in the file or on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _show_duration(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        return f"[{value[0]}]:{value[1]}" if ":" in value[0] else f"{value[0]}:{value[1]}"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def show_size(amount: int) -> str:
    """A number of bytes in the largest unit that divides it."""
    power = max(power for power in range(5) if amount % (1 << 10 * power) == 0)
    return f"{amount >> 10 * power}{('', 'KiB', 'MiB', 'GiB', 'TiB')[power]}" if amount else "0"


def _show_duration(seconds: float) -> str:
    """A duration in the largest unit that divides it, else in seconds."""
    for length, unit in _DURATION_UNITS:
        if seconds and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
