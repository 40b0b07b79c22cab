"""The queue, the GPUs it holds, and the nodes that take no jobs."""

from sections.slurm_capacity import GPUS, NODES
from sections.slurm_controller import CONTROLLER
from sections.slurm_ended import ENDED, FAILURES
from sections.slurm_queue import QUEUE
from sections.slurm_use import JOBS, UTILISATION
from stagewatch import dashboards as draw

GUIDE = """\
**Who waits, and why:** *Pending by reason* separates a full cluster (`Resources`, `Priority`) from
limits and mistakes that no node will cure.  **GPUs by state:** allocated + free + free but
drained + down is what is configured; *free, drained* is capacity lost to a drain.  **Drained
nodes** have their reason, its author, and the time; to return a node, run `scontrol update
nodename=NODE state=resume`.  A node or job in several partitions counts in all of them.  **Jobs**
and their use of GPUs come from Slurm, its prolog and the GPUs, also without ranks; a week needs a
Prometheus that keeps one.  *Source age* is the age of the numbers: while the controller is silent
they disappear.
"""

dashboard = draw.board(
    "Slurm jobs",
    uid="stagewatch-slurm-jobs",
    description="Jobs running, pending and ended; GPUs by state; nodes out of service.",
    guide=GUIDE,
    variables_used=("partition",),
    sections=[
        draw.section(
            "Now",
            draw.stat(
                "Running",
                "Jobs that run.",
                'sum(slurm_queue_jobs{PARTITION, state="RUNNING"}) or vector(0)',
            ),
            draw.stat(
                "Pending",
                "Jobs that wait.",
                'sum(slurm_queue_jobs{PARTITION, state="PENDING"}) or vector(0)',
            ),
            draw.stat(
                "Longest wait",
                "Time since the longest-waiting pending job was submitted, or requeued.",
                "max(slurm_pending_age_seconds{PARTITION})",
                thresholds=draw.steps((1800, draw.AMBER), (86400, draw.RED)),
            ),
            draw.stat(
                "GPUs allocated",
                "Share of the configured GPUs of the whole cluster that jobs hold, each GPU once.",
                'sum(slurm_cluster_gpus{CLUSTER, state="allocated"})'
                " / sum(slurm_cluster_gpus{CLUSTER})",
                unit="percentunit",
            ),
            draw.count(
                "Nodes out of service",
                "Nodes of the whole cluster that are drained, down or failing, each once however "
                "many partitions it is in.",
                "group by (cluster, node) (slurm_node_unavailable_info{CLUSTER})",
                draw.AMBER,
            ),
            draw.stat(
                "Controller",
                "Whether any slurmctld answers a ping.",
                "max(slurm_controller_up{CLUSTER})",
                unit="none",
                thresholds=draw.steps((1, draw.GREEN), base=draw.RED),
                mappings=draw.mapping({"0": ("silent", draw.RED), "1": ("answers", draw.GREEN)}),
            ),
        ),
        JOBS,
        QUEUE,
        GPUS,
        UTILISATION,
        ENDED,
        FAILURES,
        NODES,
        CONTROLLER,
    ],
)
