"""Every GPU's health, coloured by threshold."""

from sections.gpu_errors import ERRORS_AND_LINKS
from sections.gpu_inventory import IDENTITY, JOBS
from sections.gpu_work import HEAT_AND_POWER, HOT, MEMORY_HOT, WORK
from stagewatch import dashboards as draw

GUIDE = """\
**Table:** one line per GPU, the worst of the cluster or all of the nodes chosen above; amber is
worth a look, red is worth a drain.  *Below limit* is how far the GPU is from the temperature at
which it slows itself down: that limit differs by model, so it says more than degrees.  *SM active*
says how much of the GPU worked; *utilisation* only that some kernel ran, so a GPU that spins in a
collective shows 100 % there with little power and no tensor activity.  Heat maps show all GPUs,
lines the 20 that are worst when the time range ends: end it in the incident.  Readings that a GPU
does not have are absent.  `source` is `recorded` if they are replayed from a file.
"""

WORST = "max by (node, gpu) (gpu:worst_first:score{GPU})"
NEAR = draw.steps((5, draw.AMBER), (10, draw.GREEN), base=draw.RED)

dashboard = draw.board(
    "GPU health",
    uid="stagewatch-gpu-health",
    description="Temperature, errors, links and work of every GPU, per node.",
    guide=GUIDE,
    variables_used=("partition", "node", "gpu"),
    sections=[
        draw.section(
            "Now",
            draw.stat("GPUs", "GPUs that the driver reaches.", "count(gpu_up{GPU} == 1)"),
            draw.stat(
                "Hottest",
                "The hottest GPU die.",
                "max(gpu_temperature_celsius{GPU})",
                thresholds=HOT,
            ),
            draw.stat(
                "Hottest memory",
                "The hottest device memory.",
                "max(gpu_memory_temperature_celsius{GPU})",
                thresholds=MEMORY_HOT,
            ),
            draw.count(
                "Slowed down",
                "GPUs that heat or a power brake slows down now.",
                "count by (cluster, node, gpu) (gpu_throttle_active{GPU,"
                ' reason=~"hw_.*|sw_thermal"} == 1)',
            ),
            draw.count(
                "With serious XIDs",
                "GPUs with an XID in the last day that takes a node out of service.",
                "count by (cluster, node, pci_bus_id) (time()"
                ' - gpu_xid_last_timestamp_seconds{NODE, severity="critical"} < 86400)',
            ),
            draw.count(
                "To reset or replace",
                "GPUs with a row remap that is pending or failed, or for which the driver asks for "
                "a recovery action.",
                "gpu_remap_pending{GPU} == 1 or gpu_remap_failed{GPU} == 1"
                " or gpu_recovery_action{GPU} > 0",
            ),
            draw.table(
                "Worst GPUs",
                "Lost GPUs first, then the hottest at the end of the time range; all GPUs of a "
                "chosen node.",
                [
                    draw.Column(
                        "Up",
                        "min by (node, gpu) (gpu_up{GPU})",
                        unit="none",
                        mappings=draw.mapping({"0": ("lost", draw.RED), "1": ("up", draw.GREEN)}),
                    ),
                    draw.Column(
                        "Die",
                        "max by (node, gpu) (gpu_temperature_celsius{GPU})",
                        thresholds=HOT,
                    ),
                    draw.Column(
                        "Below limit",
                        "min by (node, gpu) (gpu_temperature_slowdown_celsius{GPU}"
                        " - gpu_temperature_celsius{GPU})",
                        thresholds=NEAR,
                    ),
                    draw.Column(
                        "Memory",
                        "max by (node, gpu) (gpu_memory_temperature_celsius{GPU})",
                        thresholds=MEMORY_HOT,
                    ),
                    draw.Column("Power", "max by (node, gpu) (gpu_power_watts{GPU})"),
                    draw.Column(
                        "SM active",
                        "max by (node, gpu) (gpu_sm_active_ratio{GPU})",
                        decimals=0,
                    ),
                    draw.Column(
                        "Utilisation",
                        "max by (node, gpu) (gpu_utilization_ratio{GPU})",
                        decimals=0,
                    ),
                    draw.Column(
                        "Memory used",
                        "max by (node, gpu) (gpu_memory_used_bytes{GPU}"
                        " / gpu_memory_total_bytes{GPU})",
                        unit="percentunit",
                        thresholds=draw.steps((0.95, draw.AMBER)),
                        decimals=0,
                    ),
                    draw.Column(
                        "ECC failures",
                        "sum by (node, gpu) (gpu_ecc_errors_total"
                        '{GPU, kind="uncorrected", scope="volatile"})',
                        thresholds=draw.ANY_IS_BAD,
                    ),
                    draw.Column(
                        "PCIe lanes lost",
                        "max by (node, gpu) (gpu_pcie_link_width_max{GPU}"
                        " - gpu_pcie_link_width{GPU})",
                        thresholds=draw.ANY_IS_BAD,
                    ),
                    draw.Column(
                        "NVLinks down",
                        "count by (node, gpu) (gpu_nvlink_up{GPU}) - "
                        "sum by (node, gpu) (gpu_nvlink_up{GPU})",
                        thresholds=draw.ANY_IS_BAD,
                    ),
                ],
                sort="Die",
                order=WORST,
                rows=12,
            ),
        ),
        HEAT_AND_POWER,
        WORK,
        ERRORS_AND_LINKS,
        JOBS,
        IDENTITY,
    ],
)
