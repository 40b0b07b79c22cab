"""compose.yaml: valid with every profile, and a stack that comes up, works and goes away."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagewatch.assets import rules
from stagewatch.demo.stack import free_port
from stagewatch.prometheus.api import PrometheusApi
from tests.deploy import engine
from tests.waiting import wait_for

PROFILES = ("slurm", "demo", "gpu", "logs")
SERVICES = ("prometheus", "alertmanager", "node-exporter", "node", "judge", "slurm", "demo")
"""What is run here.  Grafana, Loki, Alloy and dcgm-exporter are in no distribution's packages."""

ALERTMANAGER_TEMPLATES = Path("/usr/share/prometheus/alertmanager")
"""Upstream's binary holds them, the distribution's reads them."""


def configuration(*profiles: str) -> dict[str, Any]:
    """compose.yaml as compose understands it."""
    flags = [f"--profile={profile}" for profile in profiles]
    done = subprocess.run(
        [*engine.compose_command(), *flags, "config"],
        cwd=engine.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower(), done.stderr
    content = yaml.safe_load(done.stdout)
    assert isinstance(content, dict)
    return content


def test_every_profile_is_understood() -> None:
    services = configuration(*PROFILES)["services"]
    assert set(services) == {*SERVICES, "rules", "grafana", "dcgm-exporter", "loki", "alloy"}


def test_images_of_others_are_pinned_by_digest() -> None:
    bases = re.findall(r"docker\.io/[^\s}]+", (engine.ROOT / "Dockerfile").read_text())
    of_others = re.findall(r"[a-z]+\.io/[^\s}]+", (engine.ROOT / "compose.yaml").read_text())
    digest = re.compile(r":v?[0-9.]+[a-z0-9.-]*@sha256:[0-9a-f]{64}")
    assert len(of_others) == 8, of_others
    assert [image for image in (*bases, *of_others) if not digest.search(image)] == []


@pytest.mark.parametrize("given", ["", "of the site"])
def test_grafana_has_no_password_that_everybody_knows(given: str, tmp_path: Path) -> None:
    service = yaml.safe_load((engine.ROOT / "compose.yaml").read_text())["services"]["grafana"]
    assert service["environment"]["GF_SECURITY_ADMIN_PASSWORD"] == "${GRAFANA_PASSWORD:-}"
    (run := tmp_path / "run.sh").write_text('#!/bin/sh\necho "$GF_SECURITY_ADMIN_PASSWORD"\n')
    run.chmod(0o755)
    [script] = service["command"]
    for name, path in {"$$": "$", "/var/lib/grafana": str(tmp_path), "/run.sh": str(run)}.items():
        script = script.replace(name, path)

    def start() -> str:
        environ = os.environ | {"GF_SECURITY_ADMIN_PASSWORD": given}
        command = [*service["entrypoint"], script]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, check=True
        ).stdout

    first = start().strip()
    assert first == start().strip() and len(first) >= 11
    made = tmp_path / "admin-password"
    assert (first == given) if given else made.stat().st_mode & 0o77 == 0
    assert made.exists() != bool(given)


def test_nobody_ends_or_reloads_prometheus_over_the_network() -> None:
    texts = [engine.ROOT / "compose.yaml", *(engine.ROOT / "deploy").rglob("*.y*ml")]
    assert not any("enable-lifecycle" in file.read_text() for file in texts)


def test_what_a_machine_may_lack_is_not_started_by_default() -> None:
    services = yaml.safe_load((engine.ROOT / "compose.yaml").read_text())["services"]
    always = {name for name, service in services.items() if "profiles" not in service}
    assert always == {*SERVICES, "rules", "grafana"} - {"slurm", "demo"}


