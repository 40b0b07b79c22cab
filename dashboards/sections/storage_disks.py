"""Disks, and the tasks and ranks that wait for them."""

from stagewatch import dashboards as draw

DISKS_AND_WAITING = draw.section(
    "Disks and waiting",
    draw.timeseries(
        "Pressure",
        "Share of time in which at least one task waited for I/O.",
        draw.worst(
            "max by (node) (rate(io_pressure_seconds_total"
            '{NODE, resource="io", kind="some"}[RATE]))'
        ),
        unit="percentunit",
    ),
    draw.timeseries(
        "Blocked tasks",
        "Tasks in uninterruptible sleep by what they wait for.",
        "sum by (class) (io_blocked_tasks{NODE})",
        stack=True,
    ),
    draw.timeseries(
        "Disk latency",
        "Time per request.",
        draw.worst(
            "sum by (node, device, operation) (rate(io_disk_operation_seconds_total{NODE}[RATE]))"
            " / (sum by (node, device, operation) (rate(io_disk_operations_total{NODE}[RATE])) > 0)"
        ),
        unit="s",
    ),
    draw.timeseries(
        "Disk throughput",
        "Bytes of completed requests.",
        draw.worst("sum by (node, device, operation) (rate(io_disk_bytes_total{NODE}[RATE]))"),
    ),
    draw.timeseries(
        "Disk busy",
        "Share of time the device had a request in flight; one that serves many at once is "
        "not full at 100 %.",
        draw.worst("max by (node, device) (rate(io_disk_busy_seconds_total{NODE}[RATE]))"),
        unit="percentunit",
    ),
    draw.timeseries(
        "Ranks: read and written",
        "Bytes that reached storage, of each rank and the processes it has started.",
        draw.worst(
            "sum by (job_id, role, rank, direction) (rate(rl_rank_io_bytes_total"
            '{RANK, layer="storage"}[RATE]))'
        ),
    ),
)
