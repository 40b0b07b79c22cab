"""The manifests: built by kustomize, and valid by the schemas that Kubernetes and the Prometheus
operator publish."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import stagewatch
from tests.deploy.engine import ROOT, need
from tests.deploy.test_chart import KUBERNETES, problem

HERE = ROOT / "deploy" / "kubernetes"
JUDGE = "stagewatch-judge"
KUBECTL_LIMIT = 1 << 20
"""The most a ConfigMap may hold; see the documentation of ConfigMap."""

Manifest = dict[str, Any]


def manifests() -> Iterator[Manifest]:
    """Every manifest that the kustomization and the component of the Slurm agent name."""
    for directory in (HERE, HERE / "slurm"):
        for name in kustomization(directory)["resources"]:
            yield from yaml.load_all((directory / name).read_text(), yaml.CSafeLoader)


def kustomization(directory: Path = HERE) -> Manifest:
    """A kustomization."""
    content = yaml.safe_load((directory / "kustomization.yaml").read_text())
    assert isinstance(content, dict)
    return content


def built(directory: Path) -> list[Manifest]:
    """What kustomize makes of a directory."""
    need("kubectl")
    done = subprocess.run(
        ["kubectl", "kustomize", "--load-restrictor", "LoadRestrictionsNone", str(directory)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def of_kind(kind: str) -> list[Manifest]:
    """The manifests of one kind."""
    return [manifest for manifest in manifests() if manifest["kind"] == kind]


def container(manifest: Manifest) -> Manifest:
    """The only container of a workload."""
    [found] = manifest["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("directory", [HERE, HERE / "slurm"], ids=str)
def test_images_are_of_this_version(directory: Path) -> None:
    [image] = kustomization(directory)["images"]
    assert image["newTag"] == stagewatch.__version__


def test_manifests_are_valid_by_the_schemas() -> None:
    kinds = {manifest["kind"] for manifest in manifests()}
    assert kinds >= {"DaemonSet", "PodMonitor", "PrometheusRule"}
    for manifest, version in itertools.product(manifests(), (KUBERNETES[0], KUBERNETES[-1])):
        assert problem(json.dumps(manifest), version) == ""


def overlay(directory: Path) -> Path:
    """An overlay as docs/kubernetes.md shows it, in a directory beside a checkout."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    [example] = re.findall(r"```yaml\n(resources: .*?)```", page, re.DOTALL)
    (directory / "stagewatch").symlink_to(ROOT)
    (made := directory / "site").mkdir()
    (made / "kustomization.yaml").write_text(example)
    return made


def of_the_slurm_agent(found: list[Manifest]) -> set[str]:
    """The kinds that carry the label of the Slurm agent."""
    label = "app.kubernetes.io/component"
    return {each["kind"] for each in found if each["metadata"]["labels"].get(label) == "slurm"}


def test_a_cluster_without_slurm_gets_no_slurm_agent() -> None:
    assert of_the_slurm_agent(built(HERE)) == set()


def test_the_documented_overlay_adds_the_slurm_agent_and_names_the_image(tmp_path: Path) -> None:
    found = built(overlay(tmp_path))
    kinds = {"Deployment", "PersistentVolumeClaim", "PodMonitor", "Service"}
    assert of_the_slurm_agent(found) == kinds
    images = {container(each)["image"] for each in found if "template" in each.get("spec", {})}
    assert images == {f"registry.example.org/stagewatch:{stagewatch.__version__}"}
    assert {each["metadata"].get("namespace") for each in found} == {None, "stagewatch"}


