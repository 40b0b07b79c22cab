"""The scenarios on a real Slurm cluster, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stagewatch_lab.slurm.job_scenarios import no_capacity, process_killed, requeue_loop
from stagewatch_lab.slurm.lab import SlurmLab
from stagewatch_lab.slurm.node_scenarios import controller_killed, node_drained, node_failed
from stagewatch_lab.slurm.story import Story


@dataclass(frozen=True, slots=True)
class SlurmScenario:
    """A description in one line, and the function that runs the scenario."""

    help: str
    source: str
    """The scenario's name in the sources: S3 or S4."""
    play: Callable[[Story], None]


SCENARIOS: Mapping[str, SlurmScenario] = {
    "process-killed": SlurmScenario(
        "a rank is killed; the job is requeued and resumes", "S3", process_killed
    ),
    "node-drained": SlurmScenario(
        "a node is drained under a job; the alert says how to resume it", "S4", node_drained
    ),
    "node-failed": SlurmScenario(
        "a node dies; its job ends as NODE_FAIL and resumes on another", "S3", node_failed
    ),
    "controller-killed": SlurmScenario(
        "slurmctld dies and returns; jobs and other alerts go on", "S4", controller_killed
    ),
    "no-capacity": SlurmScenario(
        "jobs ask for more nodes than there are; they wait", "S4", no_capacity
    ),
    "requeue-loop": SlurmScenario("a job fails at its start again and again", "S4", requeue_loop),
}


def play(
    lab: SlurmLab, name: str, say: Callable[[str], None] = lambda _: None, *, fault_id: str = ""
) -> Story:
    """Run one scenario on the cluster, once that is idle and empty; its job then goes on.

    The marker is called `fault_id`, or by the scenario's name and the time.  Raises
    `StagewatchError` if something does not come to pass.
    """
    scenario = SCENARIOS[name]
    lab.reset()
    story = Story(lab, name, scenario.source, say, fault_id=fault_id)
    try:
        scenario.play(story)
    finally:
        story.clear()
    return story
