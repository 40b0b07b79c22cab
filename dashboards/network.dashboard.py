"""Links, sockets and clocks: which rank's connection is the odd one."""

from sections.network_fabric import GPU_LINKS, RDMA
from sections.network_interfaces import ETHERNET, INTERFACES, TCP
from sections.network_ranks import CONNECTIONS_OF_THE_RANKS
from stagewatch import dashboards as draw

GUIDE = """\
**Compare, do not measure:** ranks of a job do the same thing, so look for the one line that leaves
the bundle.  Interface figures come from node_exporter.  Bursts that all nodes share at
the same moment are the all-reduce pattern; a node that is missing from the burst, or is late, holds
up the rest.  Retransmissions are lost packets.  Clocks are here because ranks that end a loop by
the wall clock leave it at different times if their clocks differ.
"""

dashboard = draw.board(
    "Network performance",
    uid="stagewatch-network",
    description="Bandwidth, errors, retransmissions, clocks; by node and by rank.",
    guide=GUIDE,
    variables_used=("partition", "node"),
    sections=[
        draw.section(
            "Now",
            draw.count(
                "Links down",
                "Interfaces that are switched on but have no link.",
                f"node_network_carrier{{NODE, {ETHERNET}}} == 0",
                draw.AMBER,
            ),
            draw.stat(
                "Worst retransmission",
                "Share of segments that a node had to send again.",
                "max(rate(node_netstat_Tcp_RetransSegs{NODE}[RATE])"
                " / (rate(node_netstat_Tcp_OutSegs{NODE}[RATE]) > 0))",
                unit="percentunit",
                thresholds=draw.steps((0.001, draw.AMBER), (0.01, draw.RED)),
            ),
            draw.stat(
                "Widest clock offset",
                "Between a node and its time source.",
                "max(abs(clock_offset_seconds{NODE}))",
                thresholds=draw.steps((0.001, draw.AMBER), (0.01, draw.RED)),
            ),
            draw.count(
                "Clocks without source",
                "Nodes whose clock has no time source.",
                "clock_synchronized{NODE} == 0",
                draw.AMBER,
            ),
            draw.stat(
                "Received",
                "Over all interfaces of the chosen nodes.",
                f"sum(rate(node_network_receive_bytes_total{{NODE, {ETHERNET}}}[RATE]))",
            ),
            draw.stat(
                "Sent",
                "Over all interfaces of the chosen nodes.",
                f"sum(rate(node_network_transmit_bytes_total{{NODE, {ETHERNET}}}[RATE]))",
            ),
        ),
        INTERFACES,
        TCP,
        CONNECTIONS_OF_THE_RANKS,
        RDMA,
        draw.section(
            "Names and endpoints",
            draw.state_timeline(
                "Probes",
                "Whether each configured name resolves and each endpoint answers.",
                draw.worst("min by (node, target) (net_probe_success{NODE})", least=True, most=32),
                mappings=draw.mapping({"0": ("fails", draw.RED), "1": ("answers", draw.GREEN)}),
                width=12,
                rows=8,
            ),
            draw.timeseries(
                "Phases",
                "How long each phase took on the slowest node.",
                "max by (target, phase) (net_probe_seconds{NODE})",
                log=True,
            ),
        ),
        GPU_LINKS,
        draw.section(
            "Clocks",
            draw.timeseries(
                "Offset",
                "From the time source, as the kernel still corrects it.",
                draw.worst("max by (node) (clock_offset_seconds{NODE})"),
                minimum=None,
            ),
            draw.timeseries(
                "Largest possible error",
                "The most a clock may be off by its own estimate; the line is 10 ms.",
                draw.worst("max by (node) (clock_max_error_seconds{NODE})"),
                thresholds=draw.steps((0.01, draw.AMBER)),
            ),
        ),
    ],
)
