"""The judge as it is deployed: every configuration of Prometheus that we show scrapes it and keeps
its labels, and nothing restarts it while Prometheus is away."""

from __future__ import annotations

import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.deploy.engine import ROOT
from tests.deploy.store import Server
from tests.running import clean_environ
from tests.waiting import wait_for

FILES = [
    ROOT / "deploy" / "prometheus" / "prometheus.yml",
    *sorted((ROOT / "deploy" / "scale").glob("*.yml")),
]


def configurations() -> dict[str, Any]:
    """Those that scrape node agents, by name: shipped files, and what docs/operating.md shows."""
    page = (ROOT / "docs" / "operating.md").read_text()
    shown = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in FILES}
    texts |= {"docs/operating.md": next(text for text in shown if "scrape_configs" in text)}
    return {name: yaml.safe_load(text) for name, text in texts.items()}


@pytest.mark.parametrize("name", configurations())
def test_the_judge_is_scraped_at_the_shortest_interval_and_keeps_its_labels(name: str) -> None:
    configuration = configurations()[name]
    jobs = {job["job_name"]: job for job in configuration["scrape_configs"]}
    usual = configuration["global"]["scrape_interval"]
    judge, agents = jobs["stagewatch-judge"], jobs["stagewatch"]
    assert judge["honor_labels"] is True
    assert judge.get("scrape_interval", usual) == agents.get("scrape_interval", usual)
    assert not any(job.get("honor_labels") for job in jobs.values() if job is not judge)


def test_a_judge_whose_prometheus_is_away_is_healthy_and_says_what_it_lacks(
    children: Children, tmp_path: Path
) -> None:
    """Health checks of compose.yaml and Kubernetes start it again where it is not."""
    command, *flags = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["judge"][
        "command"
    ]
    listen = f"127.0.0.1:{free_port()}"
    judge = Server(f"http://{listen}")
    children.start(
        [sys.executable, "-m", "stagewatch.cli", command, *flags, f"--listen={listen}",
         "--prometheus=http://127.0.0.1:9", f"--case-dir={tmp_path / 'cases'}"],
        environ=clean_environ({}),
        log=tmp_path / "judge.log",
    )  # fmt: skip

    def blind() -> bool:
        with urllib.request.urlopen(f"{judge.url}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        assert "rl_judge_jobs " not in text
        return 'rl_judge_blind{reason="prometheus"} 1' in text

    wait_for(lambda: judge.answers("/-/healthy"), "the judge answers")
    wait_for(blind, "it tells that Prometheus does not answer")
    assert judge.answers("/-/healthy")
