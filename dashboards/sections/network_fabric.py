"""The fast links: RDMA between nodes, NVLink and PCIe inside them."""

from stagewatch import dashboards as draw

_ERRORS = "rate(net_infiniband_errors_total{NODE}[RATE])"

RDMA = draw.section(
    "InfiniBand, RoCE, EFA",
    draw.timeseries(
        "Traffic",
        "By port and direction.",
        draw.worst(
            "sum by (node, device, port, direction) (rate(net_infiniband_bytes_total{NODE}[RATE]))"
        ),
        "{{node}} {{device}}:{{port}} {{direction}}",
    ),
    draw.timeseries(
        "Errors",
        "By kind, per second; a healthy fabric has none.",
        draw.above_zero(f"sum by (node, device, error) ({_ERRORS})", f"sum({_ERRORS})", "all"),
        unit="cps",
    ),
    draw.table(
        "Ports",
        "State, speed, and how often the link went down.",
        [
            draw.Column(
                "Active",
                "max by (node, device, port)"
                ' (net_infiniband_state{NODE, state="active"}) or'
                " 0 * max by (node, device, port) (net_infiniband_state{NODE})",
                unit="none",
                mappings=draw.mapping({"0": ("no", draw.RED), "1": ("yes", draw.GREEN)}),
            ),
            draw.Column(
                "Speed",
                "max by (node, device, port) (net_infiniband_rate_bytes_per_second{NODE})",
                unit="Bps",
            ),
            draw.Column(
                "Should be",
                "max by (node, device, port) (net_infiniband_expected_rate_bytes_per_second{NODE})",
                unit="Bps",
            ),
            draw.Column(
                "Went down",
                "max by (node, device, port) (net_infiniband_link_downs_total{NODE})",
                thresholds=draw.ANY_IS_AMBER,
            ),
        ],
        sort="Went down",
        width=12,
    ),
    draw.timeseries(
        "Congestion",
        "Signs of it per second, by the name of the kernel's counter.",
        draw.worst(
            "sum by (node, device, kind) (rate(net_infiniband_congestion_total{NODE}[RATE]))"
        ),
        unit="cps",
    ),
)

GPU_LINKS = draw.section(
    "GPU links",
    draw.timeseries(
        "NVLink",
        "Data over all NVLinks of a node: the all-reduce pattern inside it.",
        draw.worst(
            "sum by (node, direction) (rate(gpu_nvlink_bytes_total{NODE}[RATE])"
            " or gpu_nvlink_throughput_bytes_per_second{NODE})"
        ),
        unit="Bps",
    ),
    draw.timeseries(
        "PCIe",
        "Traffic between GPUs and host.",
        draw.worst(
            "sum by (node, direction) (gpu_pcie_throughput_bytes_per_second{NODE}"
            " or rate(gpu_pcie_bytes_total{NODE}[RATE]))"
        ),
        unit="Bps",
    ),
)
