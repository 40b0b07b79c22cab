"""The node's own view of its network: interfaces and TCP, from node_exporter."""

from stagewatch.dashboards import GREEN, RED, Query, mapping, section, state_timeline, timeseries

ETHERNET = 'device!~"lo|veth.*|docker.*|br-.*|cali.*|flannel.*"'

INTERFACES = section(
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
)

TCP = section(
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
)
