"""The collectors of all agents: which fail, hang, lag, or find nothing."""

from stagewatch.dashboards import (
    GREEN,
    GREY,
    RED,
    Query,
    bar_gauge,
    mapping,
    section,
    state_timeline,
    steps,
    timeseries,
)

COLLECTORS = section(
    "Collectors",
    state_timeline(
        "Collectors",
        "The worst node of each: fails where any node's does.",
        Query("min by (job, collector) (stagewatch_collector_success{CLUSTER})", "{{collector}}"),
        mappings=mapping({"0": ("fails", RED), "1": ("works", GREEN)}),
        width=12,
        rows=9,
    ),
    timeseries(
        "Duration",
        "How long the last call took, on the slowest node.",
        Query(
            "max by (collector) (stagewatch_collector_duration_seconds{CLUSTER})", "{{collector}}"
        ),
        unit="s",
        log=True,
        rows=9,
    ),
    timeseries(
        "Age in intervals",
        "Time since the last success over the collector's interval; at 3 its data is dropped.",
        Query(
            "max by (collector) ((time()"
            " - stagewatch_collector_last_success_timestamp_seconds{CLUSTER})"
            " / stagewatch_collector_interval_seconds{CLUSTER})",
            "{{collector}}",
        ),
        unit="none",
        thresholds=steps((3, RED)),
        width=8,
    ),
    timeseries(
        "Stuck",
        "How long a call has been past its deadline.",
        Query(
            "max by (node, collector) (stagewatch_collector_stuck_seconds{CLUSTER})",
            "{{node}} {{collector}}",
        ),
        unit="s",
        width=8,
    ),
    timeseries(
        "Skipped",
        "Collections that were due while an earlier call still ran, per second.",
        Query(
            "sum by (node, collector)"
            " (rate(stagewatch_collector_skipped_total{CLUSTER}[$__rate_interval]))",
            "{{node}} {{collector}}",
        ),
        unit="cps",
        width=8,
    ),
    bar_gauge(
        "Questions to the GPU driver",
        "Time the driver took for all GPUs of a node, by tier.",
        Query("max by (tier) (stagewatch_gpu_tier_duration_seconds{NODE})", "{{tier}}"),
        unit="s",
        width=12,
    ),
    state_timeline(
        "Nothing to collect",
        "Collectors that find nothing of their kind on a node; no failure.",
        Query(
            "max by (node, collector) (stagewatch_collector_no_data{CLUSTER})",
            "{{node}} {{collector}}",
        ),
        mappings=mapping({"1": ("nothing of the kind", GREY)}),
        width=12,
        rows=8,
    ),
)
