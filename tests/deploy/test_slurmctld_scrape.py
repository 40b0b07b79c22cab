"""deploy/prometheus/slurmctld.yml: a real Prometheus scrapes the pages of Slurm's own endpoint."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from stagewatch.core.processes import Children
from tests.deploy.engine import ROOT
from tests.deploy.store import Pages, Prometheus
from tests.waiting import wait_for

PAGES = {
    "/metrics/jobs": "# HELP slurm_jobs Total number of jobs\n# TYPE slurm_jobs gauge\n"
    "slurm_jobs 42\nslurm_jobs_running 15\nslurm_jobs_pending 27\nslurm_jobs_cpus_alloc 9\n",
    "/metrics/nodes": 'slurm_nodes 100\nslurm_nodes_idle 85\nslurm_node_cpus{node="n1"} 96\n',
    "/metrics/scheduler": "slurm_schedule_cycle_tot 2500000\nslurm_bf_cycle_tot 1000000\n"
    "slurm_sched_exit_timeout 3\nslurm_sdiag_jobs_pending 27\n",
}


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")
def test_the_endpoint_is_scraped_under_names_of_our_own(children: Children, tmp_path: Path) -> None:
    """Our `slurm_jobs` is not theirs, series of single nodes stay out, and the rules take over."""
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "slurmctld.yml").read_text())
    rules = yaml.safe_load((ROOT / "alerts" / "slurm-builtin.rules.yaml").read_text())
    for group in rules["groups"]:
        group["interval"] = "1s"
    (tmp_path / "rules.json").write_text(json.dumps(rules))  # JSON is YAML
    pages = Pages({path: lambda text=text: text for path, text in PAGES.items()})  # type: ignore[misc]
    with closing(pages):
        (job,) = config["scrape_configs"]
        job["scrape_interval"] = job["scrape_timeout"] = "1s"
        for target in job["static_configs"]:
            target["targets"] = [pages.address]
        config["rule_files"] = [str(tmp_path / "rules.json")]
        prometheus = Prometheus(children, tmp_path / "prometheus", json.dumps(config))

        def recorded(name: str) -> dict[str, float]:
            found = prometheus.query(f"cluster:slurm_builtin_{name}:max")
            return {
                each["metric"].get("state", each["metric"].get("reason", "")): float(
                    each["value"][1]
                )
                for each in found
            }

        jobs = wait_for(lambda: recorded("jobs"), "the jobs to be recorded")
        assert jobs == {"running": 15, "pending": 27}
        assert wait_for(lambda: recorded("nodes"), "the nodes") == {"idle": 85}
        cycles = wait_for(lambda: recorded("scheduler_cycle_seconds_total"), "the cycles")
        assert cycles == {"": 2.5}
        assert wait_for(lambda: recorded("scheduler_exits_total"), "the exits") == {"timeout": 3}
        assert prometheus.query('{__name__=~"slurm_.+"}') == []
        assert prometheus.query('{__name__=~"slurmctld_.+", node!=""}') == []
