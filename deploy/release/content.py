"""Writes what sites load into other programs: `content.py DIRECTORY`.

DIRECTORY/stagewatch is the Helm chart, with the manifests of deploy/kubernetes, the rules and the
boards in it; stagewatch-mixin beside it holds rules and boards for jsonnet, and stagewatch-boards
the boards for an import by hand, which asks for a data source first.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

import stagewatch
from stagewatch.assets import export

DEPLOY = Path(__file__).parents[1]


def write(directory: Path) -> None:
    """Write all three."""
    with tempfile.TemporaryDirectory() as exported:
        export(Path(exported))
        (site := Path(exported, "alerts")).joinpath("site.rules.yaml").unlink()
        rules = sorted(site.glob("*.rules.yaml"))
        boards = sorted(Path(exported, "dashboards").glob("*.json"))
        _chart(directory / "stagewatch", rules, boards)
        _mixin(directory / "stagewatch-mixin", rules, boards)
        _boards(directory / "stagewatch-boards", boards)


def _chart(directory: Path, rules: list[Path], boards: list[Path]) -> None:
    shutil.copytree(DEPLOY / "helm" / "stagewatch", directory)
    kubernetes = DEPLOY / "kubernetes"
    manifests = [kubernetes / f"{name}.yaml" for name in ("node", "judge", "monitors")]
    manifests += [kubernetes / "slurm" / f"{name}.yaml" for name in ("slurm", "monitor")]
    _copy(manifests, directory / "manifests")
    _copy(rules, directory / "rules")
    _copy(boards, directory / "boards")
    if image := os.environ.get("STAGEWATCH_IMAGE", "").lower():  # as registries want it
        values = directory / "values.yaml"
        agent = values.read_text().replace("{repository: stagewatch,", f"{{repository: {image},")
        values.write_text(agent)
    chart = directory / "Chart.yaml"
    chart.write_text(
        chart.read_text().replace("ersion: 0.0.0", f"ersion: {stagewatch.__version__}")
    )


def _mixin(directory: Path, rules: list[Path], boards: list[Path]) -> None:
    """Rules become JSON: not every jsonnet knows the anchors of YAML."""
    (directory / "rules").mkdir(parents=True)
    for file in rules:
        groups = yaml.safe_load(file.read_text())
        (directory / "rules" / f"{file.stem}.json").write_text(json.dumps(groups, indent=2) + "\n")
    _copy(boards, directory / "boards")
    shutil.copy(DEPLOY / "mixin" / "mixin.libsonnet", directory)
    read = [f"    import 'rules/{file.stem}.json'," for file in rules]
    shown = [f"    '{file.name}': import 'boards/{file.name}'," for file in boards]
    lines = ["{", "  rules: [", *read, "  ],", "  boards: {", *shown, "  },", "}", ""]
    (directory / "files.libsonnet").write_text("\n".join(lines))


def _boards(directory: Path, boards: list[Path]) -> None:
    directory.mkdir(parents=True)
    for file in boards:
        board = importable(json.loads(file.read_text()))
        (directory / file.name).write_text(json.dumps(board, indent=2) + "\n")


def importable(board: dict[str, Any]) -> dict[str, Any]:
    """A board that asks for its data source when it is imported, as those of grafana.com do."""
    asked = {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource"}
    asked |= {"pluginId": "prometheus", "pluginName": "Prometheus"}
    needs = [
        {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "11.0.0"},
        {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
    ]
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource":
            variable["current"] = {"text": "${DS_PROMETHEUS}", "value": "${DS_PROMETHEUS}"}
    return {"__inputs": [asked], "__requires": needs, **board}


def _copy(files: list[Path], directory: Path) -> None:
    directory.mkdir(parents=True)
    for file in files:
        shutil.copy(file, directory)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
