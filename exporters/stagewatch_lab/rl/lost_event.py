"""S1 #4: colocated workers share a GPU, and the event that hands it over does not arrive."""

from __future__ import annotations

import json

from stagewatch_lab.rl.scenario import Scenario, Surface

DELAY_SECONDS = 300


class LostEvent(Scenario):
    """Train keeps the GPU, rollout cannot have it, and both wait."""

    name = "lost-event"
    source = "S1 #4"
    summary = "the event that hands a shared GPU to a rollout worker is held up by 300 s"
    fault_type = "event_delay"
    expected_failure_stage = "rollout"
    stage = "save"
    naming = ("JobStalled", "Straggler")
    worker = ("rollout", 0)
    surface = Surface("rollout", "rollout", "OutOfDeviceMemory", "CUDA out of memory")

    def prepare(self) -> None:
        self.hold_up("rollout-0.event", "rollout-0", "event")

    def inject(self) -> None:
        delay = self.job.plan.seconds(DELAY_SECONDS)
        self.control("event").write_text(json.dumps({"delay": delay, "jitter": 0.0}))
        self.means.append(f"events for {self.target} take {delay:.0f} s either way")

    def revert(self) -> None:
        self.control("event").unlink(missing_ok=True)


class UnresolvedName(LostEvent):
    """The same, because a name does not resolve."""

    name = "unresolved-name"
    source = "S1 #4, DNS"
    summary = "the name of the event's receiver no longer resolves"
    fault_type = "dns_failure"

    def prepare(self) -> None:
        pass

    def inject(self) -> None:
        port = self.job.book.wait("rollout-0")[1]
        self.job.book.publish("rollout-0.event", ("rollout-0.invalid", port))
        self.means.append("events go to rollout-0.invalid, a name that never resolves (RFC 6761)")

    def revert(self) -> None:
        self.job.book.remove("rollout-0.event")
