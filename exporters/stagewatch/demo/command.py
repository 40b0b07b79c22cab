"""Watches a real job of many processes go wrong, and the stack say where it began.

Without --scenario it starts two node agents, a job of eight processes and Prometheus, lets the job
hang the way a 64-GPU job once did (one rank leaves the loop early, the others spin in the next
all-reduce), and shows which alert fired when and whom it named.  The other scenarios come with a
clone of the repository.  They put a fault into a small RL training system (S1), or into a real
Slurm cluster on this machine (S3 and S4, which need Slurm's daemons and root).  The demo ends by
itself and leaves nothing behind."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Mapping
from importlib import import_module
from types import FrameType
from typing import Protocol

from stagewatch.core.config import add_options, options_of
from stagewatch.core.errors import ConfigError
from stagewatch.demo.cluster import JOB_ID, NODES, RANKS, DemoCluster
from stagewatch.demo.options import SYNC_STALL, DemoOptions
from stagewatch.demo.own_command import own_command
from stagewatch.demo.progress import Progress
from stagewatch.prometheus.api import Alert, PrometheusApi

ARMED = f'job_role_stage:rl_stall_budget:seconds{{job_id="{JOB_ID}", stage="train"}}'
SOURCES = "S0 to S4: the account each is modelled on, #: the fault in it; see docs/scenarios.md"
EXPECTED = ("StalledHeartbeat", "BusyPollHang")


class Lab(Protocol):
    """What `stagewatch_lab.command` offers, where the repository is at hand."""

    def summaries(self) -> Mapping[str, str]:
        """What goes wrong in each scenario, by name."""

    def run(self, options: DemoOptions) -> int:
        """Play one; the exit status."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch demo`."""
    add_options(parser, {"demo": DemoOptions})
    parser.epilog = f"scenarios ({SOURCES}):\n{_table()}"


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 if the stack named where it began, 1 if not."""
    options = options_of(arguments, DemoOptions, "demo")
    if options.scenario == "list":
        print(_table())
        return 0
    lab = _lab()
    names = (SYNC_STALL, *(lab.summaries() if lab else ()))
    if options.scenario not in names:
        hint = "" if lab else "; the others come with a clone of the repository (make demo)"
        raise ConfigError(
            f"--scenario {options.scenario}: must be list or one of {', '.join(names)}{hint}"
        )
    signal.signal(signal.SIGTERM, _interrupt)
    if lab is None or options.scenario == SYNC_STALL:
        return _sync_stall(options)
    return lab.run(options)


def _lab() -> Lab | None:
    """The scenarios of the repository; a wheel does not carry them."""
    try:
        lab: Lab = import_module("stagewatch_lab.command")
    except ModuleNotFoundError as error:
        if error.name == "stagewatch_lab":
            return None
        raise
    return lab


def _sync_stall(options: DemoOptions) -> int:
    show = Progress()
    show.step("finding Prometheus (on the PATH, as a package, or a container)")
    with DemoCluster(cache=options.cache, seed=options.seed) as cluster:
        show.step(f"starting {len(NODES)} node agents, {RANKS} ranks of job {JOB_ID}, Prometheus")
        api = cluster.start()
        show.say(f"Prometheus   {api.alerts_page()}")
        for node, address in cluster.agents.items():
            show.say(f"{node}       http://{address}/")
        show.step("training; the rules learn how long a step may take")
        show.wait_until(lambda: bool(api.query(ARMED)), 120, "the rules did not learn a budget")
        steps = options.baseline_steps
        show.wait_until(lambda: cluster.steps() >= steps, 120 + 4 * steps, f"not {steps} steps")
        injected = cluster.inject_stall()
        show.step(
            f"step {cluster.steps()}, and time is up: one rank, its clock ahead, leaves first"
        )
        fired = _watch(api, show, injected)
        named = _report(cluster, fired)
        if options.keep:
            print("\nEverything keeps running; Ctrl-C ends it.  Try, in another terminal:")
            for node in NODES:
                inspect = f"{own_command()} inspect --record-dir {cluster.record_dir(node)}"
                print(f"  {inspect}", flush=True)
            signal.pause()
        api.close()
    return 0 if named else 1


def _watch(api: PrometheusApi, show: Progress, injected: float) -> dict[str, tuple[float, Alert]]:
    """The alerts that fire, with the seconds since the injection."""
    fired: dict[str, tuple[float, Alert]] = {}

    def all_fired() -> bool:
        for alert in api.alerts():
            if alert.state == "firing" and alert.name not in fired:
                fired[alert.name] = (time.time() - injected, alert)
                show.say(f"ALERT {alert.name}: {alert.annotations['description']}")
        return all(name in fired for name in EXPECTED)

    show.wait_until(all_fired, 120, f"{' and '.join(EXPECTED)} did not both fire")
    return fired


def _report(cluster: DemoCluster, fired: dict[str, tuple[float, Alert]]) -> bool:
    """Print what fired and whether the culprit is the rank that really left; returns that."""
    truth = cluster.ranks[cluster.early]
    labels = fired["BusyPollHang"][1].labels
    named = (labels["rank"], labels["node"], labels["pid"]) == (
        str(truth.rank),
        truth.node,
        str(truth.process.pid),
    )
    print("\nAlert              fired after the end of the job's time")
    for name, (after, _) in sorted(fired.items(), key=lambda item: item[1][0]):
        print(f"{name:<18} {after:5.1f} s")
    print(
        f"\nCulprit named      rank {labels['rank']} on {labels['node']}, pid {labels['pid']}, "
        f"stage {labels['stage']}, evidence {labels['evidence']}"
        f"\nReally left early  rank {truth.rank} on {truth.node}, pid {truth.process.pid}"
        f"\nVerdict            the {'right' if named else 'WRONG'} rank was named"
    )
    return named


def _table() -> str:
    lab = _lab()
    summaries = {
        SYNC_STALL: "S0: one rank leaves the loop early, the others spin",
        **(lab.summaries() if lab else {}),
    }
    return "\n".join(f"  {name:<18} {summary}" for name, summary in summaries.items())


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
