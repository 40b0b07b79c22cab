"""NFS as the kernel's mount statistics see it."""

from stagewatch import dashboards as draw

NFS = draw.section(
    "NFS",
    draw.timeseries(
        "Time per operation",
        "Whole time: queue, round trip and what lies between.",
        "sum by (mount, op) (rate(nfs_operation_execute_seconds_total{NODE}[RATE]))"
        " / (sum by (mount, op) (rate(nfs_operations_total{NODE}[RATE])) > 0)",
        unit="s",
        log=True,
    ),
    draw.timeseries(
        "Round trip",
        "From sending an operation to the server's reply.",
        "sum by (mount, op) (rate(nfs_operation_rtt_seconds_total{NODE}[RATE]))"
        " / (sum by (mount, op) (rate(nfs_operations_total{NODE}[RATE])) > 0)",
        unit="s",
        log=True,
    ),
    draw.timeseries(
        "Operations",
        "Per second, over the chosen nodes.",
        "sum by (mount, op) (rate(nfs_operations_total{NODE}[RATE]))",
        unit="ops",
    ),
    draw.timeseries(
        "Bytes",
        "Sent and received, RPC headers included.",
        "sum by (mount, op) (rate(nfs_bytes_total{NODE}[RATE]))",
    ),
    draw.timeseries(
        "Retransmissions and time-outs",
        "Requests sent again, and requests whose retries all failed.",
        [
            draw.Query(
                draw.worst("sum by (node, mount) (rate(nfs_retransmissions_total{NODE}[RATE]))"),
                "{{node}} {{mount}} sent again",
            ),
            draw.Query(
                draw.worst("sum by (node, mount) (rate(nfs_timeouts_total{NODE}[RATE]))"),
                "{{node}} {{mount}} timed out",
            ),
        ],
        unit="cps",
    ),
    draw.table(
        "Mounts",
        "What is mounted from where.",
        [
            draw.Column(
                "Nodes", "count by (mount, server, export, version, protocol) (nfs_info{NODE})"
            )
        ],
        order="Nodes",
        width=12,
    ),
)
