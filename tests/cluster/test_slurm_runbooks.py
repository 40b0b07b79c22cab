"""The commands of Slurm's runbooks and alerts, given to a real Slurm, show what they are for."""

from __future__ import annotations

import re
import signal
import subprocess
import time

from stagewatch.assets import assets
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.alerts.rule_files import every_rule


def confirm(alert: str, slurm: SlurmCluster, **names: str) -> str:
    """What the runbook's one command prints; it fails the test if Slurm does not understand it."""
    text = (assets("alerts") / "runbooks" / f"{alert}.md").read_text()
    found = re.search(r"## Confirm\n\n```sh\n(.*)\n```", text)
    command = found[1].partition("; ssh ")[0]  # what is to be run on the node itself
    for name, value in names.items():
        command = re.sub(rf"\b{name}\b", value, command)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=slurm.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


def test_commands_about_nodes_show_state_and_reason(slurm: SlurmCluster) -> None:
    slurm.run("scontrol", "update", "nodename=h3", "state=drain", "reason=bad GPU 3")
    for alert in ("SlurmNodeDrained", "SlurmNodeDrainedTooLong", "SlurmNodeFailing"):
        assert "Reason=bad GPU 3" in confirm(alert, slurm, NODE="h3")
    for alert in ("SlurmNodeCountDropped", "SlurmNodeDown"):
        assert "bad GPU 3" in confirm(alert, slurm, NODE="h3")
    for alert in ("SlurmControllerDown", "SlurmBlocksNodesAnswer"):
        assert "is UP" in confirm(alert, slurm)
    assert "Server thread count" in confirm("SlurmControllerSlow", slurm)
    assert "DBD Agent queue size" in confirm("SlurmAccountingBehind", slurm)


def test_command_that_the_drain_alert_gives_brings_the_node_back(slurm: SlurmCluster) -> None:
    (rule,) = [rule for rule in every_rule() if rule.name == "SlurmNodeDrainedTooLong"]
    said = rule.annotations["description"]
    command = said.partition("well again: ")[2].replace("{{ $labels.node }}", "h3")
    slurm.run("scontrol", "update", "nodename=h3", "state=drain", "reason=bad GPU 3")
    slurm.run(*command.split())
    slurm.wait(lambda: slurm.state("h3") == "IDLE", "h3 to be back")


def test_commands_about_jobs_show_the_jobs_that_are_meant(slurm: SlurmCluster) -> None:
    first = slurm.submit("--hold", "--nice=500")
    time.sleep(1.1)  # Slurm's times are whole seconds
    second = slurm.submit("--hold")
    lost = slurm.submit("-w", "m1", "-p", "mixed", "--no-requeue")
    again = slurm.submit("-w", "h2")
    for job in (lost, again):
        slurm.wait_job(job, "RUNNING")
    slurm.run("scontrol", "requeue", again)
    slurm.daemons.stop("slurmd-m1", signal.SIGKILL)
    slurm.wait_job(lost, "NODE_FAIL")
    pending = confirm("SlurmPendingTooLong", slurm, PARTITION="gpu").splitlines()[1:]
    waiting = [line.split()[0] for line in pending]
    assert waiting.index(first) < waiting.index(second)
    assert "Restarts=1" in confirm("SlurmRequeueLoop", slurm, JOB=again)

    def recorded() -> bool:
        ended = confirm("SlurmJobsEndedByNodeFailure", slurm)
        return any(line.split()[0] == lost for line in ended.splitlines()[2:])

    slurm.wait(recorded, "the job among those that their nodes lost")
    slurm.wait(lambda: "DOWN" in confirm("SlurmNodeFlapping", slurm, NODE="m1"), "m1's event")
