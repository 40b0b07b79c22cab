"""The collectors of all agents: which fail, hang, lag, or find nothing."""

from stagewatch import dashboards as draw

_SKIPPED = "rate(stagewatch_collector_skipped_total{CLUSTER}[RATE])"

COLLECTORS = draw.section(
    "Collectors",
    draw.state_timeline(
        "Collectors",
        "State of each collector on its worst node.",
        "min by (job, collector) (stagewatch_collector_success{CLUSTER})",
        "{{collector}}",
        mappings=draw.mapping({"0": ("fails", draw.RED), "1": ("works", draw.GREEN)}),
        width=12,
        rows=9,
    ),
    draw.timeseries(
        "Duration",
        "How long the last call took on the slowest node, of the eight that take longest.",
        draw.worst("max by (collector) (stagewatch_collector_duration_seconds{CLUSTER})", most=8),
        log=True,
        rows=9,
    ),
    draw.timeseries(
        "Age in intervals",
        "Time since the last success over the collector's interval, of the eight oldest; at 3 its "
        "data is dropped.",
        draw.worst(
            "max by (collector) ((time()"
            " - stagewatch_collector_last_success_timestamp_seconds{CLUSTER})"
            " / stagewatch_collector_interval_seconds{CLUSTER})",
            by="max by (collector)"
            " ((timestamp(stagewatch_collector_last_success_timestamp_seconds{CLUSTER})"
            " - stagewatch_collector_last_success_timestamp_seconds{CLUSTER})"
            " / stagewatch_collector_interval_seconds{CLUSTER})",
            most=8,
        ),
        unit="none",
        thresholds=draw.steps((3, draw.RED)),
        width=8,
    ),
    draw.timeseries(
        "Stuck",
        "How long a call has been past its deadline.",
        draw.above_zero(
            "max by (node, collector) (stagewatch_collector_stuck_seconds{CLUSTER})",
            "max(stagewatch_collector_stuck_seconds{CLUSTER})",
            "longest",
        ),
        width=8,
    ),
    draw.timeseries(
        "Skipped",
        "Collections that were due while an earlier call still ran, per second.",
        draw.above_zero(f"sum by (node, collector) ({_SKIPPED})", f"sum({_SKIPPED})", "all"),
        unit="cps",
        width=8,
    ),
    draw.bar_gauge(
        "Questions to the GPU driver",
        "Time the driver took for all GPUs of a node, by tier.",
        "max by (tier) (stagewatch_gpu_tier_duration_seconds{NODE})",
        width=12,
    ),
    draw.bar_gauge(
        "Nothing to collect",
        "Number of nodes on which a collector has nothing to read; that is no failure.",
        "count by (collector) (stagewatch_collector_no_data{CLUSTER} == 1)",
        unit="none",
        width=12,
    ),
)
