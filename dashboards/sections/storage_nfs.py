"""NFS as the kernel's mount statistics see it."""

from stagewatch.dashboards import Column, Query, section, table, timeseries

NFS = section(
    "NFS",
    timeseries(
        "Time per operation",
        "Whole time: queue, round trip and what lies between.",
        Query(
            "sum by (mount, op)"
            " (rate(nfs_operation_execute_seconds_total{NODE}[$__rate_interval]))"
            " / (sum by (mount, op)"
            " (rate(nfs_operations_total{NODE}[$__rate_interval])) > 0)",
            "{{mount}} {{op}}",
        ),
        unit="s",
        log=True,
    ),
    timeseries(
        "Round trip",
        "From sending an operation to the server's reply.",
        Query(
            "sum by (mount, op)"
            " (rate(nfs_operation_rtt_seconds_total{NODE}[$__rate_interval]))"
            " / (sum by (mount, op)"
            " (rate(nfs_operations_total{NODE}[$__rate_interval])) > 0)",
            "{{mount}} {{op}}",
        ),
        unit="s",
        log=True,
    ),
    timeseries(
        "Operations",
        "Per second, over the chosen nodes.",
        Query(
            "sum by (mount, op) (rate(nfs_operations_total{NODE}[$__rate_interval]))",
            "{{mount}} {{op}}",
        ),
        unit="ops",
    ),
    timeseries(
        "Bytes",
        "Sent and received, RPC headers included.",
        Query(
            "sum by (mount, op) (rate(nfs_bytes_total{NODE}[$__rate_interval]))", "{{mount}} {{op}}"
        ),
        unit="Bps",
    ),
    timeseries(
        "Retransmissions and time-outs",
        "Requests sent again, and those of which every retry went by.",
        [
            Query(
                "sum by (node, mount) (rate(nfs_retransmissions_total{NODE}[$__rate_interval]))",
                "{{node}} {{mount}} sent again",
            ),
            Query(
                "sum by (node, mount) (rate(nfs_timeouts_total{NODE}[$__rate_interval]))",
                "{{node}} {{mount}} timed out",
            ),
        ],
        unit="cps",
    ),
    table(
        "Mounts",
        "What is mounted from where.",
        {
            "mount": "Mount",
            "server": "Server",
            "export": "Export",
            "version": "Version",
            "protocol": "Transport",
        },
        [Column("Nodes", "count by (mount, server, export, version, protocol) (nfs_info{NODE})")],
        width=12,
    ),
)
