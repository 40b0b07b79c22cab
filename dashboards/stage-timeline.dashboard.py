"""Which rank was in which stage when, beside the faults and what the stages usually take."""

from stagewatch import dashboards as draw

GUIDE = """\
**Time runs to the right, one row per rank.** Compare rows: the first that keeps its colour while
the others change is where it began.  The rows *Fault* and *Culprit* stand under the ranks on the
same time axis: distance from the start of a fault to the culprit's bar is the detection time.
*Open for* beside *usual* shows a stage that is overdue while it is still open, long before any
time-out.  Zoom by dragging; all panels follow.
"""

RANKS = "max by (role, rank, node)"

dashboard = draw.board(
    "Stage timeline",
    uid="stagewatch-stage-timeline",
    description="Stages of every rank over time, with faults, culprits and usual durations.",
    guide=GUIDE,
    variables_used=("partition", "node", "job_id"),
    sections=[
        draw.section(
            "Timeline",
            draw.state_timeline(
                "Stages",
                "The innermost open stage of each rank.",
                draw.worst(
                    f"{RANKS} (rl_rank_stage_code{{RANK}})",
                    by="max by (role, rank, node) (rl_rank_progress_age_seconds{RANK})",
                    most=64,
                ),
                "{{role}} {{rank}} ({{node}})",
                mappings=draw.STAGE_NAMES,
                rows=14,
            ),
            draw.state_timeline(
                "Faults",
                "Faults injected on purpose, while they are open.",
                "max by (id, fault_type, target_worker) (fault_injection_active{CLUSTER})",
                "{{fault_type}} on {{target_worker}}",
                mappings=draw.mapping({"1": ("injected", draw.RED)}),
                width=24,
                rows=5,
            ),
            draw.state_timeline(
                "Culprits",
                "Ranks at fault for a stall, while it lasts.",
                draw.worst(
                    "max by (role, rank, node, evidence, group, op) (job:rl_stall:culprit{JOB})",
                    "max by (role, rank, node, evidence, group, op)"
                    " (max_over_time(job:rl_stall:culprit{JOB}[$__range]))",
                    most=30,
                ),
                "{{role}} {{rank}} ({{node}}): {{evidence}} {{op}} {{group}}",
                mappings=draw.mapping({"1": ("at fault", draw.RED)}),
                rows=5,
            ),
        ),
        draw.section(
            "Now",
            draw.table(
                "Open stages",
                "What each rank is in, for how long, and how long progress may pause there.",
                [
                    draw.Column(
                        "Open for",
                        "max by (role, rank, node, stage) (rl_rank_stage_open_seconds{RANK})",
                    ),
                    draw.Column(
                        "No progress for",
                        "max by (role, rank, node, stage) (0 * rl_rank_stage_open_seconds{RANK}"
                        " + on (cluster, node, job_id, role, rank) group_left ()"
                        " max by (cluster, node, job_id, role, rank)"
                        " (rl_rank_progress_age_seconds{RANK}"
                        " and on (cluster, node, job_id, role, rank) rl_rank_up{RANK} == 1))",
                        unit="s",
                        thresholds=draw.steps((10, draw.AMBER), (60, draw.RED)),
                    ),
                    draw.Column(
                        "Budget",
                        "max by (role, rank, node, stage) (0 * rl_rank_stage_open_seconds{RANK}"
                        " + on (cluster, job_id, role, stage) group_left ()"
                        " job_role_stage:rl_stall_budget:seconds{JOB})",
                    ),
                    draw.Column(
                        "Step", "max by (role, rank, node) (rl_rank_step{RANK})", unit="none"
                    ),
                ],
                sort="No progress for",
                rows=10,
            ),
            draw.timeseries(
                "Open stage",
                "How long each rank's stage has been open: a saw-tooth in a healthy job.",
                draw.worst("max by (role, rank) (rl_rank_stage_open_seconds{RANK})"),
            ),
            draw.timeseries(
                "Collectives entered",
                "Per rank, behind the furthest of its group; a rank that stays behind holds up "
                "the others.",
                draw.worst(
                    "max by (role, rank, group) (max by (cluster, job_id, role, group)"
                    " (rl_rank_collective_seq{JOB}) - on (cluster, job_id, role, group)"
                    " group_right () rl_rank_collective_seq{JOB})"
                ),
                unit="none",
            ),
        ),
        draw.section(
            "Durations",
            draw.timeseries(
                "Mean duration",
                "Of the stages completed in each interval.",
                "sum by (role, stage) (rate(rl_stage_duration_seconds_sum{JOB}[RATE]))"
                " / sum by (role, stage) (rate(rl_stage_duration_seconds_count{JOB}[RATE]))",
                unit="s",
                log=True,
            ),
            draw.timeseries(
                "Against the baseline",
                "What the slowest rank last took, in multiples of the stage's median of half an "
                "hour; 1 is as usual.",
                "max by (role, stage) ((rl_rank_stage_last_seconds{JOB}"
                " / on (cluster, job_id, role, stage) group_left ()"
                " (job_role_stage:rl_stage_baseline_median:seconds{JOB} > 0)))",
                unit="none",
                log=True,
            ),
            draw.heatmap(
                "Spread of durations",
                "Completed stages by duration; a second band is a straggler.",
                "sum by (le) (increase(rl_stage_duration_seconds_bucket{JOB}[RATE]))",
            ),
            draw.timeseries(
                "Gap between progress marks, 99th percentile",
                "A stage's budget is three times this, and at least 10 s.",
                "max by (role, stage) (job_role_stage:rl_progress_gap_seconds:p99{JOB})",
                unit="s",
                log=True,
            ),
        ),
        draw.section(
            "Failures",
            draw.table(
                "First failure of each rank",
                "The first exception that left a stage; later ones often follow from it.  The "
                "oldest is nearest to the cause.",
                [
                    draw.Column(
                        "Ago",
                        "max by (role, rank, node, stage, error)"
                        " (time() - rl_rank_first_failure_timestamp_seconds{JOB})",
                    )
                ],
                sort="Ago",
                width=12,
            ),
            draw.timeseries(
                "Failures",
                "Exceptions that left a stage, per second.",
                draw.worst(
                    "sum by (role, stage, error) (rate(rl_stage_failures_total{JOB}[RATE]))"
                ),
                unit="cps",
            ),
        ),
    ],
)
