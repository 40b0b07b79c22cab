"""Runs a scenario from its baseline to the diagnosis, and records it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from stagewatch.core.files import write_atomically
from stagewatch.faults.markers import Marker
from stagewatch.prometheus.api import Alert, PrometheusApi
from stagewatch.prometheus.selectors import select
from stagewatch_lab.rl.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Sighting:
    """An alert, and how many seconds after the injection it fired."""

    alert: str
    after: float
    names_origin: bool
    labels: dict[str, str]
    description: str


@dataclass
class Record:
    """What happened, as input for a report; times are Unix seconds."""

    scenario: str
    source: str
    fault_id: str
    fault_type: str
    job_id: str
    prometheus: str
    target: str
    origin: dict[str, str]
    """Labels of an alert that names the origin."""
    surface: dict[str, str]
    """Role, stage, error and message of the symptom."""
    t_baseline: float
    t_inject: float
    t_end: float | None = None
    t_surface: float | None = None
    means: list[str] = field(default_factory=list)
    alerts: list[Sighting] = field(default_factory=list)

    def save(self, file: Path) -> None:
        """Write it as JSON, atomically."""
        write_atomically(file, f"{json.dumps(asdict(self), indent=2)}\n".encode(), mode=0o644)


class Experiment:
    """One scenario in one running job."""

    def __init__(
        self, scenario: Scenario, api: PrometheusApi, say: Callable[[str], None], fault_id: str
    ) -> None:
        self.scenario = scenario
        self.job = scenario.job
        self.record: Record | None = None
        self._api = api
        self._say = say
        self._began = time.time()
        self._said = 0
        self._marker = Marker(
            id=fault_id,
            fault_type=scenario.fault_type,
            start=0.0,
            target_worker=scenario.target,
            expected_failure_stage=scenario.expected_failure_stage,
            scenario=scenario.source,
        )

    def warmed_up(self, steps: int) -> bool:
        """Whether enough steps are done and the rules know the duration of each stage."""
        done = self.job.steps()
        for step in range(self._said + 1, len(done) + 1):
            self._say(f"step {step} done in {done[step]:.1f} s")
            self._said = step
        if len(done) < steps:
            return False
        learnt = "job_role_stage:rl_stage_baseline_median:seconds"
        found = [series.labels for series in self._api.query(self._mine(learnt))]
        return len({(each["role"], each["stage"]) for each in found} & LEARNT) == len(LEARNT)

    def due(self) -> bool:
        """Whether the job is at the stage where the fault must begin."""
        return self.job.started(self.scenario.stage, self._next_step())

    def inject(self) -> Record:
        """Mark the fault and inject it."""
        now = time.time()
        self._marker = replace(self._marker, start=now)
        self.scenario.lab.mark(self._marker)
        self.record = Record(
            scenario=self.scenario.name,
            source=self.scenario.source,
            fault_id=self._marker.id,
            fault_type=self.scenario.fault_type,
            job_id=self.job.plan.job_id,
            prometheus=self.scenario.lab.url,
            target=self.scenario.target,
            origin=self.scenario.origin,
            surface=asdict(self.scenario.surface),
            t_baseline=self._began,
            t_inject=now,
        )
        self.scenario.inject()
        return self.record

    def end(self) -> None:
        """Undo the fault and close its marker."""
        self.scenario.revert()
        if self.record is not None and self.record.t_end is None:
            self.record.t_end = time.time()
            self.record.means = list(self.scenario.means)
            self.scenario.lab.mark(replace(self._marker, end=self.record.t_end))

    def look(self) -> None:
        """Check which alerts fire, and whether the symptom has appeared."""
        record = self._injected()
        after = time.time() - record.t_inject
        self.scenario.advance(after)
        known = {sighting.alert for sighting in record.alerts if sighting.names_origin}
        seen = {(sighting.alert, str(sighting.labels)) for sighting in record.alerts}
        for alert in self._api.alerts():
            if alert.state != "firing" or alert.name in known | ABOUT_FAULTS or self._other(alert):
                continue
            names = alert.name in self.scenario.naming and self.scenario.names(alert.labels)
            sighting = Sighting(
                alert.name, after, names, alert.labels, alert.annotations["description"]
            )
            if (sighting.alert, str(sighting.labels)) not in seen:
                record.alerts.append(sighting)
                mark = "  <- where it began" if names else ""
                self._say(f"ALERT {alert.name}: {sighting.description}{mark}")
        if record.t_surface is None and (when := self._surfaced()) is not None:
            record.t_surface = when
            surface = self.scenario.surface
            self._say(
                f"it surfaces {when - record.t_inject:.1f} s after the injection: "
                f"{surface.error} in {surface.stage} of {surface.role} ({surface.message})"
            )

    def named(self) -> Sighting | None:
        """The first alert that names the origin."""
        return next((each for each in self._injected().alerts if each.names_origin), None)

    def done(self) -> bool:
        """Whether the origin is named and the symptom has appeared."""
        return self.named() is not None and self._injected().t_surface is not None

    def _surfaced(self) -> float | None:
        """When the expected exception left its stage: the time is the first failure of a rank;
        the count proves that there was one."""
        surface = self.scenario.surface
        labels = {"role": surface.role, "stage": surface.stage, "error": surface.error}
        if not self._api.query(self._mine("rl_stage_failures_total", **labels)):
            return None
        times = self._mine("rl_rank_first_failure_timestamp_seconds", **labels)
        first = self._api.query(f"min({times})")
        return first[0].value if first else time.time()

    def _mine(self, metric: str, **labels: str) -> str:
        """A metric of this job."""
        return select(metric, job_id=self.job.plan.job_id, **labels)

    def _other(self, alert: Alert) -> bool:
        """Whether an alert is about another job."""
        return alert.labels.get("job_id", self.job.plan.job_id) != self.job.plan.job_id

    def _next_step(self) -> int:
        return len(self.job.steps()) + 1

    def _injected(self) -> Record:
        if self.record is None:
            raise RuntimeError("nothing has been injected yet")
        return self.record


ABOUT_FAULTS = frozenset({"FaultInjected", "FaultInJob", "PageDuringFault"})
LEARNT = {
    ("rollout", "rollout"),
    ("rollout", "weights_update"),
    ("train", "train"),
    ("train", "weights_update"),
    ("train", "checkpoint"),
}
