"""What `make release` builds: looked into here, and installed in a bare Debian.

`make test-release` runs these: building takes a minute of a core, and so does the Debian.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import stagewatch
from tests.as_installed import unit as shipped
from tests.deploy.debian import Debian
from tests.deploy.engine import ROOT, need
from tests.running import output
from tests.waiting import wait_for

VERSION = stagewatch.__version__
TOOLS = ROOT / ".venv-release" / "bin"

CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYSLOG": 34}
"""Their bits; see linux/capability.h."""

DIST = os.environ.get("STAGEWATCH_DIST", "")

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("release"),
    pytest.mark.skipif(not DIST, reason="needs a release in $STAGEWATCH_DIST: make test-release"),
]


@pytest.fixture(scope="module")
def dist() -> Path:
    """Where the release is."""
    return Path(DIST)


@pytest.fixture(scope="module")
def deb(dist: Path) -> Path:
    architecture = output("dpkg", "--print-architecture").strip()
    return dist / f"stagewatch_{VERSION}_{architecture}.deb"


def sums(directory: Path) -> dict[str, str]:
    """The checksums that are published, by file."""
    lines = (directory / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def test_everything_is_there_and_has_its_checksum(dist: Path) -> None:
    assert {file.name for file in dist.iterdir()} == {
        "SHA256SUMS",
        f"stagewatch-{VERSION}-py3-none-any.whl",
        f"stagewatch-{VERSION}.tar.gz",
        f"stagewatch_{VERSION}_amd64.deb",
        f"stagewatch_{VERSION}_arm64.deb",
        f"stagewatch-{VERSION}-1.x86_64.rpm",
        f"stagewatch-{VERSION}-1.aarch64.rpm",
        f"stagewatch_nccl-{VERSION}-py3-none-manylinux_2_28_x86_64.whl",
        f"stagewatch_nccl-{VERSION}-py3-none-manylinux_2_28_aarch64.whl",
        f"stagewatch-image-{VERSION}.tar",
        f"stagewatch-{VERSION}.tgz",
        f"stagewatch-mixin-{VERSION}.tar.gz",
        f"stagewatch-boards-{VERSION}.tar.gz",
        f"stagewatch-{VERSION}.cdx.json",
    }
    assert sums(dist) == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in dist.iterdir()
        if file.name != "SHA256SUMS"
    }


def test_another_build_is_the_same_byte_for_byte(dist: Path, tmp_path: Path) -> None:
    """Of another user's files, at another time, with another umask."""
    script = f"umask 077; exec {ROOT}/deploy/release/build.sh {tmp_path}/again"
    output("sh", "-c", script)
    assert sums(tmp_path / "again") == sums(dist)


