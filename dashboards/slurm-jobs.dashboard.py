"""The queue, the GPUs it holds, and the nodes that take no jobs."""

from stagewatch.dashboards import (
    AMBER,
    ANY_IS_AMBER,
    ANY_IS_BAD,
    GREEN,
    RED,
    TO_NODE,
    Column,
    Query,
    board,
    heatmap,
    mapping,
    section,
    stat,
    steps,
    table,
    timeseries,
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
        section(
            "Queue",
            timeseries(
                "Jobs by state",
                "Jobs that have not ended.",
                Query("sum by (state) (slurm_queue_jobs{PARTITION})", "{{state}}"),
                stack=True,
            ),
            timeseries(
                "Pending by reason",
                "Why jobs wait.",
                Query(
                    'sum by (reason) (slurm_queue_jobs{PARTITION, state="PENDING"})', "{{reason}}"
                ),
                stack=True,
            ),
            timeseries(
                "Running and pending by partition",
                "Jobs in each partition.",
                Query(
                    "sum by (partition, state)"
                    ' (slurm_queue_jobs{PARTITION, state=~"RUNNING|PENDING"})',
                    "{{partition}} {{state}}",
                ),
            ),
            timeseries(
                "Longest wait by partition",
                "Time since the longest-waiting pending job was submitted; the line is 30 minutes.",
                Query(
                    "max by (partition, reason) (slurm_pending_age_seconds{PARTITION})",
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
                    Column(
                        "Running",
                        'sum by (user) (slurm_user_jobs{CLUSTER, state="RUNNING"})',
                    ),
                    Column(
                        "Pending",
                        'sum by (user) (slurm_user_jobs{CLUSTER, state="PENDING"})',
                    ),
                    Column(
                        "GPUs held",
                        'sum by (user) (slurm_user_gpus{CLUSTER, state="RUNNING"})',
                    ),
                    Column(
                        "GPUs asked for",
                        'sum by (user) (slurm_user_gpus{CLUSTER, state="PENDING"})',
                    ),
                ],
                sort="GPUs held",
                width=12,
            ),
            table(
                "Accounts",
                "The busiest accounts' jobs and GPUs; the rest is other.",
                {"account": "Account"},
                [
                    Column(
                        "Running",
                        'sum by (account) (slurm_account_jobs{CLUSTER, state="RUNNING"})',
                    ),
                    Column(
                        "Pending",
                        'sum by (account) (slurm_account_jobs{CLUSTER, state="PENDING"})',
                    ),
                    Column(
                        "GPUs held",
                        'sum by (account) (slurm_account_gpus{CLUSTER, state="RUNNING"})',
                    ),
                ],
                sort="GPUs held",
                width=12,
            ),
        ),
        section(
            "GPUs",
            table(
                "GPU truth table",
                "The four states add up to what is configured.",
                {"partition": "Partition", "gpu_type": "Type"},
                [
                    Column(
                        title,
                        f'sum by (partition, gpu_type) (slurm_gpus{{PARTITION, state="{state}"}})',
                        thresholds=thresholds,
                    )
                    for title, state, thresholds in (
                        ("Allocated", "allocated", ()),
                        ("Free", "free", ()),
                        ("Free, drained", "free_drained", ANY_IS_AMBER),
                        ("Down", "down", ANY_IS_BAD),
                    )
                ]
                + [Column("Configured", "sum by (partition, gpu_type) (slurm_gpus{PARTITION})")],
                width=12,
            ),
            timeseries(
                "GPUs by state",
                "Over the whole cluster, each GPU once.",
                Query("sum by (state) (slurm_cluster_gpus{CLUSTER})", "{{state}}"),
                stack=True,
            ),
            timeseries(
                "GPUs asked for and held",
                "By jobs that wait and jobs that run; `any` is of no named type.",
                Query(
                    "sum by (state, gpu_type) (slurm_queue_gpus{PARTITION})",
                    "{{state}} {{gpu_type}}",
                ),
                width=24,
            ),
        ),
        section(
            "Ended",
            timeseries(
                "Ended jobs",
                "Runs that ended, by final state, in each interval.",
                Query(
                    "sum by (state)"
                    " (increase(slurm_jobs_ended_total{PARTITION}[$__rate_interval]))",
                    "{{state}}",
                ),
                stack=True,
                width=8,
            ),
            heatmap(
                "Wait",
                "From being eligible to start, of runs that have ended.",
                "sum by (le)"
                " (increase(slurm_job_wait_seconds_bucket{PARTITION}[$__rate_interval]))",
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
                        "sum(increase(slurm_job_requeues_total{PARTITION}[$__rate_interval]))",
                        "requeues",
                    ),
                    Query(
                        "sum by (kind)"
                        " (increase(slurm_node_failures_total{CLUSTER}[$__rate_interval]))",
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
        ),
        section(
            "Nodes",
            table(
                "Nodes out of service",
                "How, why, who said so, and for how long.",
                {
                    "node": "Node",
                    "kind": "How",
                    "reason_class": "Class",
                    "reason": "Reason",
                    "user": "By",
                },
                [
                    Column(
                        "For",
                        "max by (node, kind, reason_class, reason, user)"
                        " (slurm_node_unavailable_info{CLUSTER} * on (cluster, node, kind)"
                        " group_left () (time()"
                        " - slurm_node_unavailable_since_timestamp_seconds{CLUSTER}))",
                        unit="s",
                        thresholds=steps((86400, AMBER), (604800, RED)),
                    )
                ],
                links={"node": TO_NODE},
                sort="For",
                width=14,
            ),
            timeseries(
                "Nodes by state",
                "Base states, each node once.",
                Query("sum by (state) (slurm_cluster_nodes{CLUSTER})", "{{state}}"),
                stack=True,
                width=10,
            ),
        ),
        section(
            "Controller",
            timeseries(
                "Response time",
                "How long each kind of question took, failed ones included.",
                Query("max by (source) (slurm_controller_response_seconds{CLUSTER})", "{{source}}"),
                unit="s",
                thresholds=steps((5, AMBER)),
                width=8,
            ),
            timeseries(
                "Source age",
                "Age of the last good data.",
                Query("max by (source) (slurm_source_age_seconds{CLUSTER})", "{{source}}"),
                unit="s",
                width=8,
            ),
            timeseries(
                "Requests to the controller",
                "By message type.",
                Query(
                    "topk(10, sum by (type)"
                    " (rate(slurm_controller_rpcs_total{CLUSTER}[$__rate_interval])))",
                    "{{type}}",
                ),
                unit="reqps",
                width=8,
            ),
            timeseries(
                "Scheduling cycles",
                "Duration of the last main and backfill cycle.",
                [
                    Query("max(slurm_scheduler_cycle_last_seconds{CLUSTER})", "main"),
                    Query("max(slurm_backfill_cycle_last_seconds{CLUSTER})", "backfill"),
                ],
                unit="s",
            ),
            timeseries(
                "Queues in the controller",
                "Messages that wait for nodes, and records that wait for accounting.",
                [
                    Query("max(slurm_controller_agent_queue{CLUSTER})", "to nodes"),
                    Query("max(slurm_accounting_queue{CLUSTER})", "to accounting"),
                ],
            ),
        ),
    ],
)
