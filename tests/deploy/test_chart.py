"""The Helm chart, the mixin and the boards to import, as `make release` puts them together."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import stagewatch
from tests.deploy.engine import ROOT, need

KUBERNETES = tuple(f"1.{minor}" for minor in range(30, 36))
"""The versions that the chart is held to."""
OPERATORS = ("nvidia.com/v1", "monitoring.coreos.com/v1")
SWITCHES = ("node.enabled", "judge.enabled", "slurm.enabled", "networkPolicy.enabled")
HELM_LIMIT = 1 << 20
"""The most that the secret may hold in which Helm keeps a release."""

Manifest = dict[str, Any]


def put_together(directory: Path, **environ: str) -> Path:
    """What content.py writes there."""
    script = ROOT / "deploy" / "release" / "content.py"
    command = [sys.executable, str(script), str(directory)]
    subprocess.run(command, env=os.environ | environ, check=True)
    return directory


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories that are packed."""
    directory = tmp_path_factory.mktemp("content")
    return put_together(directory)


@pytest.fixture(scope="module")
def bare(content: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart without its rules and boards, which are most of it and the same in any case."""
    without = shutil.ignore_patterns("*.rules.yaml", "*.json")
    chart = tmp_path_factory.mktemp("bare") / "stagewatch"
    return Path(shutil.copytree(content / "stagewatch", chart, ignore=without))


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What Helm says."""
    need("helm")
    return subprocess.run(["helm", *arguments], capture_output=True, text=True, check=False)


@cache
def text(chart: Path, *settings: str, operators: tuple[str, ...] = OPERATORS) -> str:
    """What Helm makes of the chart, with values like `slurm.enabled=true`."""
    flags = [f"--api-versions={each}" for each in operators]
    flags += [f"--set={setting}" for setting in settings]
    done = helm("template", "release", str(chart), "--namespace=gpu", *flags)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def rendered(chart: Path, *settings: str, operators: tuple[str, ...] = OPERATORS) -> list[Manifest]:
    """The manifests of it."""
    made = text(chart, *settings, operators=operators)
    return [each for each in yaml.load_all(made, yaml.CSafeLoader) if each]


def one(found: list[Manifest], kind: str, name: str) -> Manifest:
    """The manifest of that kind and name."""
    [manifest] = [
        each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return manifest


def pod(workload: Manifest) -> Manifest:
    """The specification of a workload's pods."""
    return dict(workload["spec"]["template"]["spec"])


def containers(found: list[Manifest]) -> list[Manifest]:
    """All of the workloads."""
    pods = [pod(each) for each in found if "template" in each.get("spec", {})]
    return [one for each in pods for one in each["containers"] + each.get("initContainers", [])]


@cache
def problem(manifest: str, version: str) -> str:
    """What that Kubernetes has against a manifest, given as JSON, or the Prometheus operator."""
    if "coreos.com" in (read := json.loads(manifest))["apiVersion"]:
        models = pytest.importorskip(
            "cloudcoil.models.prometheus_operator.v1", reason="needs cloudcoil"
        )
        known = getattr(models, read["kind"]).model_validate(read)
        # Fields that the schema does not know are dropped on the way.
        same = json.loads(known.model_dump_json(by_alias=True, exclude_unset=True)) == read
        return "" if same else "it has a field that the schema does not know"
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    try:
        validator.validate(json.loads(manifest), version, strict=True)
    except validator.ValidationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "operators",
    [OPERATORS, OPERATORS[:1], OPERATORS[1:], ()],
    ids=["both", "gpu", "prometheus", "none"],
)
def test_every_combination_is_valid(bare: Path, operators: tuple[str, ...]) -> None:
    for states in itertools.product(("true", "false"), repeat=len(SWITCHES)):
        settings = [f"{name}={state}" for name, state in zip(SWITCHES, states, strict=True)]
        found = rendered(bare, *settings, operators=operators)
        names = [(each["kind"], each["metadata"]["name"]) for each in found]
        assert len(names) == len(set(names))
        assert {each["metadata"]["namespace"] for each in found} <= {"gpu"}
        custom = {each["kind"] for each in found if "coreos.com" in each["apiVersion"]}
        assert not custom or OPERATORS[1] in operators
        for manifest, version in itertools.product(found, KUBERNETES):
            assert problem(json.dumps(manifest), version) == "", settings
        for container in containers(found):
            security = container["securityContext"]
            assert "privileged" not in security and not security["allowPrivilegeEscalation"]


def test_boards_are_valid_and_rules_come_with_the_prometheus_operator(content: Path) -> None:
    found = rendered(content / "stagewatch")
    boards = [each for each in found if each["kind"] == "ConfigMap"]
    assert len(boards) == len(list((ROOT / "dashboards" / "generated").glob("*.json")))
    assert not [each for each in boards if problem(json.dumps(each), KUBERNETES[0])]
    kinds = {each["kind"] for each in rendered(content / "stagewatch", operators=())}
    assert not {"PodMonitor", "PrometheusRule"} & kinds
    for kind in ("PodMonitor", "PrometheusRule"):
        custom = [each for each in found if each["kind"] == kind]
        assert custom
        assert not [each for each in custom if problem(json.dumps(each), KUBERNETES[0])]


def test_defaults_run_with_the_gpu_operator_and_without(content: Path) -> None:
    with_it = pod(one(rendered(content / "stagewatch"), "DaemonSet", "stagewatch-node"))
    assert with_it["runtimeClassName"] == "nvidia"
    assert with_it["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    found = rendered(content / "stagewatch", operators=())
    without = pod(one(found, "DaemonSet", "stagewatch-node"))
    assert not {"runtimeClassName", "nodeSelector"} & without.keys()


@pytest.mark.parametrize("file", ["node", "judge", "slurm/slurm"])
def test_a_workload_is_that_of_the_manifests_but_for_what_a_chart_adds(
    content: Path, file: str
) -> None:
    source = (ROOT / "deploy" / "kubernetes" / f"{file}.yaml").read_text()
    manifests = list(yaml.load_all(source, yaml.CSafeLoader))
    [wanted] = [each for each in manifests if "template" in each["spec"]]
    found = rendered(content / "stagewatch", "slurm.enabled=true")
    made = one(found, wanted["kind"], wanted["metadata"]["name"])
    assert pod(made).pop("serviceAccountName") == made["metadata"]["name"]
    del made["spec"]["template"]["spec"]["serviceAccountName"]
    [container], [base] = pod(made)["containers"], pod(wanted)["containers"]
    assert container.pop("image") == f"{base.pop('image')}:{stagewatch.__version__}"
    assert made["spec"] == wanted["spec"]


def test_every_agent_has_the_one_image_and_slurm_another_where_it_is_named(content: Path) -> None:
    def images(*settings: str) -> set[str]:
        found = rendered(content / "stagewatch", "slurm.enabled=true", *settings)
        return {container["image"] for container in containers(found)}

    version = stagewatch.__version__
    assert images() == {f"stagewatch:{version}"}
    assert images("images.agent.tag=site") == {"stagewatch:site"}
    other = images("images.slurm.repository=registry.example.org/other")
    assert other == {f"stagewatch:{version}", f"registry.example.org/other:{version}"}


def test_the_chart_of_a_forge_takes_the_image_that_the_forge_publishes(tmp_path: Path) -> None:
    made = put_together(tmp_path, STAGEWATCH_IMAGE="ghcr.io/Group/stagewatch") / "stagewatch"
    found = rendered(made, "slurm.enabled=true")
    published = f"ghcr.io/group/stagewatch:{stagewatch.__version__}"
    assert {container["image"] for container in containers(found)} == {published}


def test_a_site_lays_its_values_over_the_manifests(content: Path, tmp_path: Path) -> None:
    (values := tmp_path / "values.yaml").write_text("""
cluster: berlin
images: {agent: {repository: registry.example.org/stagewatch, tag: site}}
node:
  env: {STAGEWATCH_LOG_LEVEL: debug}
  pod: {nodeSelector: {pool: gpu}, tolerations: [], runtimeClassName: null}
  container: {resources: {limits: {memory: 1Gi}}}
judge: {replicas: 2, env: {PROMETHEUS: https://prometheus.example.org}}
monitors: {labels: {release: prom}}
links: {runbooks: https://wiki.example.org, grafana: https://grafana.example.org}
prometheus: {serviceAccount: prometheus-k8s}
""")
    chart = str(content / "stagewatch")
    api = [f"--api-versions={each}" for each in OPERATORS]
    done = helm("template", "release", chart, f"--values={values}", *api)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]
    node = pod(one(found, "DaemonSet", "stagewatch-node"))
    assert node["nodeSelector"] == {"nvidia.com/gpu.present": "true", "pool": "gpu"}
    assert node["tolerations"] == []
    [container] = node["containers"]
    assert container["image"] == "registry.example.org/stagewatch:site"
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert container["resources"]["requests"]
    environ = {each["name"]: each["value"] for each in container["env"]}
    assert environ.keys() >= {"STAGEWATCH_LISTEN", "STAGEWATCH_LOG_LEVEL"}
    assert one(found, "Deployment", "stagewatch-judge")["spec"]["replicas"] == 2
    [_, egress] = one(found, "NetworkPolicy", "stagewatch-judge")["spec"]["egress"]
    assert egress["ports"] == [{"port": 443}]
    for name in ("stagewatch-node", "stagewatch-judge"):
        monitor = one(found, "PodMonitor", name)
        assert monitor["metadata"]["labels"]["release"] == "prom"
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        given = {each.get("targetLabel"): each for each in endpoint["relabelings"]}
        assert given["cluster"]["replacement"] == "berlin"
    [subject] = one(found, "RoleBinding", "stagewatch-prometheus")["subjects"]
    assert subject["name"] == "prometheus-k8s"
    rules = [each for each in found if each["kind"] == "PrometheusRule"]
    links = re.findall(r"(?:runbook|dashboard)_url: '?\"?([^'\"\s]+)", yaml.safe_dump(rules))
    assert links
    assert all(re.match(r"https://(wiki|grafana)\.example\.org/", link) for link in links)


def test_rules_link_to_the_judge_where_browsers_reach_it(content: Path) -> None:
    found = rendered(
        content / "stagewatch", "judge.env.STAGEWATCH_JUDGE_URL=https://judge.example.org/"
    )
    rules = [each for each in found if each["kind"] == "PrometheusRule"]
    links = re.findall(r"runbook_url: '?\"?([^'\"\s]+)", yaml.safe_dump(rules))
    assert links
    assert all(link.startswith("https://judge.example.org/runbooks/") for link in links)
    [container] = pod(one(found, "Deployment", "stagewatch-judge"))["containers"]
    environ = {each["name"]: each.get("value") for each in container["env"]}
    assert environ["STAGEWATCH_JUDGE_URL"] == "https://judge.example.org/"


@pytest.mark.parametrize(("act", "resources"), [
    ("propose", None),
    ("comment", {"events"}),
    ("drain", {"events", "nodes", "nodes/status"}),
])  # fmt: skip
def test_a_judge_has_the_rights_that_it_acts_by_and_no_others(
    bare: Path, act: str, resources: set[str] | None
) -> None:
    found = rendered(bare, f"judge.act={act}")
    roles = [each for each in found if each["kind"] == "ClusterRole"]
    judge = pod(one(found, "Deployment", "stagewatch-judge"))
    environ = {each["name"]: each.get("value") for each in judge["containers"][0]["env"]}
    assert judge["automountServiceAccountToken"] == bool(resources)
    assert environ.get("STAGEWATCH_JUDGE_ACT") == (act if resources else None)
    assert bool(roles) == bool(resources)
    for role in roles:
        rules = role["rules"]
        assert {each for rule in rules for each in rule["resources"]} == resources
        assert {verb for rule in rules for verb in rule["verbs"]} <= {"create", "list", "patch"}
        [binding] = [each for each in found if each["kind"] == "ClusterRoleBinding"]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        for manifest, version in itertools.product((role, binding), KUBERNETES):
            assert problem(json.dumps(manifest), version) == ""


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("node.enabld=true", "'enabld' not allowed"),
        ("judge.act=reboot", "must be one of"),
        ("judge.env.PROMETHEUS=prometheus:9090", "does not match pattern"),
        ("node.pod.containers[0].name=other", "/node/pod/containers"),
    ],
)
def test_a_value_that_means_nothing_is_named(content: Path, setting: str, problem: str) -> None:
    done = helm("template", "release", str(content / "stagewatch"), f"--set={setting}")
    assert done.returncode != 0
    assert problem in done.stderr