def test_the_bill_of_materials_has_all_that_the_packages_bring(dist: Path) -> None:
    bill = json.loads((dist / f"stagewatch-{VERSION}.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {each["name"].lower().replace("_", "-"): each for each in bill["components"]}
    lock = (ROOT / "deploy" / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))
    assert {name: each["version"] for name, each in listed.items()} == locked
    whole = bill["metadata"]["component"]
    assert (whole["name"], whole["version"]) == ("stagewatch", VERSION)
    assert all(each.get("licenses") and each["purl"] for each in listed.values())


@pytest.mark.parametrize(("architecture", "machine"), [("amd64", 62), ("arm64", 183)])
def test_a_deb_has_the_libraries_of_its_architecture(
    dist: Path, architecture: str, machine: int, tmp_path: Path
) -> None:
    """The number is that of the ELF header, e_machine."""
    output("dpkg-deb", "-x", dist / f"stagewatch_{VERSION}_{architecture}.deb", tmp_path)
    libraries = [*tmp_path.rglob("*.so"), tmp_path / "opt/stagewatch/bin/py-spy"]
    assert len(libraries) > 3
    found = {file: int.from_bytes(file.read_bytes()[18:20], "little") for file in libraries}
    assert set(found.values()) == {machine}, found


def test_a_deb_has_the_files_of_the_wheel_beside_it(dist: Path, deb: Path, tmp_path: Path) -> None:
    output("dpkg-deb", "-x", deb, tmp_path)
    packages = tmp_path / "opt/stagewatch/lib/python3/site-packages"
    with zipfile.ZipFile(dist / f"stagewatch-{VERSION}-py3-none-any.whl") as wheel:
        files = [name for name in wheel.namelist() if name.startswith("stagewatch/")]
        assert all((packages / name).read_bytes() == wheel.read(name) for name in files)
    installed = (path for path in (packages / "stagewatch").rglob("*") if path.is_file())
    assert {path.relative_to(packages).as_posix() for path in installed} == set(files)


@pytest.mark.parametrize("minor", range(10, 16))
def test_the_environment_runs_under_whichever_python_a_machine_has(
    deb: Path, minor: int, tmp_path: Path
) -> None:
    found = subprocess.run(
        [f"python3.{minor}", "-c", "import sys; print(sys.executable)"],
        capture_output=True, text=True, check=False,
    ) if shutil.which(f"python3.{minor}") else None  # fmt: skip
    if found is None or found.returncode:
        pytest.skip(f"needs python3.{minor} on the PATH")
    output("dpkg-deb", "-x", deb, tmp_path)
    home = tmp_path / "opt" / "stagewatch"
    (home / "bin" / "python").unlink()
    (home / "bin" / "python").symlink_to(python := Path(found.stdout.strip()))
    settings = home / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("/usr/bin", str(python.parent)))
    code = "import bcrypt, jinja2, pynvml, requests, sys, tomli, yaml; print(sys.prefix)"
    assert output(home / "bin" / "python", "-c", code).strip() == str(home)
    for agent in ("node", "slurm", "judge"):
        assert output(home / "bin" / "python", "-m", "stagewatch", agent, "--help")


def test_the_chart_that_is_packed_is_of_this_version(dist: Path) -> None:
    need("helm")
    shown = output("helm", "show", "chart", dist / f"stagewatch-{VERSION}.tgz")
    assert f"\nversion: {VERSION}\n" in shown and f"appVersion: {VERSION}\n" in shown
    assert "kind: DaemonSet" in output("helm", "template", dist / f"stagewatch-{VERSION}.tgz")


def test_the_wheel_works_in_an_environment_of_its_own(dist: Path, tmp_path: Path) -> None:
    output(TOOLS / "uv", "venv", "--quiet", tmp_path / "venv")
    [wheel] = dist.glob("stagewatch-*.whl")
    python = tmp_path / "venv" / "bin" / "python"
    output(TOOLS / "uv", "pip", "install", "--quiet", "--python", python, wheel)
    command = tmp_path / "venv" / "bin" / "stagewatch"
    assert output(command, "--version").strip() == VERSION
    assert "command ended" in subprocess.run(
        [command, "run", "--", "true"], capture_output=True, text=True, check=True
    ).stderr  # fmt: skip
    inspect = [command, "inspect", "--job", "none", "--record-dir", tmp_path]
    told = subprocess.run(inspect, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout[:19]) == (1, "No rank of job none")


def test_the_wheel_of_the_plugin_brings_what_nccl_loads(dist: Path, tmp_path: Path) -> None:
    output(TOOLS / "uv", "venv", "--quiet", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    served = ["--no-index", "--find-links", dist, "stagewatch-nccl"]
    output(TOOLS / "uv", "pip", "install", "--quiet", "--python", python, *served)
    library = output(python, "-m", "stagewatch_nccl").strip()
    output(python, "-c", f"import ctypes; ctypes.CDLL({library!r}).ncclProfiler_v5")


def test_the_wheels_name_the_address_of_the_project_where_it_is_known(tmp_path: Path) -> None:
    """As in a forge's workflow; the rest of the build is not looked at."""
    address = "https://forge.invalid/group/stagewatch"
    build = f"STAGEWATCH_REPOSITORY={address} {ROOT}/deploy/release/build.sh {tmp_path} wheels"
    output("sh", "-c", build)
    for wheel in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            [metadata] = [name for name in archive.namelist() if name.endswith("/METADATA")]
            text = archive.read(metadata).decode()
        assert f"Project-URL: Source, {address}\n" in text, wheel


def older(package: Path, directory: Path) -> Path:
    """The deb of the version before, as far as an upgrade can tell."""
    output("dpkg-deb", "-R", package, directory / "older")
    control = directory / "older" / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}", "Version: 0.0.9"))
    (directory / "older/opt/stagewatch/share/gone").write_text("of the version before\n")
    output("dpkg-deb", "--root-owner-group", "-Znone", "-b", directory / "older", directory)
    [built] = directory.glob("*.deb")
    return built


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    with Debian.made(tmp_path_factory.mktemp("debian")) as debian:
        yield debian


