"""GPUs and nodes as Slurm counts them, and those it gives no jobs to."""

from stagewatch import dashboards as draw

GPUS = draw.section(
    "GPUs",
    draw.table(
        "GPUs by partition and state",
        "The four states add up to what is configured.",
        [
            draw.Column(
                title,
                f'sum by (partition, gpu_type) (slurm_gpus{{PARTITION, state="{state}"}})',
                thresholds=thresholds,
            )
            for title, state, thresholds in (
                ("Allocated", "allocated", ()),
                ("Free", "free", ()),
                ("Free, drained", "free_drained", draw.ANY_IS_AMBER),
                ("Down", "down", draw.ANY_IS_BAD),
            )
        ]
        + [draw.Column("Configured", "sum by (partition, gpu_type) (slurm_gpus{PARTITION})")],
        width=12,
    ),
    draw.timeseries(
        "GPUs by state",
        "Over the whole cluster, each GPU once.",
        "sum by (state) (slurm_cluster_gpus{CLUSTER})",
        stack=True,
        colors={
            "allocated": draw.GREEN,
            "free": draw.STATE_COLORS["free"],
            "free_drained": draw.STATE_COLORS["drained"],
            "down": draw.STATE_COLORS["down"],
        },
    ),
    draw.timeseries(
        "GPUs asked for and held",
        "By jobs that wait and jobs that run; `any` is of no named type.",
        "sum by (state, gpu_type) (slurm_queue_gpus{PARTITION})",
        width=24,
    ),
)

NODES = draw.section(
    "Nodes",
    draw.table(
        "Nodes out of service",
        "How, why, who said so, and for how long.",
        [
            draw.Column(
                "For",
                "max by (node, kind, reason_class, reason, user)"
                " (slurm_node_unavailable_info{CLUSTER} * on (cluster, node, kind)"
                " group_left () (time()"
                " - slurm_node_unavailable_since_timestamp_seconds{CLUSTER}))",
                unit="s",
                thresholds=draw.steps((86400, draw.AMBER), (604800, draw.RED)),
            )
        ],
        titles={"kind": "How", "user": "By"},
        sort="For",
        width=14,
    ),
    draw.timeseries(
        "Nodes by state",
        "Base states, each node once.",
        "sum by (state) (slurm_cluster_nodes{CLUSTER})",
        stack=True,
        width=10,
    ),
)
