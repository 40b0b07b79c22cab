"""The ranks of a job: where each one is, and what its process costs."""

from stagewatch import dashboards as draw

AS_A_WHOLE = draw.section(
    "The job as a whole",
    *(
        draw.timeseries(title, description, expr, "all ranks", unit=unit, width=6, rows=6)
        for title, description, expr, unit in (
            (
                "CPU",
                "Cores that the processes of all ranks use.",
                "sum(rate(rl_rank_cpu_seconds_total{RANK}[RATE]))",
                "none",
            ),
            (
                "Memory",
                "Resident memory of the ranks' processes.",
                "sum(rl_rank_resident_memory_bytes{RANK})",
                "bytes",
            ),
            (
                "File systems",
                "Read and written by ranks and the processes they have started.",
                'sum(rate(rl_rank_io_bytes_total{RANK, layer="storage"}[RATE]))',
                "Bps",
            ),
            (
                "Network",
                "TCP traffic of the ranks, both directions; RDMA is not counted by job.",
                "sum(rate(rl_rank_tcp_bytes_total{RANK}[RATE]))",
                "Bps",
            ),
        )
    ),
    lacking="no ranks were seen",
    collapsed=True,
)

RANKS_AND_STAGES = draw.section(
    "Ranks and stages",
    draw.state_timeline(
        "Stage of each rank",
        "The innermost open stage of the 64 ranks that have been longest without progress.",
        draw.worst(
            "max by (role, rank, node) (rl_rank_stage_code{RANK})",
            by="max by (role, rank, node) (rl_rank_progress_age_seconds{RANK})",
            most=64,
        ),
        "{{role}} {{rank}} ({{node}})",
        mappings=draw.STAGE_NAMES,
        rows=12,
    ),
    draw.timeseries(
        "Progress age",
        "Time since each rank last made progress.",
        draw.worst("max by (role, rank) (rl_rank_progress_age_seconds{RANK})"),
    ),
    draw.timeseries(
        "Ranks by stage",
        "Number of ranks in each stage.",
        "count by (stage) (rl_rank_stage_open_seconds{RANK})",
        stack=True,
        colors=draw.STAGE_COLORS,
    ),
    draw.timeseries(
        "What the main thread does",
        "Ranks by wait class.",
        "count by (class) (rl_rank_wait_class{RANK} == 1)",
        stack=True,
        width=8,
    ),
    draw.timeseries(
        "Step",
        "Last step of each rank.",
        draw.worst("max by (role, rank) (rl_rank_step{RANK})", least=True),
        unit="none",
        minimum=None,
        width=8,
    ),
    draw.timeseries(
        "Scalars",
        "What the ranks publish (reward, KL, throughput ...), mean over the ranks.",
        draw.worst("avg by (role, name) (rl_scalar{RANK})"),
        minimum=None,
        width=8,
    ),
    lacking="no ranks with a stage record were seen",
)

PROCESSES = draw.section(
    "Processes",
    draw.timeseries(
        "CPU",
        "CPU time of each rank's process, all threads: 1 is one core.",
        draw.worst("sum by (role, rank) (rate(rl_rank_cpu_seconds_total{RANK}[RATE]))"),
        unit="none",
    ),
    draw.timeseries(
        "Waiting for a core",
        "Share of time the main thread was runnable but not running: CPU contention.",
        draw.worst("max by (role, rank) (rate(rl_rank_run_queue_seconds_total{RANK}[RATE]))"),
        unit="percentunit",
    ),
    draw.timeseries(
        "Resident memory",
        "Of each rank's process.",
        draw.worst("max by (role, rank) (rl_rank_resident_memory_bytes{RANK})"),
    ),
    lacking="no ranks were seen",
    collapsed=True,
)