@pytest.fixture(scope="class")
def booted(debian: Debian) -> Iterator[Debian]:
    """What is installed there runs under systemd."""
    with debian.booted():
        yield debian


OUR_UNITS = "systemctl list-units --all --plain --no-legend '*stagewatch*'"
PORTS = {"node": 9947, "judge": 9949}


def serves(machine: Debian, agent: str) -> bool:
    """Whether an agent has collected something."""
    return "stagewatch_collector_success" in machine.metrics(PORTS[agent])


class TestDeb:
    """One Debian from the first installation to the purge, booted after it: the order matters."""

    def test_one_command_installs_the_version_before(
        self, debian: Debian, deb: Path, tmp_path: Path
    ) -> None:
        shutil.copy(older(deb, tmp_path), debian.root / "older.deb")
        shutil.copy(deb, debian.root / "newer.deb")
        debian("apt-get -qq update && apt-get -qq install -y --no-install-recommends /older.deb")
        assert debian("stagewatch --version") == VERSION
        assert debian("id -un stagewatch") == "stagewatch"
        assert debian("stat -c %a%U /run/stagewatch/ranks") == "1777stagewatch"

    def test_an_upgrade_keeps_what_a_site_has_set_and_nothing_of_the_old(
        self, debian: Debian
    ) -> None:
        debian("echo STAGEWATCH_LOG_LEVEL=debug >> /etc/stagewatch/node.env")
        debian("touch /var/lib/stagewatch/state")
        debian("apt-get -qq install -y /newer.deb")
        assert debian("dpkg-query -W -f '${Version} ${db:Status-Abbrev}' stagewatch") == (
            f"{VERSION} ii"
        )
        assert "LOG_LEVEL=debug" in debian("cat /etc/stagewatch/node.env")
        assert debian("ls /var/lib/stagewatch") == "state"
        assert "gone" not in debian("ls /opt/stagewatch/share")
        assert debian("dpkg --verify stagewatch") == "??5?????? c /etc/stagewatch/node.env"

    def test_no_unit_is_enabled_by_the_first_boot_of_a_copied_image(self, debian: Debian) -> None:
        """Debian's own presets would enable all of them."""
        units = debian("cd /usr/lib/systemd/system; echo *stagewatch*")
        debian(f"systemctl preset --preset-mode=enable-only {units}")
        states = debian(f"systemctl is-enabled {units} || true").split()
        assert set(states) == {"disabled", "static"}

    def test_systemd_finds_nothing_wrong_with_the_units(self, booted: Debian) -> None:
        units = "/usr/lib/systemd/system/*stagewatch-*"
        assert booted(f"systemd-analyze verify {units} 2>&1") == ""

    def test_the_agents_start_and_are_scraped(self, booted: Debian) -> None:
        assert booted(OUR_UNITS) == "", "nobody has said yet what this machine is"
        booted("systemctl enable --now stagewatch-node stagewatch-judge 2>&1")
        for agent in PORTS:
            wait_for(partial(serves, booted, agent), f"{agent} is scraped")

    @pytest.mark.parametrize("unit", ["node", "judge", "keeper"])
    def test_a_unit_has_its_user_and_its_capabilities(self, booted: Debian, unit: str) -> None:
        wait_for(lambda: booted.pid(unit), "systemd has started it")
        told, status = shipped(f"stagewatch-{unit}.service"), booted.status(unit)
        uid = booted(f"id -u {told['User']}")
        assert status["Uid"].split() == [uid] * 4 and uid != "0"
        ambient = sum(
            1 << CAPABILITIES[name] for name in told.get("AmbientCapabilities", "").split()
        )
        assert {name: int(status[f"Cap{name}"], 16) for name in ("Eff", "Prm", "Amb", "Bnd")} == (
            dict.fromkeys(("Eff", "Prm", "Amb", "Bnd"), ambient)
        )
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")

    def test_the_keeper_reads_for_the_agent(self, booted: Debian) -> None:
        """Process 1 is root's; the agent itself may not look into it."""
        read = ('collector_success{collector="kmsg"} 1', "stagewatch_processes_denied 0")
        for line in read:
            wait_for(lambda: line in booted.metrics(PORTS["node"]), line)  # noqa: B023

    def test_an_upgrade_restarts_what_runs_and_starts_nothing(self, booted: Debian) -> None:
        before = {agent: booted.pid(agent) for agent in PORTS}
        booted("apt-get -qq install -y --reinstall /newer.deb")
        assert all(booted.pid(agent) not in (0, before[agent]) for agent in PORTS)
        for agent in PORTS:
            wait_for(partial(serves, booted, agent), f"{agent} is scraped")
        assert booted.pid("slurm") == 0

    def test_stopping_is_clean(self, booted: Debian) -> None:
        booted("systemctl stop stagewatch-judge")
        assert booted("systemctl show --property=Result --value stagewatch-judge") == "success"

    def test_each_command_runs(self, booted: Debian) -> None:
        helped = booted("stagewatch --help")
        commands = re.findall(r"^    ([a-z-]+)  ", helped, re.MULTILINE)
        assert len(commands) > 10
        for command in commands:
            booted(f"stagewatch {command} --help")
        assert booted("stagewatch check-config --agent node")
        assert booted("stagewatch assets export /tmp/out")
        assert booted("/opt/stagewatch/bin/py-spy --version").startswith("py-spy")
        path, *_ = booted("/opt/stagewatch/share/slurm/task-prolog.sh").splitlines()
        assert (booted.root / path.partition("=/")[2] / "sitecustomize.py").exists()

    def test_nothing_is_removed_while_a_fault_is_in_force(self, booted: Debian) -> None:
        booted("mkdir -p /var/lib/stagewatch-faults; touch /var/lib/stagewatch-faults/cpu-1.undo")
        refused = booted.run("dpkg --remove stagewatch")
        assert refused.returncode != 0 and "stagewatch fault clear --all" in refused.stderr
        assert booted("stagewatch --version") == VERSION
        booted("rm /var/lib/stagewatch-faults/cpu-1.undo")

    def test_removing_keeps_options_and_state_and_purging_leaves_nothing(
        self, booted: Debian
    ) -> None:
        assert booted.pid("node")
        booted("dpkg --remove stagewatch")
        assert booted(OUR_UNITS) == ""
        kept = {"/etc/stagewatch", "/var/lib/stagewatch", "/var/lib/stagewatch-faults"}
        assert booted.left() == kept
        assert "LOG_LEVEL=debug" in booted("cat /etc/stagewatch/node.env")
        booted("dpkg --purge stagewatch")
        assert booted.left() == set()
        assert "stagewatch" not in booted("ls /run")
        assert booted("dpkg -l | grep stagewatch || true") == ""

    def test_a_checkout_that_was_installed_is_not_overwritten(self, booted: Debian) -> None:
        booted("mkdir -p /opt/stagewatch/bin; touch /opt/stagewatch/bin/pip")
        refused = booted.run("dpkg --install /newer.deb")
        assert refused.returncode != 0 and "install.sh --uninstall first" in refused.stderr
        booted("dpkg --purge stagewatch; rm -rf /opt/stagewatch")
        assert booted.left() == set()


