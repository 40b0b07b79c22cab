"""The nodes under a job: what they log and kill, their GPUs and agents."""

from stagewatch.dashboards import (
    ANY_IS_BAD,
    GREEN,
    RED,
    Column,
    Query,
    mapping,
    section,
    stat,
    state_timeline,
    table,
    timeseries,
)

LOGS_AND_KILLS = section(
    "Logs and kills",
    table(
        "Patterns in the logs",
        "When each kind of line was first and last seen; the longest ago came first.",
        {"pattern": "Pattern", "role": "Role", "rank": "Rank", "file": "File"},
        [
            Column(
                "First",
                "max by (pattern, role, rank, file)"
                " (time() - log_first_match_timestamp_seconds{JOB})",
                unit="s",
            ),
            Column(
                "Last",
                "max by (pattern, role, rank, file)"
                " (time() - log_last_match_timestamp_seconds{JOB})",
                unit="s",
            ),
            Column("Lines", "sum by (pattern, role, rank, file) (log_matches_total{JOB})"),
        ],
        sort="First",
        width=14,
    ),
    stat(
        "Killed for lack of memory",
        "Ranks of this job of which the kernel has killed a process, since the boot.",
        "count(max by (node, role, rank) (log_oom_kill_last_timestamp_seconds{JOB})) or vector(0)",
        thresholds=ANY_IS_BAD,
        width=10,
        rows=8,
    ),
    collapsed=True,
)

GPUS_OF_THE_NODES = section(
    "GPUs of the nodes",
    timeseries(
        "SM active",
        "Every GPU of the nodes on which this job has ranks.",
        Query(
            "max by (node, gpu) (gpu_sm_active_ratio{CLUSTER}"
            " and on (cluster, node) rl_rank_up{JOB})",
            "{{node}} GPU {{gpu}}",
        ),
        unit="percentunit",
        maximum=1,
    ),
    timeseries(
        "Power",
        "Busy-polling GPUs draw far less than working ones.",
        Query(
            "max by (node, gpu) (gpu_power_watts{CLUSTER} and on (cluster, node) rl_rank_up{JOB})",
            "{{node}} GPU {{gpu}}",
        ),
        unit="watt",
    ),
    timeseries(
        "Memory used",
        "Memory that stays held while nothing works is a deadlock's mark.",
        Query(
            "max by (node, gpu) (gpu_memory_used_bytes{CLUSTER}"
            " and on (cluster, node) rl_rank_up{JOB})",
            "{{node}} GPU {{gpu}}",
        ),
        unit="bytes",
    ),
    state_timeline(
        "Agents of the nodes",
        "A node that went silent takes its ranks' data along.",
        Query(
            'max by (node) (up{CLUSTER, job="stagewatch"} and on (cluster, node)'
            " last_over_time(rl_rank_up{JOB}[1h]))",
            "{{node}}",
        ),
        mappings=mapping({"0": ("silent", RED), "1": ("answers", GREEN)}),
        width=12,
        rows=8,
    ),
    collapsed=True,
)
