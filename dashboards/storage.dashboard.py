"""Mounts, disks, and who waits for them."""

from stagewatch.dashboards import (
    AMBER,
    ANY_IS_AMBER,
    ANY_IS_BAD,
    GREEN,
    RED,
    Column,
    Query,
    board,
    mapping,
    section,
    stat,
    state_timeline,
    steps,
    table,
    timeseries,
)

GUIDE = """\
**The canary** is a small file that the agent writes, syncs, reads back and removes on each
configured mount: *stuck* means that the mount lets nothing pass, and grows until it does.  **NFS:**
execute = queue + round trip + what lies between; a long queue with short round trips is this node's
own doing, long round trips are the server's or the network's, retransmissions are lost packets or a
server that does not answer.  **Pressure** is the share of time in which tasks stood still for want
of the disk.  A full or dying mount shows here one step before a trainer reads a broken checkpoint.
"""

BY_MOUNT = "{{node}} {{mount}}"

dashboard = board(
    "Storage",
    uid="stagewatch-storage",
    description="NFS, canaries, space, disks, and the ranks that wait for them.",
    guide=GUIDE,
    variables_used=("partition", "node", "job_id"),
    sections=[
        section(
            "Now",
            stat(
                "Canaries that fail",
                "Mounts on which the last canary failed or hangs.",
                "count(io_canary_success{NODE} == 0) or vector(0)",
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "Slowest sync",
                "The longest fsync of the last canaries.",
                'max(io_canary_seconds{NODE, phase="fsync"})',
                unit="s",
                thresholds=steps((0.5, AMBER), (5, RED)),
            ),
            stat(
                "Fullest mount",
                "Share of space in use.",
                "max(1 - io_filesystem_available_bytes{NODE} / io_filesystem_size_bytes{NODE})",
                unit="percentunit",
                thresholds=steps((0.9, AMBER), (0.97, RED)),
            ),
            stat(
                "Silent NFS servers",
                "Servers of which the kernel says that they do not respond.",
                "count(nfs_server_not_responding{NODE} == 1) or vector(0)",
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "Blocked tasks",
                "Tasks in uninterruptible sleep for a file system or disk.",
                'sum(io_blocked_tasks{NODE, class=~"nfs|fuse|lustre|page|block|journal"})'
                " or vector(0)",
                thresholds=steps((1, AMBER), (10, RED)),
            ),
            stat(
                "I/O pressure",
                "The worst node's share of time in which all tasks stood still for I/O.",
                "max(rate(io_pressure_seconds_total"
                '{NODE, resource="io", kind="full"}[$__rate_interval]))',
                unit="percentunit",
                thresholds=steps((0.1, AMBER), (0.5, RED)),
            ),
        ),
        section(
            "Canary",
            state_timeline(
                "Canaries",
                "Whether a small file could be written, synced, read back and removed.",
                Query("min by (node, mount) (io_canary_success{NODE})", BY_MOUNT),
                mappings=mapping({"0": ("fails", RED), "1": ("works", GREEN)}),
                width=12,
                rows=8,
            ),
            timeseries(
                "Phases",
                "How long each phase took on the slowest node.",
                Query("max by (mount, phase) (io_canary_seconds{NODE})", "{{mount}} {{phase}}"),
                unit="s",
                log=True,
            ),
            timeseries(
                "Throughput",
                "Of the last larger file; writes are synced.",
                Query(
                    "min by (mount, direction) (io_canary_bandwidth_bytes_per_second{NODE})",
                    "{{mount}} {{direction}}",
                ),
                unit="Bps",
            ),
            table(
                "Space",
                "Free space and inodes of each mount with a canary.",
                {"node": "Node", "mount": "Mount"},
                [
                    Column(
                        "Size", "max by (node, mount) (io_filesystem_size_bytes{NODE})", "bytes"
                    ),
                    Column(
                        "Available",
                        "min by (node, mount) (io_filesystem_available_bytes{NODE})",
                        "bytes",
                    ),
                    Column(
                        "Used",
                        "max by (node, mount) (1 - io_filesystem_available_bytes{NODE}"
                        " / io_filesystem_size_bytes{NODE})",
                        "percentunit",
                        thresholds=steps((0.9, AMBER), (0.97, RED)),
                        decimals=1,
                    ),
                    Column(
                        "Inodes used",
                        "max by (node, mount) (1 - io_filesystem_files_free{NODE}"
                        " / (io_filesystem_files{NODE} > 0))",
                        "percentunit",
                        thresholds=steps((0.9, AMBER), (0.97, RED)),
                        decimals=1,
                    ),
                ],
                sort="Used",
                width=12,
            ),
        ),
        section(
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
                    "sum by (mount, op) (rate(nfs_bytes_total{NODE}[$__rate_interval]))",
                    "{{mount}} {{op}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "Retransmissions and time-outs",
                "Requests sent again, and those of which every retry went by.",
                [
                    Query(
                        "sum by (node, mount)"
                        " (rate(nfs_retransmissions_total{NODE}[$__rate_interval]))",
                        BY_MOUNT + " sent again",
                    ),
                    Query(
                        "sum by (node, mount) (rate(nfs_timeouts_total{NODE}[$__rate_interval]))",
                        BY_MOUNT + " timed out",
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
                [
                    Column(
                        "Nodes",
                        "count by (mount, server, export, version, protocol) (nfs_info{NODE})",
                    )
                ],
                width=12,
            ),
        ),
        section(
            "Checkpoints",
            table(
                "Newest checkpoint of each job",
                "A checkpoint much smaller than the one before it was cut short: the error shows "
                "when it is read.",
                {"job_id": "Job", "directory": "Directory"},
                [
                    Column(
                        "Step",
                        "max by (job_id, directory) (io_checkpoint_step{NODE})",
                        unit="none",
                    ),
                    Column(
                        "Age",
                        "min by (job_id, directory)"
                        " (time() - io_checkpoint_modified_timestamp_seconds{NODE})",
                        unit="s",
                    ),
                    Column(
                        "Size",
                        "max by (job_id, directory) (io_checkpoint_size_bytes{NODE})",
                        unit="bytes",
                    ),
                    Column(
                        "Of the one before",
                        "max by (job_id, directory) (io_checkpoint_size_bytes{NODE}"
                        " / io_checkpoint_previous_size_bytes{NODE})",
                        unit="percentunit",
                        thresholds=(*steps((0.8, GREEN), base=RED),),
                        decimals=0,
                    ),
                    Column(
                        "Growing",
                        "max by (job_id, directory) (io_checkpoint_growing{NODE})",
                        unit="none",
                        mappings=tuple(mapping({"0": ("no", GREEN), "1": ("yes", AMBER)})),
                    ),
                    Column(
                        "Temporary files",
                        "max by (job_id, directory) (io_checkpoint_temporary_files{NODE})",
                        thresholds=ANY_IS_AMBER,
                    ),
                ],
                sort="Age",
                width=14,
            ),
            timeseries(
                "Size",
                "Of the newest checkpoint.",
                Query(
                    "max by (job_id, directory) (io_checkpoint_size_bytes{NODE})",
                    "{{job_id}} {{directory}}",
                ),
                unit="bytes",
                width=10,
            ),
        ),
        section(
            "Disks and waiting",
            timeseries(
                "Pressure",
                "Share of time in which at least one task stood still for want of I/O.",
                Query(
                    "max by (node) (rate(io_pressure_seconds_total"
                    '{NODE, resource="io", kind="some"}[$__rate_interval]))',
                    "{{node}}",
                ),
                unit="percentunit",
            ),
            timeseries(
                "Blocked tasks",
                "Tasks in uninterruptible sleep by what they wait for.",
                Query("sum by (class) (io_blocked_tasks{NODE})", "{{class}}"),
                stack=True,
            ),
            timeseries(
                "Disk latency",
                "Time per request.",
                Query(
                    "sum by (node, device, operation)"
                    " (rate(io_disk_operation_seconds_total{NODE}[$__rate_interval]))"
                    " / (sum by (node, device, operation)"
                    " (rate(io_disk_operations_total{NODE}[$__rate_interval])) > 0)",
                    "{{node}} {{device}} {{operation}}",
                ),
                unit="s",
            ),
            timeseries(
                "Disk throughput",
                "Bytes of completed requests.",
                Query(
                    "sum by (node, device, operation)"
                    " (rate(io_disk_bytes_total{NODE}[$__rate_interval]))",
                    "{{node}} {{device}} {{operation}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "Disk busy",
                "Share of time the device had a request in flight; one that serves many at once is "
                "not full at 100 %.",
                Query(
                    "max by (node, device)"
                    " (rate(io_disk_busy_seconds_total{NODE}[$__rate_interval]))",
                    "{{node}} {{device}}",
                ),
                unit="percentunit",
            ),
            timeseries(
                "Ranks: read and written",
                "Bytes that reached storage, of each rank and the processes it has started.",
                Query(
                    "sum by (job_id, role, rank, direction) (rate(rl_rank_io_bytes_total"
                    '{RANK, layer="storage"}[$__rate_interval]))',
                    "{{job_id}} {{role}} {{rank}} {{direction}}",
                ),
                unit="Bps",
            ),
        ),
    ],
)