class TestRpm:
    """The rpm in that Debian, after the deb: no registry that is reached has a Fedora."""

    def test_it_installs_upgrades_and_goes(self, debian: Debian, dist: Path) -> None:
        need("rpm")
        debian(
            "apt-get -qq update && apt-get -qq install -y --no-install-recommends python3 systemd"
        )
        package = dist / f"stagewatch-{VERSION}-1.{os.uname().machine}.rpm"
        inside = ["unshare", "--mount", "sh", "-euc", 'mount -t proc proc "$0/proc"; exec "$@"']
        rpm = [*inside, str(debian.root), "rpm", f"--root={debian.root}", "--nodeps"]
        output(*rpm, "-i", package)
        assert debian("stagewatch --version") == VERSION
        assert debian("stat -c %U /run/stagewatch/ranks") == "stagewatch"
        debian("echo STAGEWATCH_LOG_LEVEL=debug >> /etc/stagewatch/node.env")
        output(*rpm, "-U", "--force", package)
        assert "LOG_LEVEL=debug" in debian("cat /etc/stagewatch/node.env")
        verified = subprocess.run([*rpm, "-V", "stagewatch"], capture_output=True, text=True,
                                  check=False).stdout  # fmt: skip
        assert [line.split()[-1] for line in verified.splitlines()] == ["/etc/stagewatch/node.env"]
        output(*rpm, "-e", "stagewatch")
        assert debian.left() == {"/etc/stagewatch", "/var/lib/stagewatch"}
        assert debian("ls /etc/stagewatch") == "node.env.rpmsave"
        debian("rm -rf /etc/stagewatch /var/lib/stagewatch")


