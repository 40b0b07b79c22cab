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
    worst,
)

OF_JOB = "{NODE} and on (cluster, node, gpu) gpu:job:info{JOB}"
NAME = "{{node}} GPU {{gpu}}"

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
        order="First",
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

GPUS_OF_THE_JOB = section(
    "GPUs",
    timeseries(
        "GPUs held and used",
        "As Slurm and its prolog tell, also without ranks.  Used adds up the SM activity (or the "
        "driver's utilisation) of those that are measured.",
        [
            Query("sum(slurm_job_gpus{JOB}) or count(gpu:job:info{JOB})", "held"),
            Query(
                "sum(gpu:job:info{JOB} * on (cluster, node, gpu) group_left ()"
                " gpu:use:ratio{CLUSTER})",
                "used",
            ),
        ],
    ),
    timeseries(
        "Least active GPUs",
        "SM activity, else utilisation, of the 20 that do least.",
        Query(worst(f"min by (node, gpu) (gpu:use:ratio{OF_JOB})", least=True), NAME),
        unit="percentunit",
        maximum=1,
    ),
    timeseries(
        "Power, lowest",
        "Busy-polling GPUs draw far less than working ones.",
        Query(worst(f"max by (node, gpu) (gpu_power_watts{OF_JOB})", least=True), NAME),
        unit="watt",
    ),
    timeseries(
        "Memory used, most",
        "Memory that stays held while nothing works is a deadlock's mark.",
        Query(worst(f"max by (node, gpu) (gpu_memory_used_bytes{OF_JOB})"), NAME),
        unit="bytes",
    ),
    state_timeline(
        "Agents of the nodes",
        "A node that went silent takes its ranks' data along.",
        Query(
            worst(
                'max by (node) (up{CLUSTER, job="stagewatch"} and on (cluster, node)'
                " last_over_time(rl_rank_up{JOB}[1h]))",
                least=True,
            ),
            "{{node}}",
        ),
        mappings=mapping({"0": ("silent", RED), "1": ("answers", GREEN)}),
        width=24,
        rows=8,
    ),
)
