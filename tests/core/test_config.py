"""Configuration: who wins, and how what is not accepted is refused."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.config import (
    add_flags,
    add_options,
    address,
    fill,
    listing,
    number,
    one_of,
    option,
    options_of,
    resolve,
    settings_of,
    text,
)
from stagewatch.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Options:
    listen: tuple[str, int] = option(("127.0.0.1", 9947), "address to serve on", parse=address)
    record_dir: Path = option(Path("/run/ranks"), "directory", env="STAGEWATCH_DIR")
    interval: float = option(1.0, "time between two collections")
    limit: int = option(8, "most of something")
    quiet: bool = option(False, "say less (100 % less)")
    mounts: tuple[str, ...] = option((), "mounts to watch", parse=listing(text))


SETTINGS = tuple(settings_of(Options))


def resolved(
    flags: list[str] | None = None,
    environ: dict[str, str] | None = None,
    file: dict[str, Any] | None = None,
) -> Options:
    parser = argparse.ArgumentParser()
    add_flags(parser.add_argument_group("agent"), SETTINGS)
    arguments = vars(parser.parse_args(flags or []))
    values = resolve(SETTINGS, flags=arguments, environ=environ or {}, file=file or {})
    options: Options = fill(Options, values)
    return options


def refused(
    flags: list[str] | None = None,
    environ: dict[str, str] | None = None,
    file: dict[str, Any] | None = None,
) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(flags, environ, file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_flags_win_over_variables_and_variables_over_the_file() -> None:
    file = {"interval": "3s", "limit": 3, "listen": ":3"}
    environ = {"STAGEWATCH_INTERVAL": "2s", "STAGEWATCH_LIMIT": "2"}
    options = resolved(["--interval", "1s"], environ, file)
    assert (options.interval, options.limit, options.listen) == (1.0, 2, ("", 3))


def test_a_switch_can_be_turned_on_and_off_from_everywhere() -> None:
    assert resolved(["--quiet"]).quiet
    assert resolved(environ={"STAGEWATCH_QUIET": "yes"}).quiet
    assert resolved(file={"quiet": True}).quiet
    assert not resolved(["--no-quiet"], {"STAGEWATCH_QUIET": "1"}, {"quiet": True}).quiet


@pytest.mark.parametrize(
    ("key", "flag", "given", "accepted"),
    [
        ("listen", "--listen", "9947", "HOST:PORT, or :PORT"),
        ("listen", "--listen", "[::zz]:80", "[IPV6]:PORT"),
        ("interval", "--interval", "soon", "a duration above zero such as 500ms, 1s, 5m or 2h"),
        ("limit", "--limit", "many", "a whole number that is not negative"),
    ],
)
def test_a_bad_value_names_where_it_was_set_the_value_and_what_is_accepted(
    key: str, flag: str, given: str, accepted: str
) -> None:
    variable = f"STAGEWATCH_{key.upper()}"
    for message, place in (
        (refused([f"{flag}={given}"]), flag),
        (refused(environ={variable: given}), variable),
        (refused(file={key: given}), f"the file: {key}"),
    ):
        assert message.startswith(f"{place} = {given!r}: must be ")
        assert accepted in message


@pytest.mark.parametrize(
    ("key", "value"),
    [("interval", True), ("limit", 1.5), ("quiet", 1), ("listen", 9947), ("mounts", 7)],
)
def test_a_value_of_another_type_in_the_file_is_refused(key: str, value: Any) -> None:
    assert refused(file={key: value}).startswith(f"the file: {key} = {value!r}: must be ")


def test_an_unknown_key_is_refused_with_the_one_that_was_meant() -> None:
    assert refused(file={"intervall": 1}) == (
        "the file: unknown key intervall; did you mean interval?"
    )
    assert refused(file={"zzz": 1}) == "the file: unknown key zzz"


@dataclass(frozen=True, slots=True)
class Story:
    """Options of an action of a command."""

    job: str = option("", "which job")
    url: str = option("http://a", "which server", flag="--server")
    days: float = option(31.0, "how far back", parse=number)
    form: str = option("html", "form of the page", parse=one_of("html", "json"))


def told(
    flags: list[str], file: Path | None = None, environ: dict[str, str] | None = None
) -> tuple[Story, Options]:
    """What a command with an action gets, from two tables."""
    parser = argparse.ArgumentParser()
    actions = parser.add_subparsers(dest="action")
    tell = actions.add_parser("tell")
    add_options(tell, {"report.tell": Story, "shared": Options}, without=("shared.quiet",))
    config = [] if file is None else ["--config", str(file)]
    arguments = parser.parse_args(["tell", *config, *flags])
    story = options_of(arguments, Story, "report.tell", environ or {})
    return story, options_of(arguments, Options, "shared", environ or {})


def test_an_action_has_a_table_of_its_own_and_shares_another(tmp_path: Path) -> None:
    (file := tmp_path / "c.toml").write_text(
        '[report.tell]\njob = "540"\ndays = 2\n[report.other]\nx = 1\n[shared]\nlimit = 3\n'
    )
    environ = {"STAGEWATCH_REPORT_TELL_DAYS": "3", "STAGEWATCH_SHARED_LIMIT": ""}
    story, shared = told(["--server", "http://b"], file, environ)
    assert story == Story(job="540", url="http://b", days=3.0)
    assert shared == Options(limit=3)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[report]\njob = 1\n", "job = 1: must stand in a table, [report.tell]"),
        ("[report.tel]\njob = 1\n", "unknown table [report.tel]; did you mean [report.tell]?"),
        ("[report.tell]\nday = 1\n", "[report.tell]: unknown key day; did you mean days?"),
        ("[report.tell]\nform = 'x'\n", "[report.tell]: form = 'x': must be html or json"),
    ],
)
def test_a_mistake_in_the_table_of_an_action_is_named(
    content: str, problem: str, tmp_path: Path
) -> None:
    (file := tmp_path / "c.toml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        told([], file)
    assert problem in str(caught.value)
