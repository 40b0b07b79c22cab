"""GPUs and nodes as Slurm counts them, and those it gives no jobs to."""

from stagewatch.dashboards import (
    AMBER,
    ANY_IS_AMBER,
    ANY_IS_BAD,
    GREEN,
    RED,
    STATE_COLORS,
    Column,
    Query,
    section,
    steps,
    table,
    timeseries,
)

GPUS = section(
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
        colors={
            "allocated": GREEN,
            "free": STATE_COLORS["free"],
            "free_drained": STATE_COLORS["drained"],
            "down": STATE_COLORS["down"],
        },
    ),
    timeseries(
        "GPUs asked for and held",
        "By jobs that wait and jobs that run; `any` is of no named type.",
        Query("sum by (state, gpu_type) (slurm_queue_gpus{PARTITION})", "{{state}} {{gpu_type}}"),
        width=24,
    ),
)

NODES = section(
    "Nodes",
    table(
        "Nodes out of service",
        "How, why, who said so, and for how long.",
        {"node": "Node", "kind": "How", "reason_class": "Class", "reason": "Reason", "user": "By"},
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
        order="For",
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
)