def test_every_page_is_published_on_the_loopback_interface_only() -> None:
    for service in yaml.safe_load((engine.ROOT / "compose.yaml").read_text())["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_what_is_mounted_from_the_checkout_is_there() -> None:
    mounts = [
        Path(volume["source"] if isinstance(volume, dict) else volume.split(":")[0])
        for service in configuration(*PROFILES)["services"].values()
        for volume in service.get("volumes", [])
    ]
    own = [mount for mount in mounts if mount.is_relative_to(engine.ROOT)]
    assert own
    assert [mount for mount in own if not mount.exists()] == []


def test_grafana_finds_its_source_and_every_dashboard() -> None:
    provisioning = engine.ROOT / "deploy" / "grafana" / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "stagewatch.yaml").read_text())
    default = [source for source in sources["datasources"] if source.get("isDefault")]
    assert [(source["type"], source["url"]) for source in default] == [
        ("prometheus", "http://prometheus:9090")
    ]
    boards = yaml.safe_load((provisioning / "dashboards" / "stagewatch.yaml").read_text())
    mounts = configuration()["services"]["grafana"]["volumes"]
    [provider] = boards["providers"]
    assert any(provider["options"]["path"] in str(mount) for mount in mounts)
    for file in (engine.ROOT / "dashboards" / "generated").glob("*.json"):
        board = json.loads(file.read_text())
        [variable] = [each for each in board["templating"]["list"] if each["type"] == "datasource"]
        assert variable["query"] == "prometheus", file


