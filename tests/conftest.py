"""Fixtures that several parts of the tests share."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, settings

from stagewatch.core.processes import Children
from tests.deploy.engine import need
from tests.fake_clock import Clock
from tests.fakes import faultfs as faulty
from tests.fakes.faultfs import FaultFs
from tests.fakes.nvml import FakeNvml, build
from tests.running import Python
from tests.scheduling import pytest_xdist_make_scheduler  # noqa: F401
from tests.web.certificates import Authority

# Compiled once, and not anew by each of a thousand programs under test: half of an agent's start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What `yaml.safe_load` reads with, and `safe_dump` writes: written in C it takes a tenth.
yaml.SafeLoader, yaml.SafeDumper = yaml.CSafeLoader, yaml.CSafeDumper  # type: ignore[misc, assignment]

# promtool and Prometheus spend a fifth of their time on tidying up their memory, or give them more;
# and a tenth on handing work from one core to another.
os.environ.setdefault("GOGC", "400")
os.environ.setdefault("GOMAXPROCS", "1")

# How long an example takes says something of the machine, not of the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell lets what it starts in the background ignore an interrupt, and its children as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Write the rules that are not in git, before any test is collected."""
    if not hasattr(session.config, "workerinput"):
        subprocess.run(["make", "--quiet", "rules"], cwd=Path(__file__).parents[1], check=True)


LONG_SECONDS = 600
"""Tests that may take so long begin first, and others run beside them."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let --last-failed find tests of a group in a worker, where pytest-xdist adds the group to
    their names: files are searched before that, and tests are chosen behind it.

    Groups begin in the order of their tests here, not the largest first.
    """
    config.option.loadscopereorder = False
    chosen = config.pluginmanager.get_plugin("lfplugin")
    if chosen is not None and hasattr(config, "workerinput"):
        for name in list(chosen.lastfailed):
            chosen.lastfailed[re.sub(r"@\w+$", "", name)] = True


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Search for no garbage in what is collected, a million objects that live to the end."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share something of their module or package in one worker, which makes it
    once; those that take longest come first."""
    for item in items:
        fixtures = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009
        shared = [each[-1].baseid for each in fixtures if each[-1].scope in ("module", "package")]
        if shared and not item.get_closest_marker("xdist_group"):
            widest = min(shared, key=len)  # the package rather than a module of it
            group = re.sub(r"\W+", "_", widest)
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_comes_later)


def _comes_later(item: pytest.Item) -> bool:
    limit = item.get_closest_marker("timeout")
    return limit is None or limit.args[0] < LONG_SECONDS


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One directory for what programs under test write, so that one that is killed leaves nothing.

    Its name is short, for sockets; any user may write there, for programs that run as another.
    """
    tmp_path_factory.getbasetemp()  # pytest's own stays where it is
    with (
        tempfile.TemporaryDirectory(prefix="sw-", ignore_cleanup_errors=True) as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        Path(directory).chmod(0o1777)
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", directory)
        yield


@pytest.fixture
def children() -> Iterator[Children]:
    """Processes that end with the test."""
    with Children() as children:
        yield children


@pytest.fixture
def python(children: Children, tmp_path: Path) -> Python:
    """Runs Python snippets as processes: `python("print(1)").finish()`."""
    return Python(children, tmp_path)


@pytest.fixture
def record_dir(tmp_path: Path) -> Path:
    """An empty directory for stage records."""
    directory = tmp_path / "ranks"
    directory.mkdir()
    return directory


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the fake driver library."""
    need("gcc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A fake driver that the processes this test starts will find: eight H200."""
    fake = FakeNvml(nvml_library, tmp_path)
    for name, value in fake.environ.items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that issues to a directory of its own."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def clock() -> Clock:
    """For what is tested; the test turns it."""
    return Clock()


@pytest.fixture(scope="session")
def faultfs_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled file system."""
    if reason := faulty.missing():
        pytest.skip(f"the misbehaving file system {reason}")
    return faulty.build(tmp_path_factory.mktemp("faultfs"))


@pytest.fixture
def faultfs(faultfs_program: Path, tmp_path: Path) -> Iterator[Callable[[str], FaultFs]]:
    """Mounts by name, unmounted with the test."""
    with ExitStack() as stack:

        def mount(name: str) -> FaultFs:
            found = FaultFs(faultfs_program, tmp_path / name)
            stack.callback(found.close)
            return found

        yield mount
