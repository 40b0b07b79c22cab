"""Mounts as a trainer meets them: the canary's small file, and the space left."""

from stagewatch import dashboards as draw

CANARY = draw.section(
    "Canary",
    draw.state_timeline(
        "Canaries",
        "Whether a small file could be written, synced, read back and removed.",
        draw.worst("min by (node, mount) (io_canary_success{NODE})", least=True, most=32),
        mappings=draw.mapping({"0": ("fails", draw.RED), "1": ("works", draw.GREEN)}),
        width=12,
        rows=8,
    ),
    draw.timeseries(
        "Phases",
        "How long each phase took on the slowest node.",
        "max by (mount, phase) (io_canary_seconds{NODE})",
        log=True,
    ),
    draw.timeseries(
        "Throughput",
        "Of the last larger file; writes are synced.",
        "min by (mount, direction) (io_canary_bandwidth_bytes_per_second{NODE})",
        unit="Bps",
    ),
    draw.table(
        "Space",
        "Free space and inodes of each mount with a canary.",
        [
            draw.Column("Size", "max by (node, mount) (io_filesystem_size_bytes{NODE})", "bytes"),
            draw.Column(
                "Available", "min by (node, mount) (io_filesystem_available_bytes{NODE})", "bytes"
            ),
            draw.Column(
                "Used",
                "max by (node, mount) (1 - io_filesystem_available_bytes{NODE}"
                " / io_filesystem_size_bytes{NODE})",
                "percentunit",
                thresholds=draw.steps((0.9, draw.AMBER), (0.97, draw.RED)),
                decimals=1,
            ),
            draw.Column(
                "Inodes used",
                "max by (node, mount) (1 - io_filesystem_files_free{NODE}"
                " / (io_filesystem_files{NODE} > 0))",
                "percentunit",
                thresholds=draw.steps((0.9, draw.AMBER), (0.97, draw.RED)),
                decimals=1,
            ),
        ],
        sort="Used",
        width=12,
    ),
)
