"""The controller: how fast it answers, and what piles up in it."""

from stagewatch import dashboards as draw

CONTROLLER = draw.section(
    "Controller",
    draw.timeseries(
        "Response time",
        "How long each kind of question took, failed ones included.",
        "max by (source) (slurm_controller_response_seconds{CLUSTER})",
        thresholds=draw.steps((5, draw.AMBER)),
        width=8,
    ),
    draw.timeseries(
        "Source age",
        "Age of the last good data.",
        "max by (source) (slurm_source_age_seconds{CLUSTER})",
        width=8,
    ),
    draw.timeseries(
        "Requests to the controller",
        "By message type.",
        "topk(10, sum by (type) (rate(slurm_controller_rpcs_total{CLUSTER}[RATE])))",
        unit="reqps",
        width=8,
    ),
    draw.timeseries(
        "Scheduling cycles",
        "Duration of the last main and backfill cycle.",
        [
            draw.Query("max(slurm_scheduler_cycle_last_seconds{CLUSTER})", "main"),
            draw.Query("max(slurm_backfill_cycle_last_seconds{CLUSTER})", "backfill"),
        ],
    ),
    draw.timeseries(
        "Queues in the controller",
        "Messages that wait for nodes, and records that wait for accounting.",
        [
            draw.Query("max(slurm_controller_agent_queue{CLUSTER})", "to nodes"),
            draw.Query("max(slurm_accounting_queue{CLUSTER})", "to accounting"),
        ],
    ),
)
