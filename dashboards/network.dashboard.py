"""Links, sockets and clocks: which rank's connection is the odd one."""

from stagewatch.dashboards import (
    AMBER,
    ANY_IS_AMBER,
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
**Compare, do not measure:** ranks of a job do the same thing, so the one line that leaves the
bundle is the finding.  Interface figures come from node_exporter.  Bursts that all nodes share at
the same moment are the all-reduce pattern; a node that is missing from the burst, or is late, holds
up the rest.  Retransmissions are lost packets.  Clocks stand here because ranks that end a loop by
the wall clock leave it at different times when their clocks differ.
"""

ETHERNET = 'device!~"lo|veth.*|docker.*|br-.*|cali.*|flannel.*"'

dashboard = board(
    "Network performance",
    uid="stagewatch-network",
    description="Bandwidth, errors, retransmissions, clocks; by node and by rank.",
    guide=GUIDE,
    variables_used=("partition", "node"),
    sections=[
        section(
            "Now",
            stat(
                "Received",
                "Over all interfaces of the chosen nodes.",
                f"sum(rate(node_network_receive_bytes_total{{NODE, {ETHERNET}}}"
                "[$__rate_interval]))",
                unit="Bps",
            ),
            stat(
                "Sent",
                "Over all interfaces of the chosen nodes.",
                f"sum(rate(node_network_transmit_bytes_total{{NODE, {ETHERNET}}}"
                "[$__rate_interval]))",
                unit="Bps",
            ),
            stat(
                "Links down",
                "Interfaces that are switched on but have no link.",
                f"count(node_network_carrier{{NODE, {ETHERNET}}} == 0) or vector(0)",
                thresholds=ANY_IS_AMBER,
            ),
            stat(
                "Worst retransmission",
                "Share of segments that a node had to send again.",
                "max(rate(node_netstat_Tcp_RetransSegs{NODE}[$__rate_interval])"
                " / (rate(node_netstat_Tcp_OutSegs{NODE}[$__rate_interval]) > 0))",
                unit="percentunit",
                thresholds=steps((0.001, AMBER), (0.01, RED)),
            ),
            stat(
                "Widest clock offset",
                "Between a node and its time source.",
                "max(abs(clock_offset_seconds{NODE}))",
                unit="s",
                thresholds=steps((0.001, AMBER), (0.01, RED)),
            ),
            stat(
                "Clocks without source",
                "Nodes whose clock is kept in step with nothing.",
                "count(clock_synchronized{NODE} == 0) or vector(0)",
                thresholds=ANY_IS_AMBER,
            ),
        ),
        section(
            "Interfaces",
            timeseries(
                "Received",
                "By interface.",
                Query(
                    "sum by (node, device)"
                    f" (rate(node_network_receive_bytes_total{{NODE, {ETHERNET}}}"
                    "[$__rate_interval]))",
                    "{{node}} {{device}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "Sent",
                "By interface.",
                Query(
                    "sum by (node, device)"
                    f" (rate(node_network_transmit_bytes_total{{NODE, {ETHERNET}}}"
                    "[$__rate_interval]))",
                    "{{node}} {{device}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "Errors and drops",
                "Packets per second; a healthy link has none.",
                [
                    Query(
                        "sum by (node, device)"
                        f" (rate(node_network_{direction}_{kind}_total{{NODE, {ETHERNET}}}"
                        "[$__rate_interval]))",
                        f"{{{{node}}}} {{{{device}}}} {direction} {kind}",
                    )
                    for direction in ("receive", "transmit")
                    for kind in ("errs", "drop")
                ],
                unit="pps",
            ),
            state_timeline(
                "Links",
                "Whether an interface that is switched on has a link.",
                Query(
                    f"min by (node, device) (node_network_carrier{{NODE, {ETHERNET}}})",
                    "{{node}} {{device}}",
                ),
                mappings=mapping({"0": ("down", RED), "1": ("up", GREEN)}),
                width=12,
                rows=8,
            ),
        ),
        section(
            "TCP",
            timeseries(
                "Sent again",
                "Share of segments that each node had to send again.",
                Query(
                    "max by (node) (rate(node_netstat_Tcp_RetransSegs{NODE}[$__rate_interval])"
                    " / (rate(node_netstat_Tcp_OutSegs{NODE}[$__rate_interval]) > 0))",
                    "{{node}}",
                ),
                unit="percentunit",
            ),
            timeseries(
                "Connections",
                "Established TCP connections of each node.",
                Query("max by (node) (node_netstat_Tcp_CurrEstab{NODE})", "{{node}}"),
            ),
        ),
        section(
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
        ),
        section(
            "InfiniBand, RoCE, EFA",
            timeseries(
                "Traffic",
                "By port and direction.",
                Query(
                    "sum by (node, device, port, direction)"
                    " (rate(net_infiniband_bytes_total{NODE}[$__rate_interval]))",
                    "{{node}} {{device}}:{{port}} {{direction}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "Errors",
                "By kind, per second; a healthy fabric has none.",
                Query(
                    "sum by (node, device, error)"
                    " (rate(net_infiniband_errors_total{NODE}[$__rate_interval]))",
                    "{{node}} {{device}} {{error}}",
                ),
                unit="cps",
            ),
            table(
                "Ports",
                "State, speed, and how often the link went down.",
                {"node": "Node", "device": "Device", "port": "Port"},
                [
                    Column(
                        "Active",
                        "max by (node, device, port)"
                        ' (net_infiniband_state{NODE, state="active"}) or'
                        " 0 * max by (node, device, port) (net_infiniband_state{NODE})",
                        unit="none",
                        mappings=tuple(mapping({"0": ("no", RED), "1": ("yes", GREEN)})),
                    ),
                    Column(
                        "Speed",
                        "max by (node, device, port) (net_infiniband_rate_bytes_per_second{NODE})",
                        unit="Bps",
                    ),
                    Column(
                        "Should be",
                        "max by (node, device, port)"
                        " (net_infiniband_expected_rate_bytes_per_second{NODE})",
                        unit="Bps",
                    ),
                    Column(
                        "Went down",
                        "max by (node, device, port) (net_infiniband_link_downs_total{NODE})",
                        thresholds=ANY_IS_AMBER,
                    ),
                ],
                sort="Went down",
                width=12,
            ),
            timeseries(
                "Congestion",
                "Signs of it per second, by the name of the kernel's counter.",
                Query(
                    "sum by (node, device, kind)"
                    " (rate(net_infiniband_congestion_total{NODE}[$__rate_interval]))",
                    "{{node}} {{device}} {{kind}}",
                ),
                unit="cps",
            ),
        ),
        section(
            "Names and endpoints",
            state_timeline(
                "Probes",
                "Whether each configured name resolves and each endpoint answers.",
                Query("min by (node, target) (net_probe_success{NODE})", "{{node}} {{target}}"),
                mappings=mapping({"0": ("fails", RED), "1": ("answers", GREEN)}),
                width=12,
                rows=8,
            ),
            timeseries(
                "Phases",
                "How long each phase took on the slowest node.",
                Query("max by (target, phase) (net_probe_seconds{NODE})", "{{target}} {{phase}}"),
                unit="s",
                log=True,
            ),
        ),
        section(
            "GPU links",
            timeseries(
                "NVLink",
                "Data over all NVLinks of a node: the all-reduce pattern inside it.",
                Query(
                    "sum by (node, direction)"
                    " (rate(gpu_nvlink_bytes_total{NODE}[$__rate_interval]))",
                    "{{node}} {{direction}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "PCIe",
                "Traffic between GPUs and host.",
                Query(
                    "sum by (node, direction) (gpu_pcie_throughput_bytes_per_second{NODE}"
                    " or rate(gpu_pcie_bytes_total{NODE}[$__rate_interval]))",
                    "{{node}} {{direction}}",
                ),
                unit="Bps",
            ),
        ),
        section(
            "Clocks",
            timeseries(
                "Offset",
                "From the time source, as the kernel still corrects it.",
                Query("max by (node) (clock_offset_seconds{NODE})", "{{node}}"),
                unit="s",
                minimum=None,
            ),
            timeseries(
                "Largest possible error",
                "The most a clock may be off by its own estimate; the line is 10 ms.",
                Query("max by (node) (clock_max_error_seconds{NODE})", "{{node}}"),
                unit="s",
                thresholds=steps((0.01, AMBER)),
            ),
        ),
    ],
)
