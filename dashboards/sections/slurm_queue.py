"""Jobs that wait or run, and whose they are."""

from stagewatch import dashboards as draw

QUEUE = draw.section(
    "Queue",
    draw.timeseries(
        "Jobs by state",
        "Jobs that have not ended.",
        "sum by (state) (slurm_queue_jobs{PARTITION})",
        stack=True,
        colors={"RUNNING": draw.GREEN, "PENDING": draw.AMBER},
    ),
    draw.timeseries(
        "Pending by reason",
        "Why jobs wait.",
        'sum by (reason) (slurm_queue_jobs{PARTITION, state="PENDING"})',
        stack=True,
    ),
    draw.timeseries(
        "Running and pending by partition",
        "Jobs in each partition.",
        'sum by (partition, state) (slurm_queue_jobs{PARTITION, state=~"RUNNING|PENDING"})',
    ),
    draw.timeseries(
        "Longest wait by partition",
        "Time since the longest-waiting pending job was submitted; the line is 30 minutes.",
        draw.worst("max by (partition, reason) (slurm_pending_age_seconds{PARTITION})"),
        thresholds=draw.steps((1800, draw.AMBER)),
    ),
    draw.table(
        "Users",
        "The busiest users' jobs and GPUs; the rest is other.",
        [
            draw.Column("Running", 'sum by (user) (slurm_user_jobs{CLUSTER, state="RUNNING"})'),
            draw.Column("Pending", 'sum by (user) (slurm_user_jobs{CLUSTER, state="PENDING"})'),
            draw.Column("GPUs held", 'sum by (user) (slurm_user_gpus{CLUSTER, state="RUNNING"})'),
            draw.Column(
                "GPUs asked for", 'sum by (user) (slurm_user_gpus{CLUSTER, state="PENDING"})'
            ),
        ],
        sort="GPUs held",
        order="",
        width=12,
    ),
    draw.table(
        "Accounts",
        "The busiest accounts' jobs and GPUs; the rest is other.",
        [
            draw.Column(
                "Running", 'sum by (account) (slurm_account_jobs{CLUSTER, state="RUNNING"})'
            ),
            draw.Column(
                "Pending", 'sum by (account) (slurm_account_jobs{CLUSTER, state="PENDING"})'
            ),
            draw.Column(
                "GPUs held", 'sum by (account) (slurm_account_gpus{CLUSTER, state="RUNNING"})'
            ),
        ],
        sort="GPUs held",
        order="",
        width=12,
    ),
)
