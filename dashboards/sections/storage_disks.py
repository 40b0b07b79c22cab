"""Disks and pressure, from node_exporter, and what the ranks read and write."""

from stagewatch import dashboards as draw

DISKS = 'device!~"loop.*|ram.*|zram.*|sr.*"'


def _rate(counter: str) -> str:
    return f"rate(node_disk_{counter}_total{{NODE, {DISKS}}}[$__rate_interval])"


DISKS_AND_WAITING = draw.section(
    "Disks and waiting",
    draw.timeseries(
        "Pressure",
        "Share of time in which at least one task stood still for want of I/O.",
        draw.worst(
            "max by (node) (rate(node_pressure_io_waiting_seconds_total{NODE}[$__rate_interval]))"
        ),
        "{{node}}",
        unit="percentunit",
    ),
    draw.timeseries(
        "Blocked tasks",
        "Tasks in uninterruptible sleep.",
        draw.worst("max by (node) (node_procs_blocked{NODE})"),
        "{{node}}",
    ),
    draw.timeseries(
        "Disk latency",
        "Time per request.",
        [
            draw.Query(
                draw.worst(
                    f"max by (node, device) ({_rate(f'{operation}_time_seconds')}"
                    f" / ({_rate(f'{operation}s_completed')} > 0))"
                ),
                f"{{{{node}}}} {{{{device}}}} {operation}",
            )
            for operation in ("read", "write")
        ],
        unit="s",
    ),
    draw.timeseries(
        "Disk throughput",
        "Bytes of completed requests.",
        [
            draw.Query(
                draw.worst(f"max by (node, device) ({_rate(f'{done}_bytes')})"),
                f"{{{{node}}}} {{{{device}}}} {done}",
            )
            for done in ("read", "written")
        ],
        unit="Bps",
    ),
    draw.timeseries(
        "Disk busy",
        "Share of time the device had a request in flight; one that serves many at once is "
        "not full at 100 %.",
        draw.worst(f"max by (node, device) ({_rate('io_time_seconds')})"),
        "{{node}} {{device}}",
        unit="percentunit",
    ),
    draw.timeseries(
        "Ranks: read and written",
        "Bytes that reached storage, of each rank and the processes it has started.",
        draw.worst(
            "sum by (job_id, role, rank, direction) (rate(rl_rank_io_bytes_total"
            '{RANK, layer="storage"}[$__rate_interval]))'
        ),
        "{{job_id}} {{role}} {{rank}} {{direction}}",
        unit="Bps",
    ),
)
