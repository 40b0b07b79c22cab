"""Finds a Prometheus for the demo, or fetches the distribution's package, and configures it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from stagewatch.assets import assets
from stagewatch.core.errors import StagewatchError

SCRAPE_SECONDS = 2
USUAL_SECONDS = 15
"""How often, at least, a demo evaluates each group of rules: nobody watches it for two minutes."""
_SELDOM = re.compile(r"(?m)^( +interval: )(?:30s|\d+m)\b")
_NOT_FOR_AGENTS = "dcgm.rules.yaml"
"""The rules for dcgm-exporter, which no demo runs; only a checkout has the file."""


def prometheus_command(cache: Path) -> list[str]:
    """The command that runs Prometheus: from the PATH, or an unpacked package.

    Raises `StagewatchError` where none of them is available.
    """
    if installed := shutil.which("prometheus"):
        return [installed]
    unpacked = cache / "prometheus" / "usr" / "bin" / "prometheus"
    if unpacked.exists() or _unpack(cache):
        return [str(unpacked)]
    raise StagewatchError(
        "no Prometheus: install it (apt-get install prometheus, or a binary on the PATH), or have "
        "containers run the demo (docker compose --profile demo up)"
    )


def write_config(
    directory: Path,
    targets: Mapping[str, str],
    judge: str = "",
    *,
    slurm: str = "",
    every: int = SCRAPE_SECONDS,
) -> Path:
    """Write a configuration that scrapes agents (node name -> address), and a judge and a Slurm
    agent at an address, every so many seconds, with the rules in `directory/rules`: the shipped
    ones, if there are none, each group evaluated at least every `USUAL_SECONDS`."""
    rules = directory / "rules"
    if not rules.exists():
        rules.mkdir()
        for shipped in shipped_rules():
            text = _SELDOM.sub(rf"\g<1>{USUAL_SECONDS}s", shipped.read_text())
            (rules / shipped.name).write_text(text)
    jobs = {
        "stagewatch": [_target(address, node=node) for node, address in targets.items()],
        "stagewatch-slurm": [_target(slurm)] if slurm else [],
        "stagewatch-judge": [{"targets": [judge]}] if judge else [],
    }
    intervals = ("scrape_interval", "scrape_timeout", "evaluation_interval")
    config = {
        "global": dict.fromkeys(intervals, f"{every}s"),
        "rule_files": [f"{rules}/*.rules.yaml"],
        "scrape_configs": [
            {"job_name": job, "honor_labels": job == "stagewatch-judge", "static_configs": those}
            for job, those in jobs.items()
            if those
        ],
    }
    file = directory / "prometheus.yml"
    file.write_text(json.dumps(config, indent=2))  # YAML includes JSON
    return file


def shipped_rules() -> list[Path]:
    """The files of rules over what agents serve."""
    files = sorted(assets("alerts").glob("*.rules.yaml"))
    return [file for file in files if file.name != _NOT_FOR_AGENTS]


def _target(address: str, **labels: str) -> dict[str, object]:
    return {"targets": [address], "labels": {"cluster": "demo", **labels}}


def arguments(command: list[str], config: Path, port: int) -> list[str]:
    """The whole command line."""
    return [
        *command,
        f"--config.file={config}",
        f"--storage.tsdb.path={config.parent / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=1d",
        "--log.level=warn",
    ]


def judge_command(address: str, prometheus: str, directory: Path) -> list[str]:
    """The command that judges the jobs of the Prometheus at a URL."""
    return [
        *(sys.executable, "-m", "stagewatch.cli", "judge", "--listen", address),
        *("--prometheus", prometheus, "--case-dir", str(directory / "cases")),
    ]


def _unpack(cache: Path) -> bool:
    """Fetch Debian's or Ubuntu's package and unpack it, which needs no root and starts nothing."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if not apt or not dpkg:
        return False
    cache.mkdir(parents=True, exist_ok=True)
    if not _download(apt, cache):
        sudo = [] if os.getuid() == 0 else [shutil.which("sudo") or "env", "-n"]
        subprocess.run([*sudo, apt, "update"], capture_output=True, check=False)
        if not _download(apt, cache):
            return False
    package = next(cache.glob("prometheus_*.deb"))
    target = cache / "prometheus"
    unpacked = subprocess.run([dpkg, "-x", package, target], capture_output=True, check=False)
    package.unlink()
    return unpacked.returncode == 0


def _download(apt: str, cache: Path) -> bool:
    subprocess.run([apt, "download", "prometheus"], cwd=cache, capture_output=True, check=False)
    return any(cache.glob("prometheus_*.deb"))
