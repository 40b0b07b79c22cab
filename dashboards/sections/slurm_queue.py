"""Jobs that wait or run, and whose they are."""

from stagewatch.dashboards import (
    AMBER,
    GREEN,
    Column,
    Query,
    section,
    steps,
    table,
    timeseries,
    worst,
)

QUEUE = section(
    "Queue",
    timeseries(
        "Jobs by state",
        "Jobs that have not ended.",
        Query("sum by (state) (slurm_queue_jobs{PARTITION})", "{{state}}"),
        stack=True,
        colors={"RUNNING": GREEN, "PENDING": AMBER},
    ),
    timeseries(
        "Pending by reason",
        "Why jobs wait.",
        Query('sum by (reason) (slurm_queue_jobs{PARTITION, state="PENDING"})', "{{reason}}"),
        stack=True,
    ),
    timeseries(
        "Running and pending by partition",
        "Jobs in each partition.",
        Query(
            'sum by (partition, state) (slurm_queue_jobs{PARTITION, state=~"RUNNING|PENDING"})',
            "{{partition}} {{state}}",
        ),
    ),
    timeseries(
        "Longest wait by partition",
        "Time since the longest-waiting pending job was submitted; the line is 30 minutes.",
        Query(
            worst("max by (partition, reason) (slurm_pending_age_seconds{PARTITION})"),
            "{{partition}} {{reason}}",
        ),
        unit="s",
        thresholds=steps((1800, AMBER)),
    ),
    table(
        "Users",
        "The busiest users' jobs and GPUs; the rest is other.",
        {"user": "User"},
        [
            Column("Running", 'sum by (user) (slurm_user_jobs{CLUSTER, state="RUNNING"})'),
            Column("Pending", 'sum by (user) (slurm_user_jobs{CLUSTER, state="PENDING"})'),
            Column("GPUs held", 'sum by (user) (slurm_user_gpus{CLUSTER, state="RUNNING"})'),
            Column("GPUs asked for", 'sum by (user) (slurm_user_gpus{CLUSTER, state="PENDING"})'),
        ],
        sort="GPUs held",
        width=12,
    ),
    table(
        "Accounts",
        "The busiest accounts' jobs and GPUs; the rest is other.",
        {"account": "Account"},
        [
            Column("Running", 'sum by (account) (slurm_account_jobs{CLUSTER, state="RUNNING"})'),
            Column("Pending", 'sum by (account) (slurm_account_jobs{CLUSTER, state="PENDING"})'),
            Column("GPUs held", 'sum by (account) (slurm_account_gpus{CLUSTER, state="RUNNING"})'),
        ],
        sort="GPUs held",
        width=12,
    ),
)