def test_helm_finds_nothing_to_say_and_can_keep_the_release(content: Path, tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(content / "stagewatch"))
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copytree(content / "stagewatch", tmp_path / "release" / "chart")
    (tmp_path / "release" / "manifest").write_text(text(content / "stagewatch"))
    packed = shutil.make_archive(str(tmp_path / "packed"), "gztar", tmp_path / "release")
    assert Path(packed).stat().st_size * 3 < HELM_LIMIT, "base64 twice, and less well packed"


def mixin(content: Path, field: str, site: str = "{}") -> Any:
    """A field of the mixin with a site's configuration, by jsonnet."""
    jsonnet = pytest.importorskip("_jsonnet", reason="needs jsonnet")
    file = str(content / "stagewatch-mixin" / "site.jsonnet")
    snippet = f"local mixin = (import 'mixin.libsonnet') + {site}; mixin.{field}"
    return json.loads(jsonnet.evaluate_snippet(file, snippet))


def unordered(found: list[Any]) -> list[str]:
    """The same for the same things in whatever order."""
    return sorted(json.dumps(each, sort_keys=True) for each in found)


def test_rules_of_the_chart_and_of_the_mixin_are_those_that_are_exported(content: Path) -> None:
    files = sorted((content / "stagewatch" / "rules").iterdir())
    assert {file.name for file in files} >= {f.name for f in (ROOT / "alerts").glob("*.rules.yaml")}
    exported = [yaml.load(file.read_text(), yaml.CSafeLoader) for file in files]
    chart = [each["spec"] for each in rendered(content / "stagewatch")
             if each["kind"] == "PrometheusRule"]  # fmt: skip
    assert unordered(chart) == unordered(exported)
    groups = mixin(content, "prometheusAlerts.groups + mixin.prometheusRules.groups")
    wanted = [group for each in exported for group in each["groups"]]
    assert unordered(groups) == unordered(wanted)
    records = mixin(content, "prometheusRules.groups")
    assert not [rule for group in records for rule in group["rules"] if "alert" in rule]
    ours = {file.name: json.loads(file.read_text()) for file in
            (ROOT / "dashboards" / "generated").glob("*.json")}  # fmt: skip
    assert mixin(content, "grafanaDashboards") == ours


