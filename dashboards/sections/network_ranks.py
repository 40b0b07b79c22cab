"""The TCP connections of each rank."""

from stagewatch.dashboards import Query, section, timeseries

CONNECTIONS_OF_THE_RANKS = section(
    "Connections of the ranks",
    timeseries(
        "Sent again, by rank",
        "Share of a rank's segments that were sent again: the one bad socket among many.",
        Query(
            "max by (job_id, role, rank, node) (rank:rl_tcp_retransmission:ratio{NODE})",
            "{{job_id}} {{role}} {{rank}} ({{node}})",
        ),
        unit="percentunit",
    ),
    timeseries(
        "Round trip, by rank",
        "Of each rank's slowest connection.",
        Query(
            "max by (job_id, role, rank, node) (rl_rank_tcp_rtt_seconds{NODE})",
            "{{job_id}} {{role}} {{rank}} ({{node}})",
        ),
        unit="s",
        log=True,
    ),
    timeseries(
        "Throughput, by rank",
        "Bytes received, and bytes sent that the peer has acknowledged.",
        Query(
            "sum by (job_id, role, rank, direction)"
            " (rate(rl_rank_tcp_bytes_total{NODE}[$__rate_interval]))",
            "{{job_id}} {{role}} {{rank}} {{direction}}",
        ),
        unit="Bps",
    ),
    timeseries(
        "Silence, by rank",
        "Time since data came in on any connection of the rank.",
        Query(
            "min by (job_id, role, rank) (rl_rank_tcp_last_receive_age_seconds{NODE})",
            "{{job_id}} {{role}} {{rank}}",
        ),
        unit="s",
        log=True,
    ),
    timeseries(
        "Not yet acknowledged",
        "Bytes written that the peer has not acknowledged; a queue that stays is a peer "
        "that does not read, or a path that drops.",
        Query(
            "sum by (job_id, role, rank) (rl_rank_tcp_send_queue_bytes{NODE})",
            "{{job_id}} {{role}} {{rank}}",
        ),
        unit="bytes",
    ),
    timeseries(
        "Connections by state",
        "Of all ranks; many in syn_sent or close_wait are a service that does not answer.",
        Query("sum by (state) (rl_rank_tcp_connections{NODE})", "{{state}}"),
        stack=True,
    ),
)
