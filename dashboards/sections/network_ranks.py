"""The TCP connections of each rank."""

from stagewatch import dashboards as draw

CONNECTIONS_OF_THE_RANKS = draw.section(
    "Connections of the ranks",
    draw.timeseries(
        "Sent again, by rank",
        "Share of a rank's segments that were sent again: the one bad socket among many.",
        draw.worst("max by (job_id, role, rank, node) (rank:rl_tcp_retransmission:ratio{NODE})"),
        "{{job_id}} {{role}} {{rank}} ({{node}})",
    ),
    draw.timeseries(
        "Round trip, by rank",
        "Of each rank's slowest connection.",
        draw.worst("max by (job_id, role, rank, node) (rl_rank_tcp_rtt_seconds{NODE})"),
        "{{job_id}} {{role}} {{rank}} ({{node}})",
        log=True,
    ),
    draw.timeseries(
        "Throughput, by rank",
        "Bytes received, and bytes sent that the peer has acknowledged.",
        draw.worst(
            "sum by (job_id, role, rank, direction) (rate(rl_rank_tcp_bytes_total{NODE}[RATE]))"
        ),
    ),
    draw.timeseries(
        "Silence, by rank",
        "Time since data came in on any connection of the rank.",
        draw.worst("min by (job_id, role, rank) (rl_rank_tcp_last_receive_age_seconds{NODE})"),
        log=True,
    ),
    draw.timeseries(
        "Not yet acknowledged",
        "Bytes written that the peer has not acknowledged; a queue that stays is a peer "
        "that does not read, or a path that drops.",
        draw.worst("sum by (job_id, role, rank) (rl_rank_tcp_send_queue_bytes{NODE})"),
    ),
    draw.timeseries(
        "Connections by state",
        "Of all ranks; many in syn_sent or close_wait are a service that does not answer.",
        "sum by (state) (rl_rank_tcp_connections{NODE})",
        stack=True,
    ),
)
