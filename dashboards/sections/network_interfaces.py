"""The node's own view of its network: interfaces and TCP, from node_exporter."""

from stagewatch import dashboards as draw

ETHERNET = 'device!~"lo|veth.*|docker.*|br-.*|cali.*|flannel.*"'


def _rate(counter: str) -> str:
    return f"rate(node_network_{counter}_total{{NODE, {ETHERNET}}}[RATE])"


INTERFACES = draw.section(
    "Interfaces",
    draw.timeseries(
        "Received",
        "By interface.",
        draw.worst(f"sum by (node, device) ({_rate('receive_bytes')})"),
    ),
    draw.timeseries(
        "Sent",
        "By interface.",
        draw.worst(f"sum by (node, device) ({_rate('transmit_bytes')})"),
    ),
    draw.timeseries(
        "Errors and drops",
        "Packets per second; a healthy link has none.",
        [
            draw.Query(
                draw.above_zero(f"sum by (node, device) ({rate})", f"sum({rate})", "all"),
                f"{{{{node}}}} {{{{device}}}} {direction} {kind}",
            )
            for direction in ("receive", "transmit")
            for kind in ("errs", "drop")
            for rate in (_rate(f"{direction}_{kind}"),)
        ],
        unit="pps",
    ),
    draw.state_timeline(
        "Links",
        "Whether an interface that is switched on has a link.",
        draw.worst(
            f"min by (node, device) (node_network_carrier{{NODE, {ETHERNET}}})",
            least=True,
            most=32,
        ),
        mappings=draw.mapping({"0": ("down", draw.RED), "1": ("up", draw.GREEN)}),
        width=12,
        rows=8,
    ),
)

TCP = draw.section(
    "TCP",
    draw.timeseries(
        "Sent again",
        "Share of segments that each node had to send again.",
        draw.worst(
            "max by (node) (rate(node_netstat_Tcp_RetransSegs{NODE}[RATE])"
            " / (rate(node_netstat_Tcp_OutSegs{NODE}[RATE]) > 0))"
        ),
        unit="percentunit",
    ),
    draw.timeseries(
        "Connections",
        "Established TCP connections of each node.",
        draw.worst("max by (node) (node_netstat_Tcp_CurrEstab{NODE})"),
    ),
)
