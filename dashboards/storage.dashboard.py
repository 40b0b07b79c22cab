"""Mounts, disks, and who waits for them."""

from sections.storage_checkpoints import CHECKPOINTS
from sections.storage_disks import DISKS_AND_WAITING
from sections.storage_mounts import CANARY
from sections.storage_nfs import NFS
from stagewatch import dashboards as draw

GUIDE = """\
**The canary** is a small file that the agent writes, syncs, reads back and removes on each
configured mount: *stuck* is how long the mount has not answered.  **NFS:** execute = queue + round
trip + the time between them.  A long queue with short round trips comes from this node, long round
trips from the server or the network; retransmissions are lost packets or a server that does not
answer.  **Pressure** is the share of time in which tasks waited for the disk.  A full or dying
mount shows here one step before a trainer reads a broken checkpoint.
"""

dashboard = draw.board(
    "Storage",
    uid="stagewatch-storage",
    description="NFS, canaries, space, disks, and the ranks that wait for them.",
    guide=GUIDE,
    variables_used=("partition", "node", "job_id"),
    sections=[
        draw.section(
            "Now",
            draw.count(
                "Canaries that fail",
                "Mounts on which the last canary failed or hangs.",
                "io_canary_success{NODE} == 0",
            ),
            draw.stat(
                "Slowest sync",
                "The longest fsync of the last canaries.",
                'max(io_canary_seconds{NODE, phase="fsync"})',
                thresholds=draw.steps((0.5, draw.AMBER), (5, draw.RED)),
            ),
            draw.stat(
                "Fullest mount",
                "Share of space in use.",
                "max(1 - io_filesystem_available_bytes{NODE} / io_filesystem_size_bytes{NODE})",
                unit="percentunit",
                thresholds=draw.steps((0.9, draw.AMBER), (0.97, draw.RED)),
            ),
            draw.count(
                "Silent NFS servers",
                "Servers that do not respond, according to the kernel.",
                "nfs_server_not_responding{NODE} == 1",
            ),
            draw.stat(
                "Blocked tasks",
                "Tasks in uninterruptible sleep for a file system or disk.",
                'sum(io_blocked_tasks{NODE, class=~"nfs|fuse|lustre|page|block|journal"})'
                " or vector(0)",
                thresholds=draw.steps((1, draw.AMBER), (10, draw.RED)),
            ),
            draw.stat(
                "I/O pressure",
                "The worst node's share of time in which all tasks stood still for I/O.",
                'max(rate(io_pressure_seconds_total{NODE, resource="io", kind="full"}[RATE]))',
                unit="percentunit",
                thresholds=draw.steps((0.1, draw.AMBER), (0.5, draw.RED)),
            ),
        ),
        CANARY,
        NFS,
        CHECKPOINTS,
        DISKS_AND_WAITING,
    ],
)
