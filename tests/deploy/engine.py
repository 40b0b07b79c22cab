"""A container engine, and stand-ins for the images that tests would have to pull.

Each stand-in is made of the distribution's packages and lays its files out as the image does whose
place it takes.  It has a name of its own, and gets its place by a variable of compose.yaml.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PREFIX = "stagewatch-test"


def docker(*arguments: str, input: bytes | None = None) -> str:
    """Run the engine's client; its output."""
    done = subprocess.run(["docker", *arguments], input=input, capture_output=True, check=False)
    assert done.returncode == 0, f"docker {arguments}: {done.stderr.decode()}"
    return done.stdout.decode()


class Afterwards:
    """Runs a command when it is closed, and also when the test run is killed: containers outlive
    who started them."""

    def __init__(self, *command: str, environ: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", 'cat; exec "$@"', "sh", *command],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environ, start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        """Run the command, and wait for its end."""
        self._process.stdin.close()
        self._process.wait()


@cache
def need_engine() -> None:
    """Skip the test where no engine answers."""
    if shutil.which("docker") is None:
        pytest.skip("needs docker on the PATH")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("needs a running container engine: docker info fails")


def need(*tools: str) -> None:
    """Skip the test where one of these commands is missing."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} on the PATH")


def compose_command() -> list[str]:
    """`docker compose` or the older `docker-compose`."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if shutil.which("docker") and plugin.returncode == 0:
        return ["docker", "compose"]
    need("docker-compose")
    return ["docker-compose"]


def python_image() -> str:
    """The distribution's Python under the paths of the official image."""
    return _system("python", "python3-venv", "passwd", "util-linux", "ca-certificates", "apt")


def _system(name: str, *packages: str) -> str:
    """An image of packages; built once per machine, in minutes."""
    image = f"{PREFIX}/{name}:2"
    if docker("images", "-q", image):
        return image
    need("mmdebstrap")
    system = subprocess.run(
        [
            "mmdebstrap", "--quiet", "--variant=essential", f"--include={','.join(packages)}",
            "--customize-hook=ln -s /usr/bin/python3 $1/usr/local/bin/python",
            f"--customize-hook=copy-in {CERTIFICATES} /etc/ssl/certs",
            _suite(), "-",
        ],
        capture_output=True,
        check=False,
    )  # fmt: skip
    assert system.returncode == 0, system.stderr.decode()
    setup = [f"--change=ENV PIP_CERT={CERTIFICATES}", "--change=CMD python"]
    docker("import", *setup, "-", image, input=system.stdout)
    return image


def stand_in(image: str, *files: Path, **programs: str) -> str:
    """An image of busybox, and files and programs of this machine.

    `programs` are given by their names below /bin in the image, the first one its entry point.
    """
    if docker("images", "-q", f"{PREFIX}/{image}"):
        return f"{PREFIX}/{image}"
    need("busybox", *programs.values())
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(str(_found("busybox")), "bin/busybox")
        for applet in ("sh", "wget"):
            _link(archive, f"bin/{applet}", "busybox")
        for name, program in programs.items():
            archive.add(str(_found(program)), f"bin/{name}")
        for library in {found for each in programs.values() for found in _libraries(each)}:
            archive.add(str(library.resolve()), str(library).lstrip("/"))
        for file in files:
            archive.add(str(file), str(file).lstrip("/"))
        for directory in ("tmp", "prometheus", "alertmanager"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
    first = next(iter(programs))
    changes = [f'--change=ENTRYPOINT ["/bin/{first}"]', "--change=WORKDIR /tmp"]
    if first != "node_exporter":
        changes.append("--change=USER 65534")
    docker("import", *changes, "-", f"{PREFIX}/{image}", input=content.getvalue())
    return f"{PREFIX}/{image}"


def _link(archive: tarfile.TarFile, path: str, target: str) -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _libraries(program: str) -> set[Path]:
    listed = subprocess.run(
        ["ldd", str(_found(program))], capture_output=True, text=True, check=False
    ).stdout
    return {Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}


def _found(program: str) -> Path:
    path = shutil.which(program)
    assert path is not None, program
    return Path(path).resolve()


def _suite() -> str:
    release = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)", release, re.MULTILINE)
    if not found or os.geteuid() != 0:
        pytest.skip("needs root on Debian or Ubuntu to build a stand-in for the Python image")
    return found[1]