def test_the_mixin_completes_the_links_of_alerts(content: Path) -> None:
    sites = "{_config+:: {runbooks: 'https://wiki', grafana: 'https://grafana'}}"
    groups = mixin(content, "prometheusAlerts.groups", sites)
    links = [rule["annotations"][name] for group in groups for rule in group["rules"]
             for name in ("runbook_url", "dashboard_url")
             if name in rule.get("annotations", {})]  # fmt: skip
    assert links
    assert all(link.startswith(("https://wiki/", "https://grafana/d/")) for link in links)
    boards = mixin(content, "grafanaDashboards", sites).values()
    places = [(each["type"], each["query"]) for board in boards
              for each in board["templating"]["list"] if each["name"] == "runbooks"]  # fmt: skip
    assert places == [("constant", "https://wiki")] * 2


def test_a_board_to_import_asks_for_its_data_source(content: Path) -> None:
    boards = sorted((content / "stagewatch-boards").glob("*.json"))
    assert len(boards) == len(list((ROOT / "dashboards" / "generated").glob("*.json")))
    for file in boards:
        board = json.loads(file.read_text())
        [asked] = board.pop("__inputs")
        assert (asked["name"], asked["type"]) == ("DS_PROMETHEUS", "datasource")
        assert {each["type"] for each in board.pop("__requires")} == {"grafana", "datasource"}
        chosen = [each["current"] for each in board["templating"]["list"]
                  if each["type"] == "datasource"]  # fmt: skip
        assert chosen == [{"text": "${DS_PROMETHEUS}", "value": "${DS_PROMETHEUS}"}]
        ours = json.loads((ROOT / "dashboards" / "generated" / file.name).read_text())
        assert board["panels"] == ours["panels"]
