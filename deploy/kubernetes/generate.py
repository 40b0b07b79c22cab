"""Writes what follows from the alert rules and dashboards: `generate.py`, or `generate.py --check`.

rules.yaml holds a PrometheusRule for each of alerts/*.rules.yaml; kustomization.yaml lists the
dashboards, which kustomize turns into ConfigMaps that Grafana's sidecar picks up.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

RULE = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: stagewatch-{name}
  labels:
    app.kubernetes.io/name: stagewatch
spec:
{spec}"""

KUSTOMIZATION = """\
# Written by generate.py.  The dashboards lie outside of this directory, hence the flag:
#   kubectl kustomize --load-restrictor LoadRestrictionsNone deploy/kubernetes |
#     kubectl apply --server-side -f -
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: stagewatch
resources:
  - namespace.yaml
  - node.yaml
  - judge.yaml
  - monitors.yaml
  - rules.yaml
images:
  - name: stagewatch
    newName: stagewatch
    newTag: {version}
generatorOptions:
  disableNameSuffixHash: true
  labels:
    app.kubernetes.io/name: stagewatch
    grafana_dashboard: "1"
  annotations:
    grafana_folder: stagewatch
configMapGenerator:
{dashboards}"""

SLURM = """\
# Written by generate.py.  The Slurm agent, for clusters that have Slurm: an overlay names it beside
# the rest, which has none.
#   resources: [../stagewatch/deploy/kubernetes]
#   components: [../stagewatch/deploy/kubernetes/slurm]
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
namespace: stagewatch
resources:
  - slurm.yaml
  - monitor.yaml
images:
  - name: stagewatch-slurm
    newName: stagewatch-slurm
    newTag: {version}
"""

DASHBOARD = """\
  - name: stagewatch-dashboard-{name}
    files: [../../dashboards/generated/{name}.json]
"""


def rules() -> str:
    """All rules; the text of each file is kept as it is, comments too."""
    documents = []
    for file in sorted((ROOT / "alerts").glob("*.rules.yaml")):
        lines = [f"  {line}" if line else line for line in file.read_text().splitlines()]
        spec = "\n".join(lines) + "\n"
        documents.append(RULE.format(name=file.name.removesuffix(".rules.yaml"), spec=spec))
    return "# Written by generate.py out of alerts/*.rules.yaml.\n" + "---\n".join(documents)


def kustomization() -> str:
    """The kustomization with every dashboard."""
    boards = sorted(file.stem for file in (ROOT / "dashboards" / "generated").glob("*.json"))
    dashboards = "".join(DASHBOARD.format(name=name) for name in boards)
    return KUSTOMIZATION.format(version=version(), dashboards=dashboards)


def version() -> str:
    """The version of the package, which is the tag of the images."""
    project = (ROOT / "pyproject.toml").read_text()
    return project.partition('\nversion = "')[2].partition('"')[0]


def main(arguments: list[str]) -> int:
    """Write the files, or say which of them are out of date."""
    stale = []
    files = {"rules.yaml": rules(), "kustomization.yaml": kustomization()}
    files |= {"slurm/kustomization.yaml": SLURM.format(version=version())}
    for name, content in files.items():
        file = HERE / name
        if file.exists() and file.read_text() == content:
            continue
        stale.append(name)
        if arguments != ["--check"]:
            file.write_text(content)
    if arguments == ["--check"] and stale:
        print(f"out of date: {', '.join(stale)}; run deploy/kubernetes/generate.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