def test_the_archives_hold_plain_files_of_root(dist: Path) -> None:
    for file in (*dist.glob("*.tgz"), *dist.glob("stagewatch-[bm]*.tar.gz")):
        with tarfile.open(file) as archive:
            members = archive.getmembers()
        assert {(each.uid, each.gid, each.uname) for each in members} == {(0, 0, "")}
        assert {each.mode for each in members if each.isfile()} == {0o644}
        assert len({each.mtime for each in members}) == 1


class TestAnsible:
    """The role, against localhost in that Debian."""

    def test_the_role_is_clean(self) -> None:
        output(
            TOOLS / "uv", "tool", "run", "--from", "ansible-lint==26.10.1", "ansible-lint",
            "--offline", "--strict", ROOT / "deploy" / "ansible",
        )  # fmt: skip

    def test_it_says_what_it_would_do_does_it_and_has_nothing_more_to_do(
        self, debian: Debian, deb: Path
    ) -> None:
        shutil.copy(deb, debian.root / "newer.deb")
        debian("apt-get -qq update && apt-get -qq install -y --no-install-recommends ansible-core")
        shutil.copytree(ROOT / "deploy" / "ansible", debian.root / "ansible")
        (debian.root / "etc/slurm").mkdir()
        (debian.root / "etc/slurm/slurm.conf").write_text("ClusterName=berlin\n")
        (debian.root / "ansible/values.yml").write_text(
            "stagewatch_package: /newer.deb\n"
            "stagewatch_options: {STAGEWATCH_LOG_LEVEL: debug}\n"
            "stagewatch_slurm_conf: /etc/slurm/slurm.conf\n"
        )
        (debian.root / "ansible/hosts").write_text(
            "[stagewatch_nodes]\nlocalhost ansible_connection=local\n"
        )
        play = "cd /ansible; LC_ALL=C.UTF-8 ansible-playbook -i hosts -e @values.yml site.yml"
        assert "failed=0" in debian(f"{play} --check")
        assert debian.left() == set()
        debian(play)
        assert "LOG_LEVEL=debug" in debian("cat /etc/stagewatch/node.env")
        assert "include /opt/stagewatch/" in debian("cat /etc/slurm/slurm.conf")
        assert debian("stagewatch --version") == VERSION
        assert "changed=0 " in debian(play)
        debian("dpkg --purge stagewatch; rm -rf /ansible /etc/slurm")
