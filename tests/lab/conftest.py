"""One lab for all tests of this directory: the jobs run side by side, so that waiting is shared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.engine import need
from tests.fakes.faultfs import FaultFs, build, missing
from tests.lab.lab import Job, Lab
from tests.lab.scenes import SCENES, Running

LAB_NODES = 4


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share a lab in one worker, and give them time to wait for each other."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "lab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("live"))
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four agents and a Prometheus."""
    need("prometheus")
    with Lab(tmp_path_factory.mktemp("lab"), LAB_NODES) as lab:
        yield lab


@pytest.fixture(scope="package")
def dead_mount(lab: Lab) -> Iterator[FaultFs | None]:
    """A file system in user space; None where it cannot be had."""
    if missing():
        yield None
        return
    mount = FaultFs(build(lab.directory), lab.directory / "dead")
    (mount.mount / "batch").write_bytes(b"data")
    yield mount
    mount.close()


@pytest.fixture(scope="package")
def scenes(
    lab: Lab, dead_mount: FaultFs | None, request: pytest.FixtureRequest
) -> dict[str, Running]:
    """The scenes that the selected tests ask for, all started, and then all put wrong."""
    wanted = {mark.args[0] for item in request.session.items for mark in item.iter_markers("scene")}
    scenes = {name: Running(SCENES[name], lab, dead_mount) for name in SCENES if name in wanted}
    for scene in scenes.values():
        scene.start()
    for name, scene in scenes.items():
        lab.wait(scene.ready, f"{name} runs")
    for scene in scenes.values():
        scene.inject()
    return scenes


@pytest.fixture
def job(request: pytest.FixtureRequest, scenes: dict[str, Running]) -> Iterator[Job]:
    """The job of the scene that the test is marked with; killed after the last test of it, as is
    the lab after the last of all: a test of the same worker has one of its own."""
    name = scene_of(request.node)
    if scenes[name].missing:
        pytest.skip(scenes[name].missing)
    yield scenes[name].job
    later = request.session.items[request.session.items.index(request.node) + 1 :]
    if name not in map(scene_of, later):
        scenes[name].stop()
    if not any(map(scene_of, later)):
        scenes[name].job.lab.children.stop()


def scene_of(item: pytest.Item) -> str:
    """The scene that a test is marked with, if any."""
    mark = item.get_closest_marker("scene")
    return str(mark.args[0]) if mark else ""
