"""The ranks of a job: where each one is, and what its process costs."""

from stagewatch.dashboards import (
    STAGE_COLORS,
    STAGE_NAMES,
    Query,
    section,
    state_timeline,
    timeseries,
    worst,
)

AS_A_WHOLE = section(
    "The job as a whole",
    *(
        timeseries(title, description, Query(expr, "all ranks"), unit=unit, width=6, rows=6)
        for title, description, expr, unit in (
            (
                "CPU",
                "Cores that the processes of all ranks use.",
                "sum(rate(rl_rank_cpu_seconds_total{RANK}[$__rate_interval]))",
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
                'sum(rate(rl_rank_io_bytes_total{RANK, layer="storage"}[$__rate_interval]))',
                "Bps",
            ),
            (
                "Network",
                "TCP traffic of the ranks, both directions; RDMA is not counted by job.",
                "sum(rate(rl_rank_tcp_bytes_total{RANK}[$__rate_interval]))",
                "Bps",
            ),
        )
    ),
)

RANKS_AND_STAGES = section(
    "Ranks and stages",
    state_timeline(
        "Stage of each rank",
        "The innermost open stage of the 64 ranks that have been longest without progress.",
        Query(
            worst(
                "max by (role, rank, node) (rl_rank_stage_code{RANK})",
                by="max by (role, rank, node) (rl_rank_progress_age_seconds{RANK})",
                most=64,
            ),
            "{{role}} {{rank}} ({{node}})",
        ),
        mappings=STAGE_NAMES,
        rows=12,
    ),
    timeseries(
        "Progress age",
        "Time since each rank last made progress.",
        Query(
            worst("max by (role, rank) (rl_rank_progress_age_seconds{RANK})"), "{{role}} {{rank}}"
        ),
        unit="s",
    ),
    timeseries(
        "Ranks by stage",
        "How many ranks are in each stage, all of them.",
        Query("count by (stage) (rl_rank_stage_open_seconds{RANK})", "{{stage}}"),
        stack=True,
        colors=STAGE_COLORS,
    ),
    timeseries(
        "What the main thread does",
        "Ranks by wait class.",
        Query("count by (class) (rl_rank_wait_class{RANK} == 1)", "{{class}}"),
        stack=True,
    ),
    timeseries(
        "Step",
        "Last step of each rank.",
        Query(worst("max by (role, rank) (rl_rank_step{RANK})", least=True), "{{role}} {{rank}}"),
        unit="none",
        minimum=None,
    ),
    timeseries(
        "Scalars",
        "What the ranks publish (reward, KL, throughput ...), mean over the ranks.",
        Query(worst("avg by (role, name) (rl_scalar{RANK})"), "{{role}} {{name}}"),
        minimum=None,
        width=24,
    ),
)

PROCESSES = section(
    "Processes",
    timeseries(
        "CPU",
        "CPU time of each rank's process, all threads: 1 is one core.",
        Query(
            worst("sum by (role, rank) (rate(rl_rank_cpu_seconds_total{RANK}[$__rate_interval]))"),
            "{{role}} {{rank}}",
        ),
        unit="none",
    ),
    timeseries(
        "Waiting for a core",
        "Share of time the main thread was runnable but not running: CPU contention.",
        Query(
            worst(
                "max by (role, rank)"
                " (rate(rl_rank_run_queue_seconds_total{RANK}[$__rate_interval]))"
            ),
            "{{role}} {{rank}}",
        ),
        unit="percentunit",
    ),
    timeseries(
        "Resident memory",
        "Of each rank's process.",
        Query(
            worst("max by (role, rank) (rl_rank_resident_memory_bytes{RANK})"), "{{role}} {{rank}}"
        ),
        unit="bytes",
    ),
    collapsed=True,
)
