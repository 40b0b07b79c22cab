"""What a job gets done a second, and what it waits for outside of its own processes."""

from stagewatch import dashboards as draw

_PRODUCTIVE = 'state=~"rollout|reward|train|weights_update|eval|other"'
_KNOWN = 'state!~"busy|unused|unobserved"'
_GPUS = "job:goodput_gpus:count"
_GOOD = draw.steps((0.3, draw.AMBER), (0.6, draw.GREEN), base=draw.RED)

ECONOMICS = draw.section(
    "Economics",
    draw.stat(
        "Goodput",
        "Share of the time range's GPU hours, as far as the stages were seen, in which the "
        "job rolled out, computed rewards, trained, updated weights or evaluated.",
        f"sum(sum_over_time({_GPUS}{{JOB, {_PRODUCTIVE}}}[$__range]))"
        f" / sum(sum_over_time({_GPUS}{{JOB, {_KNOWN}}}[$__range]))",
        unit="percentunit",
        thresholds=_GOOD,
    ),
    draw.stat(
        "Productive now",
        "Share of the job's GPUs that are productive at this moment.",
        f"sum({_GPUS}{{JOB, {_PRODUCTIVE}}}) / sum({_GPUS}{{JOB, {_KNOWN}}})",
        unit="percentunit",
        thresholds=_GOOD,
    ),
    draw.stat(
        "Staleness",
        "Age, in steps, of the weights that generated the training data.",
        "max(job:rl_staleness:steps{JOB})",
        unit="none",
    ),
    draw.stat(
        "Tokens trained on a second",
        "All ranks together, over five minutes.",
        'sum(job_stage:rl_tokens:per_second{JOB, stage="train"})',
        unit="none",
        width=8,
    ),
    draw.stat(
        "At risk",
        "GPU hours of work since the last checkpoint.",
        "sum(job:goodput_at_risk:gpu_seconds{JOB}) / 3600",
    ),
    draw.timeseries(
        "Model FLOPs utilisation",
        "FLOPs that the trainer has counted, over the dense bf16 peak of all GPUs of the job.",
        "max(job:rl_mfu:ratio{JOB})",
        "MFU",
        width=6,
    ),
    draw.timeseries(
        "Tokens a second",
        "By stage, all ranks together.",
        "sum by (role, stage) (job_stage:rl_tokens:per_second{JOB})",
        unit="none",
        width=6,
    ),
    draw.timeseries(
        "Samples a second",
        "By stage, all ranks together.",
        "sum by (role, stage) (job_stage:rl_samples:per_second{JOB})",
        unit="none",
        width=6,
    ),
    draw.timeseries(
        "Staleness and long tail",
        "How many steps old the weights are that made what is trained on; how many times the "
        "median of its batch the slowest sample took, or of its peers the slowest rank's rollout.",
        [
            draw.Query("max(job:rl_staleness:steps{JOB})", "staleness"),
            draw.Query("max by (role) (job_role:rl_rollout_tail:ratio{JOB})", "slowest {{role}}"),
        ],
        unit="none",
        width=6,
    ),
    draw.timeseries(
        "Calls usually take",
        "99th percentile of all calls of a tool, environment or reward function.",
        draw.worst("max by (role, name) (job_role:rl_call_usual:seconds{JOB})"),
        log=True,
        width=6,
    ),
    draw.timeseries(
        "Oldest call in flight",
        "Age of the oldest call; it climbs while a tool is stuck.",
        draw.worst("max by (role, name) (job_role:rl_call_oldest:seconds{JOB})"),
        width=6,
    ),
    draw.timeseries(
        "Calls in flight",
        "Of all ranks.",
        draw.worst("sum by (role, name) (rl_calls_in_flight{JOB})"),
        unit="none",
        width=6,
    ),
    draw.timeseries(
        "Failed calls",
        "Share of the calls that ended by an exception.",
        draw.worst(
            "sum by (role, name) (rate(rl_call_errors_total{JOB}[RATE]))"
            " / sum by (role, name) (rate(rl_call_seconds_count{JOB}[RATE]))"
        ),
        unit="percentunit",
        width=6,
    ),
    draw.timeseries(
        "Weight versions",
        "Version of the trainer's weights, and of the weights that generated its training data.",
        [
            draw.Query('max by (role) (rl_scalar{JOB, name="weight_version"})'),
            draw.Query("min(rank:rl_rollout_weight_version:steps{JOB})", "oldest of the rollouts"),
        ],
        unit="none",
        width=12,
    ),
    draw.timeseries(
        "Queue between rollout and training",
        "Generated samples that wait for training. The queue grows if training is slower than "
        "rollout, and is empty if rollout is slower.",
        "max(job:rl_rollout_queue:count{JOB})",
        "waiting",
        unit="none",
        width=12,
    ),
    lacking="needs stagewatch.throughput, call or scalar in the trainer",
    collapsed=True,
)
