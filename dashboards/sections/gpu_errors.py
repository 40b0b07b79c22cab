"""Errors of the GPUs, and of the links between them and to the host."""

from stagewatch import dashboards as draw

_ECC = 'rate(gpu_ecc_errors_total{GPU, scope="volatile"}[RATE])'
_NVLINK = "rate(gpu_nvlink_errors_total{GPU}[RATE])"
_REPLAYS = "rate(gpu_pcie_replays_total{GPU}[RATE])"

ERRORS_AND_LINKS = draw.section(
    "Errors and links",
    draw.table(
        "XIDs",
        "GPU errors since boot by kind, and the action that the vendor asks for.",
        [
            draw.Column(
                "Count",
                "sum by (node, gpu, pci_bus_id, xid, severity, action, meaning)"
                " ((gpu_xid_errors_total{NODE} or gpu_xid_last_timestamp_seconds{NODE} ^ 0)"
                " * on (cluster, node, xid)"
                " group_left (action, meaning) gpu_xid_info{NODE})",
            )
        ],
        sort="Count",
        width=12,
    ),
    draw.timeseries(
        "ECC errors",
        "Errors per second; corrected ones are information, uncorrected ones are not.",
        draw.above_zero(
            f"sum by (node, gpu, memory, kind) ({_ECC})", f"sum by (kind) ({_ECC})", "all"
        ),
        "{{node}} GPU {{gpu}} {{memory}} {{kind}}",
        unit="cps",
    ),
    draw.timeseries(
        "NVLink",
        "Data over all links of a GPU.",
        draw.worst(
            "sum by (node, gpu, direction) (rate(gpu_nvlink_bytes_total{GPU}[RATE])"
            " or gpu_nvlink_throughput_bytes_per_second{GPU})"
        ),
        "{{node}} GPU {{gpu}} {{direction}}",
        unit="Bps",
    ),
    draw.timeseries(
        "NVLink and PCIe errors",
        "Repeats and errors per second on the links; healthy links have none.",
        [
            draw.Query(
                draw.above_zero(f"sum by (node, gpu, kind) ({_NVLINK})", f"sum({_NVLINK})", "all"),
                "{{node}} GPU {{gpu}} NVLink {{kind}}",
            ),
            draw.Query(
                draw.above_zero(f"sum by (node, gpu) ({_REPLAYS})", f"sum({_REPLAYS})", "all"),
                "{{node}} GPU {{gpu}} PCIe replays",
            ),
        ],
        unit="cps",
    ),
    draw.timeseries(
        "PCIe",
        "Traffic between GPU and host.",
        draw.worst(
            "sum by (node, gpu, direction) (gpu_pcie_throughput_bytes_per_second{GPU}"
            " or rate(gpu_pcie_bytes_total{GPU}[RATE]))"
        ),
        "{{node}} GPU {{gpu}} {{direction}}",
        unit="Bps",
    ),
    draw.bar_gauge(
        "Rows replaced",
        "Memory rows replaced by spares, by kind of error.",
        draw.above_zero(
            "sum by (node, gpu, kind) (gpu_remapped_rows{GPU})",
            "max by (kind) (gpu_remapped_rows{GPU})",
            "worst",
        ),
        "{{node}} GPU {{gpu}} {{kind}}",
        thresholds=draw.steps((1, draw.AMBER), (8, draw.RED)),
        width=12,
    ),
)
