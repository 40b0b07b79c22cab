"""Runs a scenario and prints what happens."""

from __future__ import annotations

import os
import time

from stagewatch.core.errors import ConfigError
from stagewatch.demo.scenario import DemoOptions, Progress, keep, own_command
from stagewatch_lab.rl.experiment import Experiment, Record
from stagewatch_lab.rl.lab import RlLab
from stagewatch_lab.rl.scenario import Scenario
from stagewatch_lab.rl.scenarios import SCENARIOS

JOB_ID = "700"
START_SECONDS = 300
FAULT_SECONDS = 240
MOMENT_SECONDS = 0.02
"""A stage may last only a third of a second."""


def run(options: DemoOptions) -> int:
    """Exit status 0 if the origin was named, 1 if not."""
    _check(options)
    show = Progress()
    show.say("finding Prometheus (on the PATH, or as a package)")
    lab = RlLab(cache=options.cache)
    scenario = None
    try:
        workers = f"{options.train} train and {options.rollout} rollout workers"
        show.say(f"starting {len(lab.nodes)} node agents, Prometheus and job {JOB_ID}: {workers}")
        job = lab.job(
            JOB_ID,
            trains=options.train,
            rollouts=options.rollout,
            cpu_share=_cpu_share(SCENARIOS[options.scenario], options.rollout),
            pace=options.pace,
        )
        scenario = SCENARIOS[options.scenario](lab, job)
        scenario.prepare()
        api = lab.start()
        for means in scenario.means:
            show.say(means)
        job.start()
        show.begun(lab)
        experiment = Experiment(scenario, api, show.say, options.fault_id or scenario.name)
        show.say("training; the rules learn how long each stage takes")
        steps = options.baseline_steps
        slow = START_SECONDS + 20 * steps * 60 / options.pace
        show.wait_until(lambda: experiment.warmed_up(steps), slow, "a baseline")
        show.wait_until(experiment.due, 120, f"a step to reach {scenario.stage}", MOMENT_SECONDS)
        show.say(f"FAULT {scenario.source}: {scenario.summary} ({scenario.target})")
        record = experiment.inject()
        _watch(experiment, show)
        experiment.end()
        if options.json:
            record.save(options.json)
        named = _report(record, experiment)
        if options.keep:
            _keep(lab, record)
        api.close()
    finally:
        if scenario is not None:
            scenario.revert()
        lab.stop()
        if scenario is not None:
            scenario.close()
    return 0 if named else 1


def _watch(experiment: Experiment, show: Progress) -> None:
    """Wait until the origin is named, the symptom appears and the job gives up, or time is over."""
    limit = time.monotonic() + FAULT_SECONDS

    def over() -> bool:
        experiment.look()
        finished = experiment.done() and experiment.job.over()
        return finished or time.monotonic() > limit

    show.wait_until(over, FAULT_SECONDS + 60, "the scenario to end")


def _report(record: Record, experiment: Experiment) -> bool:
    named, surface = experiment.named(), record.surface
    origin = ", ".join(f"{key} {value}" for key, value in record.origin.items())
    print(f"\nInjected           {record.fault_type} on {record.target}")
    for means in record.means:
        print(f"                   {means}")
    print(f"Began              {origin}")
    if record.t_surface is None:
        print("Surfaced           not")
    else:
        after = record.t_surface - record.t_inject
        where = f"{surface['role']}, stage {surface['stage']}: {surface['error']}"
        print(f"Surfaced           {where}, after {after:.1f} s")
    if named is None:
        print("Verdict            where it began was NOT named")
    else:
        print(f"Named              by {named.alert} after {named.after:.1f} s")
        print(f"                   {named.description}")
    return named is not None


def _keep(lab: RlLab, record: Record) -> None:
    inspect, job = f"{own_command()} inspect", f"--job {record.job_id}"
    keep(
        f"{inspect} --prometheus {lab.url} {job}",
        *(f"{inspect} --record-dir {lab.record_dir(node)} {job}" for node in lab.nodes),
        f"less {lab.directory}/logs/{record.job_id}/*.log",
    )


def _cpu_share(kind: type[Scenario], rollouts: int) -> float:
    """The CPU share with which all rollout workers leave half of the machine to the others."""
    cores = len(os.sched_getaffinity(0))
    return min(kind.cpu_share, 0.5 * cores / rollouts)


def _check(options: DemoOptions) -> None:
    for name, value, least, most in (
        ("--train", options.train, 2, 32),
        ("--rollout", options.rollout, 2, 16),
        ("--baseline-steps", options.baseline_steps, 3, 1000),
        ("--pace", options.pace, 1, 120),
    ):
        if not least <= value <= most:
            raise ConfigError(f"{name} {value}: must be from {least} to {most}")
