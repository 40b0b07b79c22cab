"""The queue, the GPUs it holds, and the nodes that take no jobs."""

from sections.slurm_capacity import GPUS, NODES
from sections.slurm_controller import CONTROLLER
from sections.slurm_ended import ENDED
from sections.slurm_queue import QUEUE
from stagewatch.dashboards import (
    AMBER,
    ANY_IS_AMBER,
    GREEN,
    RED,
    board,
    mapping,
    section,
    stat,
    steps,
)

GUIDE = """\
**Who waits, and why:** *Pending by reason* separates a full cluster (`Resources`, `Priority`) from
limits and mistakes that no node will cure.  **GPU truth table:** allocated + free + free but
drained + down is what is configured; *free, drained* is capacity lost to a drain.  **Drained
nodes** come with the reason, who gave it, and since when; the command that returns one is
`scontrol update nodename=NODE state=resume`.  A node or job in several partitions counts in each.
*Source age* tells how old the numbers are: while the controller is silent they go, rather than
stay.
"""

dashboard = board(
    "Slurm jobs",
    uid="stagewatch-slurm-jobs",
    description="Jobs running, pending and ended; GPUs by state; nodes out of service.",
    guide=GUIDE,
    variables_used=("partition",),
    sections=[
        section(
            "Now",
            stat(
                "Running",
                "Jobs that run.",
                'sum(slurm_queue_jobs{PARTITION, state="RUNNING"}) or vector(0)',
            ),
            stat(
                "Pending",
                "Jobs that wait.",
                'sum(slurm_queue_jobs{PARTITION, state="PENDING"}) or vector(0)',
            ),
            stat(
                "Longest wait",
                "Time since the longest-waiting pending job was submitted, or requeued.",
                "max(slurm_pending_age_seconds{PARTITION})",
                unit="s",
                thresholds=steps((1800, AMBER), (86400, RED)),
            ),
            stat(
                "GPUs allocated",
                "Share of the configured GPUs that jobs hold.",
                'sum(slurm_gpus{PARTITION, state="allocated"}) / sum(slurm_gpus{PARTITION})',
                unit="percentunit",
            ),
            stat(
                "Nodes out of service",
                "Nodes that are drained, down or failing.",
                'sum(slurm_nodes{PARTITION, availability!="available"}) or vector(0)',
                thresholds=ANY_IS_AMBER,
            ),
            stat(
                "Controller",
                "Whether any slurmctld answers a ping.",
                "max(slurm_controller_up{CLUSTER})",
                unit="none",
                thresholds=steps((1, GREEN), base=RED),
                mappings=mapping({"0": ("silent", RED), "1": ("answers", GREEN)}),
            ),
        ),
        QUEUE,
        GPUS,
        ENDED,
        NODES,
        CONTROLLER,
    ],
)
