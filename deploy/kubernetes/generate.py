"""Writes rules.yaml, a PrometheusRule for each file of alert rules; `make rules` runs it."""

from __future__ import annotations

from pathlib import Path

from stagewatch.assets import kubernetes_rules

if __name__ == "__main__":
    (Path(__file__).parent / "rules.yaml").write_text(kubernetes_rules())
