"""Runs a scenario on a Slurm cluster and prints what happens."""

from __future__ import annotations

from stagewatch.demo.scenario import DemoOptions, Progress, keep
from stagewatch_lab.slurm.lab import NODES, SlurmLab
from stagewatch_lab.slurm.rules import FOR_SECONDS
from stagewatch_lab.slurm.scenarios import SCENARIOS, play
from stagewatch_lab.slurm.story import Story


def run(options: DemoOptions) -> int:
    """Exit status 0 if all expectations held; `StagewatchError` says which did not.

    Raises `ConfigError` where Slurm's daemons are not installed, or not by root.
    """
    show = Progress()
    show.say(f"starting MariaDB, slurmdbd, slurmctld, {len(NODES)} slurmd, agents, Prometheus")
    with SlurmLab(options.cache) as lab:
        show.say(f"Prometheus   {lab.url}")
        show.say(f"Slurm        SLURM_CONF={lab.slurm.config}")
        show.say(f"alerts wait {FOR_SECONDS} s at most; all else of the rules is as shipped")
        show.say(f"{options.scenario}: {SCENARIOS[options.scenario].help}")
        story = play(lab, options.scenario, show.say, fault_id=options.fault_id)
        if options.json:
            story.save(options.json)
        _report(story)
        if options.keep:
            ours = f"SLURM_CONF={lab.slurm.config}"
            keep(f"{ours} sinfo", f"{ours} sacct -D -X")
    return 0


def _report(story: Story) -> None:
    began = story.phases["injection"]
    print("\nPhase                    after the injection")
    for name, at in sorted(story.phases.items(), key=lambda item: item[1]):
        print(f"{name.replace('_', ' '):<24} {at - began:5.1f} s")
    print("\nAlert                        fired    resolved")
    for name, alert in sorted(story.alerts.items(), key=lambda item: item[1].at):
        after = "" if alert.resolved is None else f"{alert.resolved - began:8.1f} s"
        print(f"{name:<27} {alert.at - began:5.1f} s {after}")