def test_two_judges_may_run_beside_each_other(tmp_path: Path) -> None:
    site = overlay(tmp_path) / "kustomization.yaml"
    site.write_text(site.read_text() + "replicas: [{name: stagewatch-judge, count: 2}]\n")
    [judge] = [each for each in built(site.parent) if each["metadata"]["name"] == JUDGE
               and each["kind"] == "Deployment"]  # fmt: skip
    assert judge["spec"]["replicas"] == 2
    volumes = judge["spec"]["template"]["spec"]["volumes"]
    assert all("emptyDir" in volume for volume in volumes), "they share no volume"
    [spread] = judge["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_kustomize_builds_every_dashboard_and_rule() -> None:
    found = built(HERE)
    boards = [manifest for manifest in found if manifest["kind"] == "ConfigMap"]
    assert len(boards) == len(list((ROOT / "dashboards" / "generated").glob("*.json")))
    for board in boards:
        assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
        [content] = board["data"].values()
        assert json.loads(content)["uid"]
    assert {manifest["metadata"].get("namespace") for manifest in found} == {None, "stagewatch"}
    images = {container(each)["image"] for each in found if "template" in each.get("spec", {})}
    assert len(images) == 1
    assert not images.pop().endswith(":latest")


def test_every_dashboard_becomes_a_config_map_that_is_small_enough() -> None:
    listed = [(HERE / file).resolve() for each in maps() for file in each["files"]]
    assert listed == sorted((ROOT / "dashboards" / "generated").glob("*.json"))
    assert all(file.stat().st_size < KUBECTL_LIMIT for file in listed)


def maps() -> list[Manifest]:
    """The config maps that kustomize makes."""
    return list(kustomization()["configMapGenerator"])


def test_every_rule_of_the_sources_is_in_a_prometheus_rule() -> None:
    deployed = [group for rule in of_kind("PrometheusRule") for group in rule["spec"]["groups"]]
    sources = [
        group
        for file in sorted((ROOT / "alerts").glob("*.rules.yaml"))
        for group in yaml.load(file.read_text(), yaml.CSafeLoader)["groups"]
    ]
    assert deployed == sources


def test_selectors_ports_and_volumes_name_what_is_there() -> None:
    workloads = of_kind("DaemonSet") + of_kind("Deployment")
    labels = [workload["spec"]["template"]["metadata"]["labels"] for workload in workloads]
    for workload in workloads:
        assert workload["spec"]["selector"]["matchLabels"] in labels
        volumes = {volume["name"] for volume in workload["spec"]["template"]["spec"]["volumes"]}
        assert {mount["name"] for mount in container(workload)["volumeMounts"]} == volumes
    ports = {port["name"] for each in workloads for port in container(each)["ports"]}
    for service in of_kind("Service"):
        assert service["spec"]["selector"] in labels
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for monitor in of_kind("PodMonitor"):
        assert monitor["spec"]["selector"]["matchLabels"] in labels
        assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports


def test_monitors_give_the_labels_that_rules_and_dashboards_need() -> None:
    jobs = set()
    for monitor in of_kind("PodMonitor"):
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        targets = {rule.get("targetLabel"): rule for rule in endpoint["relabelings"]}
        jobs.add(targets["job"]["replacement"])
        assert "cluster" in targets
        assert ("node" in targets) == (monitor["metadata"]["name"] == "stagewatch-node")
        assert endpoint.get("honorLabels", False) == (
            monitor["metadata"]["name"] == "stagewatch-judge"
        )
    assert jobs == {"stagewatch", "stagewatch-judge", "stagewatch-slurm"}


def test_agents_hold_no_more_than_they_need() -> None:
    [node], [judge, slurm] = of_kind("DaemonSet"), of_kind("Deployment")
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    for workload, service in ((node, "node"), (judge, "judge"), (slurm, "slurm")):
        security = container(workload)["securityContext"]
        assert not security["allowPrivilegeEscalation"]
        assert security["readOnlyRootFilesystem"]
        of_pod = workload["spec"]["template"]["spec"].get("securityContext", {})
        assert (security | of_pod)["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security["capabilities"]["drop"] == ["ALL"]
        assert security["capabilities"].get("add", []) == compose[service].get("cap_add", [])
        assert not workload["spec"]["template"]["spec"]["automountServiceAccountToken"]
    for workload in (judge, slurm):
        security = workload["spec"]["template"]["spec"]["securityContext"]
        assert security["runAsNonRoot"]
    assert not {"hostPID", "hostNetwork"} & judge["spec"]["template"]["spec"].keys()
    writable = [mount for mount in container(node)["volumeMounts"] if not mount.get("readOnly")]
    assert {Path(mount["mountPath"]) for mount in writable} == {
        Path("/run/stagewatch"), Path("/var/lib/stagewatch"), Path("/tmp"),
    }  # fmt: skip
