"""What the GPUs were held for: states over time, and by account, user, partition, model and job."""

from stagewatch.dashboards import (
    AMBER,
    GPU_HOURS,
    GREEN,
    RED,
    STATE_COLORS,
    Column,
    Query,
    board,
    section,
    stat,
    steps,
    table,
    timeseries,
)

GUIDE = """\
**Each configured GPU is in exactly one state at each moment**, so the bands of *All GPUs by state*
add up to the cluster.  Inside of jobs the states are what the ranks do (rollout, reward, train,
weights_update, eval and other are productive), what their start and end cost (waiting, init,
checkpoint, cleanup), and what is lost to idling, stalls and slow ranks; jobs without the client are
busy or unused by the activity of their GPUs, and `unobserved` where nobody knows.  **A gap is a
gap:** where nothing was evaluated, no state is drawn and no hour is counted.  Work since the last
checkpoint is lost when a job fails: *At risk* tells how much that is now, and `stagewatch report
goodput` moves it to `lost`.
"""

_HOURS = "* 15 / 3600"
"""From samples to hours: the rules of alerts/goodput.rules.yaml record one each 15 s."""
_JOBS = "job:goodput_gpus:count"
_PRODUCTIVE = 'state=~"rollout|reward|train|weights_update|eval|other"'
_STANDING = 'state=~"idle|stalled|slowed|unused"'
_KNOWN = 'state!~"busy|unused|unobserved"'
_FREE = ("free", "reserved", "drained", "down")
_GOOD = steps((0.3, AMBER), (0.6, GREEN), base=RED)
_OWNER = "job_id, user, account"


def _added(by: str = "", only: str = "") -> str:
    """Samples of GPUs in some states, added up over the time range."""
    labels = f", {only}" if only else ""
    return f"sum {by}(sum_over_time({_JOBS}{{PARTITION{labels}}}[$__range]))"


def _columns(by: str) -> list[Column]:
    of = f"by ({by}) "
    return [
        Column("GPU hours", f"{_added(of)} {_HOURS}", decimals=1),
        Column(
            "Productive",
            f"{_added(of, _PRODUCTIVE)} / {_added(of, _KNOWN)}",
            unit="percentunit",
            thresholds=_GOOD,
            decimals=0,
        ),
        Column("Hours standing", f"{_added(of, _STANDING)} {_HOURS}", decimals=1),
    ]


dashboard = board(
    "Goodput",
    uid="stagewatch-goodput",
    description="What GPUs were held for, and what came of it, by owner and state.",
    guide=GUIDE,
    variables_used=("partition",),
    sections=[
        section(
            "In the time range",
            stat(
                "Productive",
                "Share of the GPU hours of jobs with the client in which they rolled out, computed "
                "rewards, trained, updated weights or evaluated.",
                f"{_added(only=_PRODUCTIVE)} / {_added(only=_KNOWN)}",
                unit="percentunit",
                thresholds=_GOOD,
            ),
            stat("Held", "By jobs.", f"{_added()} {_HOURS}", unit=GPU_HOURS),
            stat(
                "Standing",
                "GPU hours inside of jobs in which ranks idled, stalled or waited for a slow one, "
                "or the GPUs of a job without the client did nothing.",
                f"{_added(only=_STANDING)} {_HOURS}",
                unit=GPU_HOURS,
            ),
            stat(
                "Waiting to start",
                "GPU hours from allocations to their first ranks.",
                f"""{_added(only='state="waiting"')} {_HOURS}""",
                unit=GPU_HOURS,
            ),
            stat(
                "Unobserved",
                "Share of the GPU hours of jobs of which neither ranks nor GPUs tell anything.",
                f"""{_added(only='state="unobserved"')} / {_added()}""",
                unit="percentunit",
                thresholds=steps((0.1, AMBER)),
            ),
            stat(
                "At risk",
                "GPU hours of work since the last checkpoint, of all jobs that run now.",
                "sum(job:goodput_at_risk:gpu_seconds{CLUSTER}) / 3600",
                unit=GPU_HOURS,
            ),
        ),
        section(
            "Over time",
            timeseries(
                "All GPUs by state",
                "Whatever GPUs the cluster has, each once, inside of jobs and outside.",
                [
                    Query(f"sum by (state) ({_JOBS}{{CLUSTER}})", "{{state}}"),
                    Query("sum by (state) (cluster:goodput_gpus:count{CLUSTER})", "{{state}}"),
                ],
                stack=True,
                colors=STATE_COLORS,
                width=24,
            ),
            timeseries(
                "Share of productive GPUs",
                "Of those that jobs with the client hold.",
                Query(
                    f"sum({_JOBS}{{PARTITION, {_PRODUCTIVE}}})"
                    f" / sum({_JOBS}{{PARTITION, {_KNOWN}}})",
                    "productive",
                ),
                unit="percentunit",
            ),
            timeseries(
                "GPUs that no job has, by model",
                "And why: free, reserved, drained or down.",
                Query(
                    "sum by (model, state) (cluster:goodput_gpus:count{CLUSTER})",
                    "{{model}} {{state}}",
                ),
                stack=True,
                colors={state: STATE_COLORS[state] for state in _FREE},
            ),
        ),
        section(
            "Who, and on what",
            *(
                table(
                    f"By {label}",
                    f"Of each {label}: GPU hours, the productive share of those whose stages are "
                    "seen, and the hours in which ranks or GPUs stood still.",
                    {label: label.capitalize()},
                    _columns(label),
                    sort="GPU hours",
                    order="GPU hours",
                    width=12,
                )
                for label in ("account", "user", "partition", "model")
            ),
        ),
        section(
            "Jobs",
            table(
                "Jobs by hours that stood still",
                "Jobs in which most GPU hours were idle, stalled, slowed or unused.",
                {"job_id": "Job", "user": "User", "account": "Account"},
                _columns(_OWNER),
                sort="Hours standing",
                order="Hours standing",
                rows=15,
            ),
        ),
    ],
)
