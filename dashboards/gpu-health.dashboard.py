"""Every GPU's health, coloured by threshold."""

from stagewatch.dashboards import (
    AMBER,
    ANY_IS_BAD,
    GREEN,
    RED,
    TO_JOB,
    Column,
    Query,
    bar_gauge,
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
**Table:** one line per GPU; amber is worth a look, red is worth a drain.  *Below limit* is how far
the GPU is from the temperature at which it slows itself down: that limit differs by model, so it
says more than degrees.  *SM active* says how much of the GPU worked; *utilisation* only that some
kernel ran, so a GPU that spins in a collective shows 100 % there with little power and no tensor
activity.  Readings that a GPU does not have are absent.  `source` is `recorded` where they are
replayed from a file.
"""

HOT = steps((75, AMBER), (85, RED))
MEMORY_HOT = steps((90, AMBER), (95, RED))
NEAR = (*steps((5, AMBER), (10, GREEN), base=RED),)
KEYS = {"node": "Node", "gpu": "GPU"}

dashboard = board(
    "GPU health",
    uid="stagewatch-gpu-health",
    description="Temperature, errors, links and work of every GPU, per node.",
    guide=GUIDE,
    variables_used=("partition", "node", "gpu"),
    sections=[
        section(
            "Now",
            stat("GPUs", "GPUs that the driver reaches.", "count(gpu_up{GPU} == 1)"),
            stat(
                "Hottest",
                "The hottest GPU die.",
                "max(gpu_temperature_celsius{GPU})",
                unit="celsius",
                thresholds=HOT,
            ),
            stat(
                "Hottest memory",
                "The hottest device memory.",
                "max(gpu_memory_temperature_celsius{GPU})",
                unit="celsius",
                thresholds=MEMORY_HOT,
            ),
            stat(
                "Slowed down",
                "GPUs that heat or a power brake slows down now.",
                "count(count by (cluster, node, gpu) (gpu_throttle_active{GPU,"
                ' reason=~"hw_.*|sw_thermal"} == 1)) or vector(0)',
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "With serious XIDs",
                "GPUs with an XID in the last day that takes a node out of service.",
                "count(count by (cluster, node, pci_bus_id) (time()"
                ' - gpu_xid_last_timestamp_seconds{NODE, severity="critical"} < 86400))'
                " or vector(0)",
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "To reset or replace",
                "GPUs with a row remap that is pending or failed, or for which the driver asks for "
                "a recovery action.",
                "count(gpu_remap_pending{GPU} == 1 or gpu_remap_failed{GPU} == 1"
                " or gpu_recovery_action{GPU} > 0) or vector(0)",
                thresholds=ANY_IS_BAD,
            ),
            table(
                "Every GPU",
                "One line per GPU, as of the end of the time range.",
                KEYS,
                [
                    Column(
                        "Up",
                        "min by (node, gpu) (gpu_up{GPU})",
                        unit="none",
                        mappings=tuple(mapping({"0": ("lost", RED), "1": ("up", GREEN)})),
                    ),
                    Column(
                        "Die",
                        "max by (node, gpu) (gpu_temperature_celsius{GPU})",
                        unit="celsius",
                        thresholds=HOT,
                    ),
                    Column(
                        "Below limit",
                        "min by (node, gpu) (gpu_temperature_slowdown_celsius{GPU}"
                        " - gpu_temperature_celsius{GPU})",
                        unit="celsius",
                        thresholds=NEAR,
                    ),
                    Column(
                        "Memory",
                        "max by (node, gpu) (gpu_memory_temperature_celsius{GPU})",
                        unit="celsius",
                        thresholds=MEMORY_HOT,
                    ),
                    Column("Power", "max by (node, gpu) (gpu_power_watts{GPU})", unit="watt"),
                    Column(
                        "SM active",
                        "max by (node, gpu) (gpu_sm_active_ratio{GPU})",
                        unit="percentunit",
                        decimals=0,
                    ),
                    Column(
                        "Utilisation",
                        "max by (node, gpu) (gpu_utilization_ratio{GPU})",
                        unit="percentunit",
                        decimals=0,
                    ),
                    Column(
                        "Memory used",
                        "max by (node, gpu) (gpu_memory_used_bytes{GPU}"
                        " / gpu_memory_total_bytes{GPU})",
                        unit="percentunit",
                        thresholds=steps((0.95, AMBER)),
                        decimals=0,
                    ),
                    Column(
                        "Uncorrected ECC",
                        "sum by (node, gpu) (gpu_ecc_errors_total"
                        '{GPU, kind="uncorrected", scope="volatile"})',
                        thresholds=ANY_IS_BAD,
                    ),
                    Column(
                        "PCIe lanes missing",
                        "max by (node, gpu) (gpu_pcie_link_width_max{GPU}"
                        " - gpu_pcie_link_width{GPU})",
                        thresholds=ANY_IS_BAD,
                    ),
                    Column(
                        "NVLinks down",
                        "count by (node, gpu) (gpu_nvlink_up{GPU}) - "
                        "sum by (node, gpu) (gpu_nvlink_up{GPU})",
                        thresholds=ANY_IS_BAD,
                    ),
                ],
                sort="Die",
                rows=12,
            ),
        ),
        section(
            "Heat and power",
            timeseries(
                "Die temperature",
                "Lines at 75 and 85 degrees.",
                Query("max by (node, gpu) (gpu_temperature_celsius{GPU})", "{{node}} GPU {{gpu}}"),
                unit="celsius",
                thresholds=HOT,
                minimum=None,
            ),
            timeseries(
                "Memory temperature",
                "Device memory runs hotter than the die; lines at 90 and 95 degrees.",
                Query(
                    "max by (node, gpu) (gpu_memory_temperature_celsius{GPU})",
                    "{{node}} GPU {{gpu}}",
                ),
                unit="celsius",
                thresholds=MEMORY_HOT,
                minimum=None,
            ),
            timeseries(
                "Power",
                "Draw of each GPU, averaged by the driver over a second.",
                Query("max by (node, gpu) (gpu_power_watts{GPU})", "{{node}} GPU {{gpu}}"),
                unit="watt",
            ),
            timeseries(
                "Slowed down",
                "Share of time in which each reason slowed a GPU down; the worst GPU of each node.",
                Query(
                    "max by (node, reason)"
                    " (rate(gpu_throttle_seconds_total{GPU}[$__rate_interval]))",
                    "{{node}} {{reason}}",
                ),
                unit="percentunit",
            ),
        ),
        section(
            "Work",
            timeseries(
                "SM active",
                "Share of time an SM had at least one warp, averaged over the SMs.",
                Query("max by (node, gpu) (gpu_sm_active_ratio{GPU})", "{{node}} GPU {{gpu}}"),
                unit="percentunit",
                maximum=1,
            ),
            timeseries(
                "Tensor cores active",
                "Share of time the tensor cores worked: near zero on a GPU that only polls.",
                Query("max by (node, gpu) (gpu_tensor_active_ratio{GPU})", "{{node}} GPU {{gpu}}"),
                unit="percentunit",
                maximum=1,
            ),
            timeseries(
                "Memory used",
                "Device memory in use, without the driver's reserve.",
                Query("max by (node, gpu) (gpu_memory_used_bytes{GPU})", "{{node}} GPU {{gpu}}"),
                unit="bytes",
            ),
            timeseries(
                "Clocks",
                "SM clock; drops under load mean that something slows the GPU down.",
                Query(
                    'max by (node, gpu) (gpu_clock_hertz{GPU, domain="sm"})',
                    "{{node}} GPU {{gpu}}",
                ),
                unit="hertz",
            ),
        ),
        section(
            "Errors and links",
            table(
                "XIDs",
                "GPU errors since boot by kind, and what the vendor asks for.",
                {
                    "node": "Node",
                    "gpu": "GPU",
                    "pci_bus_id": "Bus",
                    "xid": "XID",
                    "severity": "Severity",
                    "action": "Action",
                    "meaning": "Meaning",
                },
                [
                    Column(
                        "Count",
                        "sum by (node, gpu, pci_bus_id, xid, severity, action, meaning)"
                        " (gpu_xid_errors_total{NODE} * on (cluster, node, xid)"
                        " group_left (action, meaning) gpu_xid_info{NODE})",
                    )
                ],
                sort="Count",
                width=12,
            ),
            timeseries(
                "ECC errors",
                "Errors per second; corrected ones are information, uncorrected ones are not.",
                Query(
                    "sum by (node, gpu, memory, kind) (rate(gpu_ecc_errors_total"
                    '{GPU, scope="volatile"}[$__rate_interval]))',
                    "{{node}} GPU {{gpu}} {{memory}} {{kind}}",
                ),
                unit="cps",
            ),
            timeseries(
                "NVLink",
                "Data over all links of a GPU.",
                Query(
                    "sum by (node, gpu, direction)"
                    " (rate(gpu_nvlink_bytes_total{GPU}[$__rate_interval]))",
                    "{{node}} GPU {{gpu}} {{direction}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "NVLink and PCIe errors",
                "Repeats and errors per second on the links; healthy links have none.",
                [
                    Query(
                        "sum by (node, gpu, kind)"
                        " (rate(gpu_nvlink_errors_total{GPU}[$__rate_interval]))",
                        "{{node}} GPU {{gpu}} NVLink {{kind}}",
                    ),
                    Query(
                        "sum by (node, gpu) (rate(gpu_pcie_replays_total{GPU}[$__rate_interval]))",
                        "{{node}} GPU {{gpu}} PCIe replays",
                    ),
                ],
                unit="cps",
            ),
            timeseries(
                "PCIe",
                "Traffic between GPU and host.",
                Query(
                    "sum by (node, gpu, direction)"
                    " (gpu_pcie_throughput_bytes_per_second{GPU}"
                    " or rate(gpu_pcie_bytes_total{GPU}[$__rate_interval]))",
                    "{{node}} GPU {{gpu}} {{direction}}",
                ),
                unit="Bps",
            ),
            bar_gauge(
                "Rows replaced",
                "Memory rows replaced by spares, by kind of error.",
                Query(
                    "sum by (node, gpu, kind) (gpu_remapped_rows{GPU})",
                    "{{node}} GPU {{gpu}} {{kind}}",
                ),
                thresholds=steps((1, AMBER), (8, RED)),
                width=12,
            ),
        ),
        section(
            "Jobs",
            table(
                "GPUs and their jobs",
                "Who has been given which GPU; idle and held too long are wasted GPUs.",
                {"node": "Node", "gpu": "GPU", "job_id": "Job", "user": "User"},
                [
                    Column(
                        "Given",
                        "max by (node, gpu, job_id, user) (gpu_job_info{GPU})",
                        unit="none",
                    ),
                    Column(
                        "Idle for",
                        "max by (node, gpu, job_id) (gpu_allocated_idle_seconds{GPU})",
                        unit="s",
                        thresholds=steps((3600, AMBER)),
                    ),
                    Column(
                        "Held after the job's end",
                        "max by (node, gpu, job_id) (gpu_orphaned_process_seconds{GPU})",
                        unit="s",
                        thresholds=steps((300, RED)),
                    ),
                ],
                links={"job_id": TO_JOB},
                sort="Idle for",
                width=12,
            ),
            timeseries(
                "Processes",
                "Compute processes on each GPU; two on one GPU compete for its memory.",
                Query("max by (node, gpu) (gpu_processes{GPU})", "{{node}} GPU {{gpu}}"),
                unit="none",
            ),
        ),
        section(
            "Identity",
            state_timeline(
                "GPU reached by the driver",
                "Lost is an XID 79 or a driver that no longer answers for the GPU.",
                Query("min by (node, gpu) (gpu_up{GPU})", "{{node}} GPU {{gpu}}"),
                mappings=mapping({"0": ("lost", RED), "1": ("up", GREEN)}),
            ),
            table(
                "Models",
                "What each GPU is.",
                {
                    "node": "Node",
                    "gpu": "GPU",
                    "model": "Model",
                    "uuid": "UUID",
                    "serial": "Serial",
                    "driver": "Driver",
                    "vbios": "VBIOS",
                    "pci_bus_id": "Bus",
                    "source": "Source",
                },
                [
                    Column(
                        "Present",
                        "max by (node, gpu, model, uuid, serial, driver, vbios, pci_bus_id, source)"
                        " (gpu_info{GPU})",
                    )
                ],
            ),
            collapsed=True,
        ),
    ],
)
