"""Mounts as a trainer meets them: the canary's small file, and the space left."""

from stagewatch.dashboards import (
    AMBER,
    GREEN,
    RED,
    Column,
    Query,
    mapping,
    section,
    state_timeline,
    steps,
    table,
    timeseries,
)

CANARY = section(
    "Canary",
    state_timeline(
        "Canaries",
        "Whether a small file could be written, synced, read back and removed.",
        Query("min by (node, mount) (io_canary_success{NODE})", "{{node}} {{mount}}"),
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
            Column("Size", "max by (node, mount) (io_filesystem_size_bytes{NODE})", "bytes"),
            Column(
                "Available", "min by (node, mount) (io_filesystem_available_bytes{NODE})", "bytes"
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
)
