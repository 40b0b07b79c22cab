"""What the ranks of a job send, receive, read and write."""

from stagewatch import dashboards as draw

SOCKETS_AND_STORAGE = draw.section(
    "Sockets and storage",
    draw.timeseries(
        "Sent again",
        "Share of a rank's segments that were sent again: the one bad socket among many.",
        draw.worst("max by (role, rank) (rank:rl_tcp_retransmission:ratio{RANK})"),
    ),
    draw.timeseries(
        "Round trip",
        "Of each rank's slowest connection.",
        draw.worst("max by (role, rank) (rl_rank_tcp_rtt_seconds{RANK})"),
        log=True,
    ),
    draw.timeseries(
        "Network throughput",
        "Bytes received, and bytes sent that the peer has acknowledged.",
        draw.worst("sum by (role, rank, direction) (rate(rl_rank_tcp_bytes_total{RANK}[RATE]))"),
    ),
    draw.timeseries(
        "Read and written",
        "Bytes that reached storage, of each rank and the processes it has started.",
        draw.worst(
            "sum by (role, rank, direction) (rate(rl_rank_io_bytes_total"
            '{RANK, layer="storage"}[RATE]))'
        ),
    ),
    draw.timeseries(
        "Sync of a small file",
        "How long the canary's fsync took, on each mount of the nodes of this job.",
        draw.worst(
            'max by (node, mount) (io_canary_seconds{CLUSTER, phase="fsync"}'
            " and on (cluster, node) rl_rank_up{RANK})"
        ),
        unit="s",
        log=True,
    ),
    draw.timeseries(
        "Size of the newest checkpoint",
        "One much smaller than its predecessor was cut short.",
        draw.worst("max by (directory) (io_checkpoint_size_bytes{RANK})"),
    ),
    lacking="no ranks were seen, or nothing of the kind",
    collapsed=True,
)
