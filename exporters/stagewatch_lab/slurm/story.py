"""One run of a scenario: what was done when, and what Prometheus shows of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stagewatch.core.errors import StagewatchError
from stagewatch.core.files import write_atomically
from stagewatch.faults.markers import Marker, close_marker, write_marker
from stagewatch.prometheus.api import Series
from stagewatch.prometheus.selectors import select
from stagewatch_lab.slurm.lab import NODES, SlurmLab

PATIENCE = 120.0
"""Seconds within which what a scenario waits for must be seen in Prometheus."""


@dataclass
class Fired:
    """An alert that fired; Unix seconds, as Prometheus evaluated it."""

    labels: dict[str, str]
    description: str
    at: float
    resolved: float | None = None


@dataclass
class Story:
    """The lab, the fault's marker, and the times of all later events."""

    lab: SlurmLab
    scenario: str
    source: str
    """The scenario's name in the sources, `S3` or `S4`."""
    say: Callable[[str], None] = lambda _: None
    job: str = ""
    origin: dict[str, str] = field(default_factory=dict)
    """The true place of the fault, which the stack must find."""
    phases: dict[str, float] = field(default_factory=dict)
    """Unix seconds by phase, from Prometheus, in the order of the queries."""
    alerts: dict[str, Fired] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Further observations, for comparisons."""
    fault_id: str = ""
    """Name of the marker; empty: made of the scenario and the time."""
    began: float = field(default_factory=time.time)
    marker: Marker | None = None
    cleared: float | None = None

    def train(self, nodes: int = 2) -> str:
        """A job of its own for this scenario, once it has saved a checkpoint."""
        self.job = self.lab.train(nodes)
        self.say(f"job {self.job} trains on {nodes} nodes")
        self.wait(f"min({self.rank_series('rl_rank_step')}) > 5", "the job to train")
        self.lab.wait(self.lab.checkpoints(self.job).steps, "its first checkpoint")
        return self.job

    def inject(self, fault_type: str, do: Callable[[], object], **origin: str) -> None:
        """Mark the fault on every node, then do it."""
        self.origin = origin
        now = time.time()
        self.marker = Marker(
            id=self.fault_id or f"{self.scenario}-{now:.0f}",
            fault_type=fault_type,
            start=now,
            target_worker=",".join(origin.values()),
            scenario=self.source,
        )
        for node in NODES:
            write_marker(self.lab.fault_dir(node), self.marker)
        self.say(f"FAULT {fault_type} at {self.marker.target_worker}")
        do()
        marked = f'fault_injection_start_timestamp_seconds{{id="{self.marker.id}"}}'
        self.phases["injection"] = self.value(f"max({marked})", "the marker in Prometheus")

    def clear(self) -> None:
        """Close the marker."""
        if self.marker is not None and self.cleared is None:
            self.cleared = time.time()
            for node in NODES:
                close_marker(self.lab.fault_dir(node), self.marker, self.cleared)
            self.say("fault cleared")

    def query(self, expression: str) -> list[Series]:
        """An instant query."""
        return self.lab.api.query(expression)

    def wait(self, expression: str, what: str) -> list[Series]:
        """The series of an expression, once there are any."""
        return self.lab.wait(lambda: self.query(expression), f"{what}: {expression}", PATIENCE)

    def gone(self, expression: str, what: str) -> None:
        """Wait until an expression yields nothing."""
        self.lab.wait(lambda: not self.query(expression), f"{what}: {expression}", PATIENCE)

    def value(self, expression: str, what: str) -> float:
        """The only value of an expression, once there is one."""
        return self.wait(expression, what)[0].value

    def phase(self, name: str, expression: str) -> float:
        """A phase whose time is the value of an expression, if that is after the injection."""
        since = int(self.phases["injection"])  # Slurm's times are whole seconds
        return self._reached(name, self.value(f"min({expression} >= {since})", name))

    def begins(self, name: str, selector: str, since: float | None = None) -> float:
        """A phase that begins with the first sample of a series since some time."""
        self.wait(selector, name)
        return self._reached(name, self._first(selector, since))

    def expect(self, what: str, holds: object) -> None:
        """Raises `StagewatchError` if something does not hold."""
        if not holds:
            raise StagewatchError(f"{self.scenario}: expected that {what}")
        self.say(f"seen: {what}")

    def _reached(self, name: str, at: float) -> float:
        self.phases[name] = at
        self.say(f"{name.replace('_', ' ')}: +{at - self.phases['injection']:.1f} s")
        return at

    def _first(self, selector: str, since: float | None = None) -> float:
        """When a series that there is had its first sample, by default since the injection."""
        window = max(1, int(time.time() - (since or self.phases["injection"])))
        return self.value(f"min(min_over_time(timestamp({selector})[{window}s:1s]))", selector)

    def fires(self, name: str, **labels: str) -> Fired:
        """Wait for an alert to fire; the first one that does is the detection."""
        selector = select("ALERTS", alertname=name, alertstate="firing", **labels)
        self.wait(selector, f"{name} to fire")
        at = self._first(selector)
        found = next(
            each
            for each in self.lab.api.alerts()
            if each.name == name and labels.items() <= each.labels.items()
        )
        description = found.annotations["description"]
        self.alerts[name] = Fired(found.labels, description, at)
        self.phases["detection"] = min(at, self.phases.get("detection", at))
        self.say(f"ALERT {name} (+{at - self.phases['injection']:.1f} s): {description}")
        return self.alerts[name]

    def resolves(self, name: str) -> None:
        """Wait until an alert that fired does not any more."""
        fired = self.alerts[name]
        wanted = {k: v for k, v in fired.labels.items() if k not in ("alertname", "severity")}
        self.gone(select("ALERTS", alertname=name, **wanted), f"{name} to resolve")
        fired.resolved = time.time()
        self.say(f"resolved {name} (+{fired.resolved - self.phases['injection']:.1f} s)")

    def rank_series(self, metric: str, **labels: str) -> str:
        """A metric of the job's ranks that are alive, on whichever nodes."""
        on = "(cluster, node, job_id, role, rank)"
        mine = select(metric, job_id=self.job, **labels)
        return f"({mine} and on {on} rl_rank_up == 1)"

    def counter(self, metric: str, **labels: str) -> float:
        """The sum of a counter's series, 0 where there are none."""
        found = self.query(f"sum({select(metric, **labels)})")
        return found[0].value if found else 0.0

    def record(self) -> dict[str, Any]:
        """The run as data for JSON."""
        if self.marker is None:
            raise StagewatchError(f"{self.scenario} has injected nothing")
        return {
            "scenario": self.scenario,
            "source": self.source,
            "fault_id": self.marker.id,
            "fault_type": self.marker.fault_type,
            "job_id": self.job,
            "prometheus": self.lab.url,
            "target": self.marker.target_worker,
            "origin": self.origin,
            "t_baseline": self.began,
            "t_inject": self.marker.start,
            "t_end": self.cleared,
            "phases": self.phases,
            "alerts": [
                {
                    "alert": name,
                    "after": each.at - self.marker.start,
                    "resolved_after": each.resolved and each.resolved - self.marker.start,
                    "names_origin": self.origin.items() <= each.labels.items(),
                    "labels": each.labels,
                    "description": each.description,
                }
                for name, each in self.alerts.items()
            ],
            "facts": self.facts,
        }

    def save(self, path: Path) -> None:
        """Write the record atomically."""
        write_atomically(path, f"{json.dumps(self.record(), indent=2)}\n".encode(), mode=0o644)
