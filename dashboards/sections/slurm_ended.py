"""Jobs that ended: how, after what wait, and how often again."""

from stagewatch.dashboards import (
    AMBER,
    RED,
    Column,
    Query,
    heatmap,
    section,
    steps,
    table,
    timeseries,
)

ENDED = section(
    "Ended",
    timeseries(
        "Ended jobs",
        "Runs that ended, by final state, in each interval.",
        Query(
            "sum by (state) (increase(slurm_jobs_ended_total{PARTITION}[$__rate_interval]))",
            "{{state}}",
        ),
        stack=True,
        width=8,
    ),
    heatmap(
        "Wait",
        "From being eligible to start, of runs that have ended.",
        "sum by (le) (increase(slurm_job_wait_seconds_bucket{PARTITION}[$__rate_interval]))",
        width=8,
    ),
    heatmap(
        "Run time",
        "From start to end, of runs that have ended.",
        "sum by (le) (increase(slurm_job_run_seconds_bucket{PARTITION}[$__rate_interval]))",
        width=8,
    ),
    timeseries(
        "Requeued jobs, failed nodes",
        "In each interval.",
        [
            Query(
                "sum(increase(slurm_job_requeues_total{PARTITION}[$__rate_interval]))", "requeues"
            ),
            Query(
                "sum by (kind) (increase(slurm_node_failures_total{CLUSTER}[$__rate_interval]))",
                "nodes: {{kind}}",
            ),
        ],
        width=12,
    ),
    table(
        "Restarted jobs",
        "Jobs in the queue that have been restarted most.",
        {"job_id": "Job", "user": "User", "partition": "Partition"},
        [
            Column(
                "Restarts",
                "max by (job_id, user, partition) (slurm_job_restarts{PARTITION})",
                thresholds=steps((1, AMBER), (3, RED)),
            )
        ],
        sort="Restarts",
        width=12,
    ),
)
