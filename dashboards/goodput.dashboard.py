"""What the GPUs were held for: states over time, and by account, user, partition, model and job."""

from stagewatch import dashboards as draw

GUIDE = """\
**Each configured GPU is in exactly one state at each moment**, so the bands of *All GPUs by state*
add up to the cluster.  Inside of jobs the states are the stages of the ranks (rollout, reward,
train, weights_update, eval and other are productive), the costs of start and end (waiting, init,
checkpoint, cleanup), and the losses to idling, stalls and slow ranks; jobs without the client are
busy or unused by the activity of their GPUs, and `unobserved` if nothing is known.  **A gap is a
gap:** if nothing was evaluated, no state is drawn and no hour is counted.  Work since the last
checkpoint is lost when a job fails: *At risk* is its amount now, and `stagewatch report goodput`
moves it to `lost`.
"""

_HOURS = "* 15 / 3600"
"""From samples to hours: the rules of alerts/goodput.rules.yaml record one each 15 s."""
_JOBS = "job:goodput_gpus:count"
_PRODUCTIVE = 'state=~"rollout|reward|train|weights_update|eval|other"'
_STANDING = 'state=~"idle|stalled|slowed|unused"'
_KNOWN = 'state!~"busy|unused|unobserved"'
_FREE = ("free", "reserved", "drained", "down")
_GOOD = draw.steps((0.3, draw.AMBER), (0.6, draw.GREEN), base=draw.RED)
_OWNER = "job_id, user, account"


def _added(by: str = "", only: str = "") -> str:
    """Samples of GPUs in some states, added up over the time range."""
    labels = f", {only}" if only else ""
    return f"sum {by}(sum_over_time({_JOBS}{{PARTITION{labels}}}[$__range]))"


def _columns(by: str) -> list[draw.Column]:
    of = f"by ({by}) "
    return [
        draw.Column("GPU hours", f"{_added(of)} {_HOURS}", decimals=1),
        draw.Column(
            "Productive",
            f"{_added(of, _PRODUCTIVE)} / {_added(of, _KNOWN)}",
            unit="percentunit",
            thresholds=_GOOD,
            decimals=0,
        ),
        draw.Column("Hours standing", f"{_added(of, _STANDING)} {_HOURS}", decimals=1),
    ]


dashboard = draw.board(
    "Goodput",
    uid="stagewatch-goodput",
    description="How jobs used their GPUs, by owner and state.",
    guide=GUIDE,
    variables_used=("partition",),
    sections=[
        draw.section(
            "In the time range",
            draw.stat(
                "Productive",
                "Share of the GPU hours of jobs with the client in which they rolled out, computed "
                "rewards, trained, updated weights or evaluated.",
                f"{_added(only=_PRODUCTIVE)} / {_added(only=_KNOWN)}",
                unit="percentunit",
                thresholds=_GOOD,
            ),
            draw.stat("Held", "By jobs.", f"{_added()} {_HOURS}", unit=draw.GPU_HOURS),
            draw.stat(
                "Standing",
                "GPU hours in which ranks idled, stalled or waited for a slow rank, or GPUs of a "
                "job without the client did nothing.",
                f"{_added(only=_STANDING)} {_HOURS}",
                unit=draw.GPU_HOURS,
            ),
            draw.stat(
                "Waiting to start",
                "GPU hours from allocations to their first ranks.",
                f"""{_added(only='state="waiting"')} {_HOURS}""",
                unit=draw.GPU_HOURS,
            ),
            draw.stat(
                "Unobserved",
                "Share of the jobs' GPU hours for which neither ranks nor GPUs are visible.",
                f"""{_added(only='state="unobserved"')} / {_added()}""",
                unit="percentunit",
                thresholds=draw.steps((0.1, draw.AMBER)),
            ),
            draw.stat(
                "At risk",
                "GPU hours of work since the last checkpoint, of all jobs that run now.",
                "sum(job:goodput_at_risk:gpu_seconds{CLUSTER}) / 3600",
                unit=draw.GPU_HOURS,
            ),
        ),
        draw.section(
            "Over time",
            draw.timeseries(
                "All GPUs by state",
                "All GPUs of the cluster, inside of jobs and outside; every GPU counts once.",
                [
                    draw.Query(f"sum by (state) ({_JOBS}{{CLUSTER}})"),
                    draw.Query("sum by (state) (cluster:goodput_gpus:count{CLUSTER})"),
                ],
                stack=True,
                colors=draw.STATE_COLORS,
                width=24,
            ),
            draw.timeseries(
                "Share of productive GPUs",
                "Of those that jobs with the client hold.",
                f"sum({_JOBS}{{PARTITION, {_PRODUCTIVE}}}) / sum({_JOBS}{{PARTITION, {_KNOWN}}})",
                "productive",
                unit="percentunit",
            ),
            draw.timeseries(
                "GPUs that no job has, by model",
                "The reason is free, reserved, drained or down.",
                "sum by (model, state) (cluster:goodput_gpus:count{CLUSTER})",
                stack=True,
                colors={state: draw.STATE_COLORS[state] for state in _FREE},
            ),
        ),
        draw.section(
            "Who, and on what",
            *(
                draw.table(
                    f"By {label}",
                    f"GPU hours of each {label}, the productive share of those whose stages are "
                    "seen, and the hours in which ranks or GPUs stood still.",
                    _columns(label),
                    sort="GPU hours",
                    width=12,
                )
                for label in ("account", "user", "partition", "model")
            ),
        ),
        draw.section(
            "Jobs",
            draw.table(
                "Jobs by hours that stood still",
                "Jobs in which most GPU hours were idle, stalled, slowed or unused.",
                _columns(_OWNER),
                sort="Hours standing",
                rows=15,
            ),
        ),
    ],
)
