"""Options declared once as dataclass fields, set by flags, variables or one TOML file.

A field `interval = option(1.0, "...", parse=duration)` of a command's dataclass becomes the flag
`--interval`, the variable `STAGEWATCH_INTERVAL` and the key `interval` of the command's table in
the file.  Flags win over variables, variables over the file, the file over the default.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from stagewatch.core.environment_file import mistaken_for_toml
from stagewatch.core.errors import ConfigError
from stagewatch.core.values import (
    Parse,
    absolute_path,
    address,
    boolean,
    duration,
    http_url,
    integer,
    listing,
    path,
    regex,
    show,
    show_size,
    size,
    text,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "Parse",
    "Setting",
    "absolute_path",
    "add_flags",
    "address",
    "boolean",
    "duration",
    "fill",
    "http_url",
    "integer",
    "listing",
    "option",
    "path",
    "read_file",
    "regex",
    "resolve",
    "settings_of",
    "show",
    "size",
    "tables",
    "text",
]


class OptionsClass(Protocol):
    """A dataclass whose fields are made by `option`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=OptionsClass)

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

    def show(self, value: Any) -> str:
        """A value of it as a person would write it."""
        return show_size(value) if self.parse is size and value is not None else show(value)


def settings_of(options: type[OptionsClass], prefix: str = "") -> Iterator[Setting]:
    """The settings that a dataclass of options declares."""
    for item in fields(options):
        key = prefix + item.name
        default = item.default if item.default is not MISSING else None
        name = item.metadata["env"] or "STAGEWATCH_" + re.sub(r"\W", "_", key).upper()
        yield Setting(key, default, item.metadata["parse"], item.metadata["help"], name)


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
            metavar = setting.key.rsplit(".", 1)[-1].upper()
            parser.add_argument(setting.flag, dest=setting.attribute, metavar=metavar, help=help)


def read_file(file: Path, table: str) -> dict[str, Any]:
    """The given table of a TOML file, flattened to dotted keys."""
    content = tables(file, table)
    close = difflib.get_close_matches(table, content, 1)
    if table not in content and close:
        raise ConfigError(f"{file}: unknown table [{close[0]}]; did you mean [{table}]?")
    return dict(_flatten(content.get(table, {})))


def tables(file: Path, table: str) -> dict[str, dict[str, Any]]:
    """All tables of a TOML file, by name; `table` is the one that is wanted."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {file}: {error.strerror}") from error
    hint = mistaken_for_toml(raw, file, table)
    try:
        content: dict[str, Any] = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = hint or f"not valid TOML: {error}"
        raise ConfigError(f"--config {file}: {problem}") from error
    for key, value in content.items():
        if not isinstance(value, dict):
            if hint:
                raise ConfigError(f"--config {file}: {hint}")
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


def fill(options: type[T], values: Mapping[str, object], prefix: str = "") -> T:
    """An instance of a dataclass of options out of resolved values."""
    make: Callable[..., T] = options
    return make(**{item.name: values[prefix + item.name] for item in fields(options)})
