"""The ranks of a job: where each one is, and what its process costs."""

from stagewatch.dashboards import STAGE_NAMES, Query, section, state_timeline, timeseries

RANKS_AND_STAGES = section(
    "Ranks and stages",
    state_timeline(
        "Stage of each rank",
        "The innermost open stage.",
        Query(
            "max by (role, rank, node) (rl_rank_stage_code{JOB})", "{{role}} {{rank}} ({{node}})"
        ),
        mappings=STAGE_NAMES,
        rows=12,
    ),
    timeseries(
        "Progress age",
        "Time since each rank last made progress.",
        Query("max by (role, rank) (rl_rank_progress_age_seconds{JOB})", "{{role}} {{rank}}"),
        unit="s",
    ),
    timeseries(
        "What the main thread does",
        "Ranks by wait class.",
        Query("count by (class) (rl_rank_wait_class{JOB} == 1)", "{{class}}"),
        stack=True,
    ),
    timeseries(
        "Step",
        "Last step of each rank.",
        Query("max by (role, rank) (rl_rank_step{JOB})", "{{role}} {{rank}}"),
        unit="none",
        minimum=None,
    ),
    timeseries(
        "Scalars",
        "What the ranks publish (reward, KL, throughput ...), mean over the ranks.",
        Query("avg by (role, name) (rl_scalar{JOB})", "{{role}} {{name}}"),
        minimum=None,
    ),
)

PROCESSES = section(
    "Processes",
    timeseries(
        "CPU",
        "CPU time of each rank's process, all threads: 1 is one core.",
        Query(
            "sum by (role, rank) (rate(rl_rank_cpu_seconds_total{JOB}[$__rate_interval]))",
            "{{role}} {{rank}}",
        ),
        unit="none",
    ),
    timeseries(
        "Waiting for a core",
        "Share of time the main thread was runnable but not running: CPU contention.",
        Query(
            "max by (role, rank) (rate(rl_rank_run_queue_seconds_total{JOB}[$__rate_interval]))",
            "{{role}} {{rank}}",
        ),
        unit="percentunit",
    ),
    timeseries(
        "Resident memory",
        "Of each rank's process.",
        Query("max by (role, rank) (rl_rank_resident_memory_bytes{JOB})", "{{role}} {{rank}}"),
        unit="bytes",
    ),
    collapsed=True,
)
