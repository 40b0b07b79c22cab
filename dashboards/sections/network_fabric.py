"""The fast links: RDMA between nodes, NVLink and PCIe inside them."""

from stagewatch.dashboards import (
    ANY_IS_AMBER,
    GREEN,
    RED,
    Column,
    Query,
    mapping,
    section,
    table,
    timeseries,
)

RDMA = section(
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
                "max by (node, device, port) (net_infiniband_expected_rate_bytes_per_second{NODE})",
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
)

GPU_LINKS = section(
    "GPU links",
    timeseries(
        "NVLink",
        "Data over all NVLinks of a node: the all-reduce pattern inside it.",
        Query(
            "sum by (node, direction) (rate(gpu_nvlink_bytes_total{NODE}[$__rate_interval])"
            " or gpu_nvlink_throughput_bytes_per_second{NODE})",
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
)
