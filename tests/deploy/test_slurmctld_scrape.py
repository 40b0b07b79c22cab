"""deploy/prometheus/slurmctld.yml: a real Prometheus scrapes the pages of Slurm's own endpoint."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

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


def test_the_endpoint_is_scraped_under_names_of_our_own(children: Children, tmp_path: Path) -> None:
    """Our `slurm_jobs` is not theirs, and series of single nodes stay out."""
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "slurmctld.yml").read_text())
    pages = Pages({path: lambda text=text: text for path, text in PAGES.items()})  # type: ignore[misc]
    with closing(pages):
        (job,) = config["scrape_configs"]
        job["scrape_interval"] = job["scrape_timeout"] = "1s"
        for target in job["static_configs"]:
            target["targets"] = [pages.address]
        prometheus = Prometheus(children, tmp_path / "prometheus", json.dumps(config))

        def scraped(name: str) -> list[float]:
            return [float(each["value"][1]) for each in prometheus.query(f"slurmctld_{name}")]

        assert wait_for(lambda: scraped("jobs_running"), "the page of jobs") == [15]
        assert wait_for(lambda: scraped("nodes_idle"), "the page of nodes") == [85]
        assert wait_for(lambda: scraped("schedule_cycle_tot"), "the scheduler's page") == [2.5e6]
        assert scraped("sched_exit_timeout") == [3]
        assert prometheus.query('{__name__=~"slurm_.+"}') == []
        assert prometheus.query('{__name__=~"slurmctld_.+", node!=""}') == []
