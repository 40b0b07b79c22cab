"""Configuration: who wins, what is accepted, and how the rest is refused."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.config import (
    add_flags,
    address,
    boolean,
    duration,
    fill,
    integer,
    listing,
    option,
    path,
    read_file,
    resolve,
    settings_of,
    show,
    text,
)
from stagewatch.errors import ConfigError
from tests.running import clean_environ


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


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("500ms", 0.5), ("1s", 1), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1.5", 1.5), (3, 3)],
)
def test_durations(written: object, seconds: float) -> None:
    assert duration(written) == seconds


@given(st.text())
def test_any_text_is_a_duration_in_range_or_refused(written: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 < duration(written) <= 366 * 86400


@given(st.floats(min_value=1e-3, max_value=366 * 86400))
def test_a_duration_is_shown_as_it_can_be_written(seconds: float) -> None:
    assert duration(show(seconds)) == pytest.approx(seconds, abs=1e-9, rel=1e-12)


@given(st.text(alphabet="0123456789abcdef:.[]/* ", max_size=30))
def test_any_text_is_an_address_or_refused(written: str) -> None:
    try:
        host, port = address(written)
    except ValueError:
        return
    assert 0 <= port <= 65535
    assert not set(host) & set("[]/ ")


hosts = st.just("") | st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)
hosts |= st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)


@given(hosts, st.integers(0, 65535))
def test_an_address_is_shown_as_it_can_be_written(host: str, port: int) -> None:
    assert address(show((host, port))) == (host, port)


@pytest.mark.parametrize(
    ("written", "items"),
    [
        ("", ()),
        ("/a", ("/a",)),
        (" /a , /b ,", ("/a", "/b")),
        (["/a", "/b,c"], ("/a", "/b,c")),
        ([], ()),
    ],
)
def test_lists(written: object, items: tuple[str, ...]) -> None:
    assert listing(text)(written) == items


def test_lists_keep_what_only_looks_empty() -> None:
    assert listing(integer)([0, 1]) == (0, 1)
    assert listing(boolean)(["no", False]) == (False, False)


def test_what_a_list_accepts_names_its_items() -> None:
    assert "each a whole number" in (listing(integer).__doc__ or "")


@given(
    st.sampled_from([text, path, integer, boolean, duration, address, listing(text)]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
)
def test_no_value_of_a_toml_file_breaks_a_parser(parse: Any, value: Any) -> None:
    with contextlib.suppress(ValueError, TypeError):
        parse(value)


class TestFile:
    """One TOML file for all commands."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "stagewatch.toml"

    def refused(self, file: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            read_file(file, "node")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_each_command_reads_its_own_table(self, file: Path) -> None:
        file.write_text('[node]\nlisten = ":1"\ncollector.gpu.interval = "1s"\n[slurm]\nx = 1\n')
        assert read_file(file, "node") == {"listen": ":1", "collector.gpu.interval": "1s"}
        assert read_file(file, "report") == {}

    def test_a_misspelt_table_is_not_passed_over(self, file: Path) -> None:
        file.write_text("[nodes]\ninterval = 1\n")
        assert self.refused(file) == f"{file}: unknown table [nodes]; did you mean [node]?"

    def test_a_key_outside_of_any_table_is_not_passed_over(self, file: Path) -> None:
        file.write_text("interval = 5\n")
        assert self.refused(file) == f"{file}: interval = 5: must stand in a table, [node]"

    @pytest.mark.parametrize(
        ("content", "problem"),
        [(b"[node", "not valid TOML"), (b"\xff\xfe", "not valid TOML"), (b"x = 1 1", "line 1")],
    )
    def test_what_is_no_toml(self, content: bytes, problem: str, file: Path) -> None:
        file.write_bytes(content)
        assert problem in self.refused(file)

    def test_a_file_that_cannot_be_read(self, file: Path, tmp_path: Path) -> None:
        assert self.refused(file) == f"--config {file}: No such file or directory"
        assert "Is a directory" in self.refused(tmp_path)


class TestCommand:
    """`stagewatch check-config` and `stagewatch node` before they start anything."""

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stagewatch.cli", *arguments],
            capture_output=True,
            text=True,
            env=clean_environ(environ),
            timeout=120,
        )

    def test_what_differs_from_the_defaults_is_shown(self, tmp_path: Path) -> None:
        file = tmp_path / "stagewatch.toml"
        file.write_text('[node]\nlisten = ":9950"\n[node.collector.clock]\nenabled = false\n')
        done = self.run("check-config", "--config", str(file), STAGEWATCH_DIR="/x")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            "listen = :9950",
            "record_dir = /x",
            "collector.clock.enabled = false",
        ]

    def test_nothing_differs(self) -> None:
        done = self.run("check-config")
        assert (done.returncode, done.stdout, done.stderr) == (0, "all defaults\n", "")

    @pytest.mark.parametrize("command", ["check-config", "node"])
    @pytest.mark.parametrize(
        ("arguments", "environ", "line"),
        [
            (
                ["--listen", "9947"],
                {},
                "stagewatch: --listen = '9947': must be HOST:PORT, or :PORT for every interface, "
                "[IPV6]:PORT for IPv6",
            ),
            (
                [],
                {"STAGEWATCH_COLLECTOR_CLOCK_INTERVAL": "often"},
                "stagewatch: STAGEWATCH_COLLECTOR_CLOCK_INTERVAL = 'often': must be a duration "
                "above zero such as 500ms, 1s, 5m or 2h (a plain number is seconds)",
            ),
            (
                ["--config", "/nonexistent.toml"],
                {},
                "stagewatch: --config /nonexistent.toml: No such file or directory",
            ),
        ],
    )
    def test_bad_configuration_is_one_line_and_status_2(
        self, command: str, arguments: list[str], environ: dict[str, str], line: str
    ) -> None:
        done = self.run(command, *arguments, **environ)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", line + "\n")

    def test_an_unknown_key_names_file_table_and_the_one_that_was_meant(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "stagewatch.toml"
        file.write_text('[node]\nlisten_to = ":9950"\n')
        done = self.run("node", "--config", str(file))
        assert done.returncode == 2
        assert done.stderr == (
            f"stagewatch: {file} [node]: unknown key listen_to; did you mean listen?\n"
        )
