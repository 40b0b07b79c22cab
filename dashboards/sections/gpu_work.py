"""What every GPU does over time, and how hot it gets."""

from stagewatch.dashboards import AMBER, RED, Query, section, steps, timeseries

HOT = steps((75, AMBER), (85, RED))
MEMORY_HOT = steps((90, AMBER), (95, RED))

HEAT_AND_POWER = section(
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
        Query("max by (node, gpu) (gpu_memory_temperature_celsius{GPU})", "{{node}} GPU {{gpu}}"),
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
            "max by (node, reason) (rate(gpu_throttle_seconds_total{GPU}[$__rate_interval])"
            " or avg_over_time(gpu_throttle_active{GPU}[$__rate_interval]))",
            "{{node}} {{reason}}",
        ),
        unit="percentunit",
    ),
)

WORK = section(
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
        Query('max by (node, gpu) (gpu_clock_hertz{GPU, domain="sm"})', "{{node}} GPU {{gpu}}"),
        unit="hertz",
    ),
)
