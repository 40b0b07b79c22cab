"""The controller: how fast it answers, and what piles up in it."""

from stagewatch.dashboards import AMBER, Query, section, steps, timeseries

CONTROLLER = section(
    "Controller",
    timeseries(
        "Response time",
        "How long each kind of question took, failed ones included.",
        Query("max by (source) (slurm_controller_response_seconds{CLUSTER})", "{{source}}"),
        unit="s",
        thresholds=steps((5, AMBER)),
        width=8,
    ),
    timeseries(
        "Source age",
        "Age of the last good data.",
        Query("max by (source) (slurm_source_age_seconds{CLUSTER})", "{{source}}"),
        unit="s",
        width=8,
    ),
    timeseries(
        "Requests to the controller",
        "By message type.",
        Query(
            "topk(10, sum by (type)"
            " (rate(slurm_controller_rpcs_total{CLUSTER}[$__rate_interval])))",
            "{{type}}",
        ),
        unit="reqps",
        width=8,
    ),
    timeseries(
        "Scheduling cycles",
        "Duration of the last main and backfill cycle.",
        [
            Query("max(slurm_scheduler_cycle_last_seconds{CLUSTER})", "main"),
            Query("max(slurm_backfill_cycle_last_seconds{CLUSTER})", "backfill"),
        ],
        unit="s",
    ),
    timeseries(
        "Queues in the controller",
        "Messages that wait for nodes, and records that wait for accounting.",
        [
            Query("max(slurm_controller_agent_queue{CLUSTER})", "to nodes"),
            Query("max(slurm_accounting_queue{CLUSTER})", "to accounting"),
        ],
    ),
)
