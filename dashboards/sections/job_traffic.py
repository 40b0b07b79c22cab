"""What the ranks of a job send, receive, read and write."""

from stagewatch.dashboards import Query, section, timeseries

SOCKETS_AND_STORAGE = section(
    "Sockets and storage",
    timeseries(
        "Sent again",
        "Share of a rank's segments that were sent again: the one bad socket among many.",
        Query("max by (role, rank) (rank:rl_tcp_retransmission:ratio{JOB})", "{{role}} {{rank}}"),
        unit="percentunit",
    ),
    timeseries(
        "Round trip",
        "Of each rank's slowest connection.",
        Query("max by (role, rank) (rl_rank_tcp_rtt_seconds{JOB})", "{{role}} {{rank}}"),
        unit="s",
        log=True,
    ),
    timeseries(
        "Network throughput",
        "Bytes received, and bytes sent that the peer has acknowledged.",
        Query(
            "sum by (role, rank, direction) (rate(rl_rank_tcp_bytes_total{JOB}[$__rate_interval]))",
            "{{role}} {{rank}} {{direction}}",
        ),
        unit="Bps",
    ),
    timeseries(
        "Read and written",
        "Bytes that reached storage, of each rank and the processes it has started.",
        Query(
            "sum by (role, rank, direction) (rate(rl_rank_io_bytes_total"
            '{JOB, layer="storage"}[$__rate_interval]))',
            "{{role}} {{rank}} {{direction}}",
        ),
        unit="Bps",
    ),
    timeseries(
        "Sync of a small file",
        "How long the canary's fsync took, on each mount of the nodes of this job.",
        Query(
            'max by (node, mount) (io_canary_seconds{CLUSTER, phase="fsync"}'
            " and on (cluster, node) rl_rank_up{JOB})",
            "{{node}} {{mount}}",
        ),
        unit="s",
        log=True,
    ),
    timeseries(
        "Size of the newest checkpoint",
        "One much smaller than its predecessor was cut short.",
        Query("max by (directory) (io_checkpoint_size_bytes{JOB})", "{{directory}}"),
        unit="bytes",
    ),
    collapsed=True,
)