class Stack:
    """compose.yaml up under a project name, network and ports of its own."""

    def __init__(self, directory: Path) -> None:
        self.project = f"stagewatch-test-{os.getpid()}"
        self.ports = {name: free_port() for name in ("PROMETHEUS", "ALERTMANAGER", "JUDGE")}
        self.run = directory / "run"
        self._slurm = {name: directory / name for name in ("SLURM_CONFIGURATION", "MUNGE_SOCKETS")}
        for path in self._slurm.values():
            path.mkdir()
        (users := directory / "passwd").write_text("of-the-cluster:x:64030:64030::/:/bin/false\n")
        slurm_conf = "ClusterName=test\nSlurmctldHost=nowhere.invalid\nSlurmUser=of-the-cluster\n"
        (self._slurm["SLURM_CONFIGURATION"] / "slurm.conf").write_text(slurm_conf)
        self._images = [f"{self.project}{agent}:latest" for agent in ("", "-slurm")]
        self._environ = os.environ | {
            "PYTHON_IMAGE": engine.python_image(),
            "PROMETHEUS_IMAGE": engine.stand_in(
                "prometheus", prometheus="prometheus", promtool="promtool"
            ),
            "ALERTMANAGER_IMAGE": engine.stand_in(
                "alertmanager", ALERTMANAGER_TEMPLATES, alertmanager="prometheus-alertmanager"
            ),
            "NODE_EXPORTER_IMAGE": engine.stand_in(
                "node-exporter", node_exporter="prometheus-node-exporter"
            ),
            **dict(zip(("STAGEWATCH_IMAGE", "STAGEWATCH_SLURM_IMAGE"), self._images, strict=True)),
            **{name: str(path) for name, path in self._slurm.items()},
            "SLURM_USERS": str(users),
            "STAGEWATCH_BUILD_NETWORK": "host",
            "HOST_ROOT": "/usr",  # the engine may live in a mount namespace where / is not shared
            "HOST_PROPAGATION": "rprivate",
            "STAGEWATCH_NETWORK": f"10.94.{random.randrange(16, 250)}",
            "STAGEWATCH_RUN": str(self.run),
            "DEMO_TRAIN_SECONDS": "45",
            "DEMO_HANG_SECONDS": "600",
            **{f"{name}_PORT": str(port) for name, port in self.ports.items()},
        }
        command = [
            *engine.compose_command(),
            "--profile",
            "slurm",
            "--profile",
            "demo",
            "-p",
            self.project,
        ]
        self._compose = [
            *command,
            "--project-directory",
            str(engine.ROOT),
            "-f",
            str(engine.ROOT / "compose.yaml"),
        ]
        down = [*self._compose, "down", "-v", "-t", "2"]
        self._afterwards = engine.Afterwards(*down, environ=self._environ)

    def __call__(self, *arguments: str) -> str:
        """A compose command; its output."""
        done = subprocess.run(
            [*self._compose, *arguments],
            env=self._environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    def container(self, service: str) -> dict[str, Any]:
        """What the engine says of a service's container."""
        [found] = json.loads(engine.docker("inspect", self("ps", "-q", service).strip()))
        return dict(found)

    def healthy(self, service: str) -> bool:
        """Whether the service's own check passes."""
        return bool(self.container(service)["State"]["Health"]["Status"] == "healthy")

    def leftovers(self) -> list[str]:
        """Containers, volumes and networks of this project."""
        label = f"label=com.docker.compose.project={self.project}"
        return [
            line
            for kind in (("ps", "-a"), ("volume", "ls"), ("network", "ls"))
            for line in engine.docker(*kind, "-q", "--filter", label).splitlines()
        ]

    def close(self) -> None:
        """Take everything down, the built images too."""
        self._afterwards.close()
        subprocess.run(
            ["docker", "rmi", "--force", *self._images], capture_output=True, check=False
        )
        shutil.rmtree(self.run, ignore_errors=True)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    engine.need_engine()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux: the node agent's container sees the machine's processes")
    stack = Stack(tmp_path_factory.mktemp("compose"))
    try:
        stack("build", "--force-rm", "node", "slurm")
        stack("up", "-d", "--no-build", *SERVICES)
        yield stack
    finally:
        stack.close()
    assert stack.leftovers() == []


@pytest.fixture(scope="module")
def prometheus(stack: Stack) -> Iterator[PrometheusApi]:
    api = PrometheusApi(f"http://127.0.0.1:{stack.ports['PROMETHEUS']}")
    wait_for(api.ready, "Prometheus answers", limit=120)
    yield api
    api.close()


pytestmark = pytest.mark.timeout(900)


@pytest.mark.xdist_group("compose")
class TestStack:
    """One stack for all of these."""

    def test_every_health_check_passes(self, stack: Stack) -> None:
        for service in SERVICES[:-1]:
            wait_for(lambda name=service: stack.healthy(name), f"{service} is healthy", limit=120)

    def test_every_target_is_up(self, prometheus: PrometheusApi) -> None:
        jobs = {"stagewatch", "stagewatch-slurm", "stagewatch-judge"}
        jobs |= {"node_exporter", "prometheus", "alertmanager"}

        def up() -> set[str]:
            return {sample.labels["job"] for sample in prometheus.query("up == 1")}

        wait_for(lambda: up() == jobs, f"all of {sorted(jobs)} are up", limit=120)

    def test_all_rules_load(self, stack: Stack, prometheus: PrometheusApi) -> None:
        url = f"http://127.0.0.1:{stack.ports['PROMETHEUS']}/api/v1/rules"
        with urllib.request.urlopen(url) as answer:
            groups = json.load(answer)["data"]["groups"]
        loaded = {Path(group["file"]).name for group in groups}
        assert loaded == {*rules(), "site.rules.yaml"}

    def test_the_node_agent_is_no_root_and_holds_two_capabilities(self, stack: Stack) -> None:
        pid = stack.container("node")["State"]["Pid"]
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        assert fields["Uid"].split() == ["9947"] * 4
        assert int(fields["CapPrm"], 16) == 0  # a child has taken them over
        assert fields["NoNewPrivs"] == "1"

    @pytest.mark.parametrize("service", ["slurm", "judge"])
    def test_the_slurm_agent_and_the_judge_are_no_root_and_hold_none(
        self, stack: Stack, service: str
    ) -> None:
        pid = stack.container(service)["State"]["Pid"]
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        assert fields["Uid"].split() == ["9947"] * 4
        assert int(fields["CapEff"], 16) == 0

    def test_the_slurm_agent_has_slurms_commands_and_no_key_of_munge(self, stack: Stack) -> None:
        container = stack("ps", "-q", "slurm").strip()
        for command in ("squeue", "sinfo", "scontrol", "sacct", "sdiag"):
            assert engine.docker("exec", container, command, "--version").startswith("slurm")
        image = stack.container("slurm")["Image"]
        as_root = ("run", "--rm", "--user", "0", "--entrypoint", "ls", image)
        assert "munge.key" not in engine.docker(*as_root, "/etc/munge")

    def test_the_demo_job_hangs_and_the_alert_names_a_rank(self, prometheus: PrometheusApi) -> None:
        def named() -> list[str]:
            return [
                alert.labels["rank"]
                for alert in prometheus.alerts()
                if alert.name == "JobStalled" and alert.state == "firing" and "rank" in alert.labels
            ]

        assert wait_for(named, "JobStalled names a rank", limit=240)[0] in {"0", "1", "2", "3"}
