"""Configuration: who wins, and how what is not accepted is refused."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.config import (
    add_flags,
    address,
    fill,
    listing,
    option,
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


def test_without_anything_the_defaults_hold() -> None:
    assert resolved() == Options()


def test_flags_win_over_variables_and_variables_over_the_file() -> None:
    file = {"interval": "3s", "limit": 3, "listen": ":3"}
    environ = {"STAGEWATCH_INTERVAL": "2s", "STAGEWATCH_LIMIT": "2"}
    options = resolved(["--interval", "1s"], environ, file)
    assert (options.interval, options.limit, options.listen) == (1.0, 2, ("", 3))


def test_a_setting_may_have_a_variable_of_another_name() -> None:
    assert resolved(environ={"STAGEWATCH_DIR": "/x"}).record_dir == Path("/x")
    assert resolved(environ={"STAGEWATCH_RECORD_DIR": "/x"}).record_dir == Path("/run/ranks")


def test_a_switch_can_be_turned_on_and_off_from_everywhere() -> None:
    assert resolved(["--quiet"]).quiet
    assert resolved(environ={"STAGEWATCH_QUIET": "yes"}).quiet
    assert resolved(file={"quiet": True}).quiet
    assert not resolved(["--no-quiet"], {"STAGEWATCH_QUIET": "1"}, {"quiet": True}).quiet


@pytest.mark.parametrize(
    ("key", "flag", "given", "accepted"),
    [
        ("listen", "--listen", "9947", "HOST:PORT, or :PORT"),
        ("listen", "--listen", "host:99999", "HOST:PORT"),
        ("listen", "--listen", "[::zz]:80", "[IPV6]:PORT"),
        ("interval", "--interval", "soon", "a duration above zero such as 500ms, 1s, 5m or 2h"),
        ("interval", "--interval", "0", "a duration above zero"),
        ("interval", "--interval", "-1s", "a duration above zero"),
        ("limit", "--limit", "many", "a whole number that is not negative"),
        ("limit", "--limit", "-1", "a whole number that is not negative"),
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
    [
        ("interval", True),
        ("interval", [1]),
        ("limit", 1.5),
        ("limit", True),
        ("limit", [1]),
        ("quiet", 1),
        ("quiet", "perhaps"),
        ("listen", 9947),
        ("record_dir", 7),
        ("mounts", 7),
        ("mounts", [1]),
    ],
)
def test_a_value_of_another_type_in_the_file_is_refused(key: str, value: Any) -> None:
    assert refused(file={key: value}).startswith(f"the file: {key} = {value!r}: must be ")


def test_an_unknown_key_is_refused_with_the_one_that_was_meant() -> None:
    assert refused(file={"intervall": 1}) == (
        "the file: unknown key intervall; did you mean interval?"
    )
    assert refused(file={"zzz": 1}) == "the file: unknown key zzz"


def test_help_shows_default_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser.add_argument_group("agent"), SETTINGS)
    parser.print_help()
    shown = " ".join(capsys.readouterr().out.split())
    assert "[default: 127.0.0.1:9947; STAGEWATCH_LISTEN]" in shown
    assert "[default: 1s; STAGEWATCH_INTERVAL]" in shown
    assert "[default: none; STAGEWATCH_MOUNTS]" in shown
    assert "100 % less" in shown
