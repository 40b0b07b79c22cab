"""Servers with a history, each filled once for all tests of a process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from stagewatch.core.processes import Children
from tests.report.contention import contention
from tests.report.filled import filled_prometheus, filled_store
from tests.report.hyperpod import hyperpod


@pytest.fixture(scope="package")
def children() -> Iterator[Children]:
    """Ended with the tests, and by the kernel if these are killed."""
    with Children() as children:
        yield children


def needs_tool(name: str) -> None:
    """Skip what needs a tool that is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}, from Debian's package of that name")


@pytest.fixture(scope="package")
def contention_url(children: Children, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Prometheus that has seen S1 #2."""
    needs_tool("prometheus")
    return filled_prometheus(children, tmp_path_factory.mktemp("s1") / "p", contention())


@pytest.fixture(scope="package")
def hyperpod_url(children: Children, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Prometheus that has seen S3."""
    needs_tool("prometheus")
    return filled_prometheus(children, tmp_path_factory.mktemp("s3") / "p", hyperpod())


@pytest.fixture(scope="package")
def store_url(children: Children, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A VictoriaMetrics that has seen S1 #2."""
    needs_tool("victoria-metrics")
    directory = tmp_path_factory.mktemp("vm") / "v"
    return filled_store(children, directory, contention())
