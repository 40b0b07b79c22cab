"""The nodes under a job: what they log and kill, their GPUs and agents."""

from stagewatch import dashboards as draw

OF_JOB = "{NODE} and on (cluster, node, gpu) gpu:job:info{JOB}"
NAME = "{{node}} GPU {{gpu}}"

LOGS_AND_KILLS = draw.section(
    "Logs, kills and agents",
    draw.table(
        "Patterns in the logs",
        "When each kind of line was first and last seen; the oldest first time is nearest to the "
        "cause.",
        [
            draw.Column(
                "First",
                "max by (pattern, role, rank, file)"
                " (time() - log_first_match_timestamp_seconds{JOB})",
            ),
            draw.Column(
                "Last",
                "max by (pattern, role, rank, file)"
                " (time() - log_last_match_timestamp_seconds{JOB})",
            ),
            draw.Column("Lines", "sum by (pattern, role, rank, file) (log_matches_total{JOB})"),
        ],
        sort="First",
        width=14,
    ),
    draw.count(
        "Killed for lack of memory",
        "Ranks of this job with a process that the kernel has killed since the boot.",
        "max by (node, role, rank) (log_oom_kill_last_timestamp_seconds{JOB})",
        width=10,
        rows=8,
    ),
    draw.state_timeline(
        "Agents of the nodes",
        "While a node is silent, the data of its ranks is missing.",
        draw.worst(
            'max by (node) (up{CLUSTER, job="stagewatch"} and on (cluster, node)'
            " last_over_time(rl_rank_up{JOB}[1h]))",
            least=True,
        ),
        mappings=draw.mapping({"0": ("silent", draw.RED), "1": ("answers", draw.GREEN)}),
        width=24,
        rows=8,
    ),
    lacking="nothing was seen",
    collapsed=True,
)

GPUS_OF_THE_JOB = draw.section(
    "GPUs",
    draw.timeseries(
        "GPUs held and used",
        "From Slurm and its prolog, even without ranks.  Used adds up the SM activity (or the "
        "driver's utilisation) of those that are measured.",
        [
            draw.Query("sum(slurm_job_gpus{JOB}) or count(gpu:job:info{JOB})", "held"),
            draw.Query(
                "sum(gpu:job:info{JOB} * on (cluster, node, gpu) group_left ()"
                " gpu:use:ratio{CLUSTER})",
                "used",
            ),
        ],
    ),
    draw.timeseries(
        "Least active GPUs",
        "SM activity (or utilisation) of the 20 least active GPUs.",
        draw.worst(f"min by (node, gpu) (gpu:use:ratio{OF_JOB})", least=True),
        NAME,
        unit="percentunit",
        maximum=1,
    ),
    draw.timeseries(
        "Power, lowest",
        "Busy-polling GPUs draw far less than working ones.",
        draw.worst(f"max by (node, gpu) (gpu_power_watts{OF_JOB})", least=True),
        NAME,
        unit="watt",
    ),
    draw.timeseries(
        "Memory used, most",
        "Memory that stays held while nothing works is a sign of a deadlock.",
        draw.worst(f"max by (node, gpu) (gpu_memory_used_bytes{OF_JOB})"),
        NAME,
        unit="bytes",
    ),
    lacking="no GPU of this job is known: it needs the prolog, or Slurm's GPU indices",
)
