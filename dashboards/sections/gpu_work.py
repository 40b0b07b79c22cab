"""What every GPU does over time, and how hot it gets."""

from stagewatch import dashboards as draw

HOT = draw.steps((75, draw.AMBER), (85, draw.RED))
MEMORY_HOT = draw.steps((90, draw.AMBER), (95, draw.RED))

HEAT_AND_POWER = draw.section(
    "Heat and power",
    draw.distribution(
        "Die temperature of all GPUs",
        "Number of GPUs by temperature, in steps of 5 degrees.",
        "max by (node, gpu) (gpu_temperature_celsius{GPU})",
        step=5,
        limits=(20, 95),
        unit="celsius",
    ),
    draw.timeseries(
        "Hottest GPUs",
        "The 20 hottest at the end of the time range; lines at 75 and 85 degrees.",
        draw.worst("max by (node, gpu) (gpu_temperature_celsius{GPU})"),
        "{{node}} GPU {{gpu}}",
        thresholds=HOT,
        minimum=None,
    ),
    draw.timeseries(
        "Hottest memory",
        "Device memory runs hotter than the die; lines at 90 and 95 degrees.",
        draw.worst("max by (node, gpu) (gpu_memory_temperature_celsius{GPU})"),
        "{{node}} GPU {{gpu}}",
        thresholds=MEMORY_HOT,
        minimum=None,
    ),
    draw.timeseries(
        "Slowed down most",
        "Share of time in which each reason slowed a GPU down; the worst GPU of each node.",
        draw.worst(
            "max by (node, reason) (rate(gpu_throttle_seconds_total{GPU}[RATE])"
            " or avg_over_time(gpu_throttle_active{GPU}[RATE]))"
        ),
        unit="percentunit",
    ),
    draw.distribution(
        "Power of all GPUs",
        "Number of GPUs by the share of the power limit that they draw.",
        "max by (node, gpu) (gpu_power_watts{GPU} / gpu_power_limit_watts{GPU})",
        step=0.1,
        limits=(0, 1),
        unit="percentunit",
    ),
    draw.timeseries(
        "Power, lowest and highest",
        "The ten GPUs that draw least, and the ten that draw most.",
        [
            draw.Query(
                draw.worst("max by (node, gpu) (gpu_power_watts{GPU})", most=10, least=least),
                "{{node}} GPU {{gpu}}",
            )
            for least in (True, False)
        ],
    ),
)

WORK = draw.section(
    "Work",
    draw.distribution(
        "SM activity of all GPUs",
        "Number of GPUs by the share of time in which an SM was active.",
        "max by (node, gpu) (gpu_sm_active_ratio{GPU})",
        step=0.1,
        limits=(0, 1),
        unit="percentunit",
    ),
    draw.distribution(
        "Tensor activity of all GPUs",
        "Number of GPUs by the share of time in which tensor cores were active: near zero on a GPU "
        "that only polls.",
        "max by (node, gpu) (gpu_tensor_active_ratio{GPU})",
        step=0.1,
        limits=(0, 1),
        unit="percentunit",
    ),
    draw.timeseries(
        "Least active GPUs of jobs",
        "SM activity (or utilisation) of the 20 least active GPUs that jobs hold.",
        draw.worst(
            "min by (node, gpu) (gpu:use:ratio{GPU} and on (cluster, node, gpu) gpu:job:info{GPU})",
            least=True,
        ),
        "{{node}} GPU {{gpu}}",
        unit="percentunit",
        maximum=1,
        width=8,
    ),
    draw.timeseries(
        "Fullest memory",
        "Device memory in use, without the driver's reserve.",
        draw.worst("max by (node, gpu) (gpu_memory_used_bytes{GPU})"),
        "{{node}} GPU {{gpu}}",
        width=8,
    ),
    draw.timeseries(
        "Lowest clocks",
        "SM clock; drops under load mean that something slows the GPU down.",
        draw.worst('max by (node, gpu) (gpu_clock_hertz{GPU, domain="sm"})', least=True),
        "{{node}} GPU {{gpu}}",
        width=8,
    ),
)
