"""Jobs that ended: how, after what wait, and how often again."""

from stagewatch import dashboards as draw

ENDED = draw.section(
    "Ended",
    draw.timeseries(
        "Ended jobs",
        "Runs that ended, by final state, in each interval.",
        "sum by (state) (increase(slurm_jobs_ended_total{PARTITION}[RATE]))",
        stack=True,
        width=8,
    ),
    draw.heatmap(
        "Wait",
        "From being eligible to start, of runs that have ended.",
        "sum by (le) (increase(slurm_job_wait_seconds_bucket{PARTITION}[RATE]))",
        width=8,
    ),
    draw.heatmap(
        "Run time",
        "From start to end, of runs that have ended.",
        "sum by (le) (increase(slurm_job_run_seconds_bucket{PARTITION}[RATE]))",
        width=8,
    ),
    draw.timeseries(
        "Requeued jobs, failed nodes",
        "In each interval.",
        [
            draw.Query("sum(increase(slurm_job_requeues_total{PARTITION}[RATE]))", "requeues"),
            draw.Query(
                "sum by (kind) (increase(slurm_node_failures_total{CLUSTER}[RATE]))",
                "nodes: {{kind}}",
            ),
        ],
        width=12,
    ),
    draw.table(
        "Restarted jobs",
        "Jobs in the queue that have been restarted most.",
        [
            draw.Column(
                "Restarts",
                "max by (job_id, user, partition) (slurm_job_restarts{PARTITION})",
                thresholds=draw.steps((1, draw.AMBER), (3, draw.RED)),
            )
        ],
        sort="Restarts",
        width=12,
    ),
)

_DAYS = """
count_over_time((
  group by (cluster, node) (max_over_time(job:rl_stall:culprit{CLUSTER, node!=""}[1d]))
  or
  group by (cluster, node) (
    max_over_time(
      slurm_node_unavailable_info{CLUSTER, kind!="drain", reason_class!="maintenance"}[1d]
    )
  )
)[$__range:1d])
"""
"""Days of the time range on which a node was named or went down."""

_NODES = 'count(up{CLUSTER, job="stagewatch"})'

_AT_LEAST = f"clamp_min(sqrt({_DAYS}) - 1.7, 0) ^ 2 / scalar(sum({_DAYS}) / {_NODES})"
"""The lower end of a node's rate by the fleet's: 1.7 below the root of the count, which is a little
below the exact one, of some 70 nodes together (the root of a Poisson count varies by a half)."""

_FAILED = 'state=~"FAILED|NODE_FAIL|OUT_OF_MEMORY|TIMEOUT|BOOT_FAIL|DEADLINE"'

FAILURES = draw.section(
    "Failures",
    draw.timeseries(
        "Failed jobs in a day",
        "Share of the runs that ended within a day and failed: the trend.",
        f"(sum(increase(slurm_jobs_ended_total{{PARTITION, {_FAILED}}}[1d])) or vector(0))"
        " / clamp_min(sum(increase(slurm_jobs_ended_total{PARTITION}[1d])), 1)",
        "failed",
        unit="percentunit",
        width=8,
    ),
    draw.timeseries(
        "Nodes that left service in a day",
        "Drained, down or failing, by the class of the reason.",
        "sum by (reason_class) (increase(slurm_node_failures_total{CLUSTER}[1d]))",
        width=8,
    ),
    draw.stat(
        "Mean time between failures",
        "Of one node, over a week: node hours by failures (down or drained for a fault, as far as "
        "the reason tells).  With none, the whole week of all nodes.",
        "7 * 86400 * sum(slurm_cluster_nodes{CLUSTER}) / clamp_min(sum(increase("
        'slurm_node_failures_total{CLUSTER, reason_class!~"maintenance"}[7d])), 1)',
        unit="s",
        width=8,
        rows=8,
    ),
    draw.table(
        "Lemons",
        "Nodes that were named by the judge or went down on more days of the time range than the "
        "fleet's rate explains; a month shows more than a day.  `stagewatch lemons` also counts "
        "GPU errors, and the hours in which jobs had a node.",
        [
            draw.Column("At least times the fleet's rate", f"({_AT_LEAST}) > 1", decimals=1),
            draw.Column("Days", _DAYS),
        ],
        sort="At least times the fleet's rate",
        lacking="none",
        width=24,
    ),
)
