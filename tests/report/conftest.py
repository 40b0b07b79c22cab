"""Servers with a history, each filled once for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.experiment import Experiment, Wanted, make_experiment
from tests.report.contention import contention
from tests.report.filled import filled_prometheus, filled_store
from tests.report.hyperpod import hyperpod
from tests.report.paid import paid


@pytest.fixture(scope="package")
def children() -> Iterator[Children]:
    """Ended with the tests, and by the kernel if these are killed."""
    with Children() as children:
        yield children


@pytest.fixture(scope="package")
def contention_url(children: Children, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Prometheus that has seen S1 #2."""
    return filled_prometheus(children, tmp_path_factory.mktemp("s1") / "p", contention())


@pytest.fixture(scope="package")
def hyperpod_url(children: Children, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Prometheus that has seen S3."""
    return filled_prometheus(children, tmp_path_factory.mktemp("s3") / "p", hyperpod())


@pytest.fixture(scope="package")
def store_url(children: Children, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A VictoriaMetrics that has seen S1 #2."""
    directory = tmp_path_factory.mktemp("vm") / "v"
    return filled_store(children, directory, contention())


@pytest.fixture(scope="package")
def paid_url(children: Children, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Prometheus that has two days of GPUs that were paid for."""
    return filled_prometheus(children, tmp_path_factory.mktemp("paid") / "p", paid())


def experiment_of(url: str, baseline: str = "10m-before") -> Experiment:
    """The experiment S1 #2 that a server's history holds."""
    with closing(PrometheusApi(url)) as api:
        return make_experiment(api, Wanted("cpu-1", baseline))


@pytest.fixture(scope="package")
def experiment(contention_url: str) -> Experiment:
    """What Prometheus knows of it."""
    return experiment_of(contention_url)
