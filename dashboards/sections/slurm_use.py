"""What jobs make of the GPUs they hold: each job, and users, accounts and partitions over time."""

from stagewatch import dashboards as draw

_OWNER = "job_id, user, account, partition"
_HOURS = "/ 60"
"""From samples to hours: the rules of alerts/jobs.rules.yaml record one each minute."""
_GOOD = draw.steps((0.3, draw.AMBER), (0.6, draw.GREEN), base=draw.RED)


def _added(what: str, window: str, by: str = _OWNER) -> str:
    """A recorded number of GPUs, added up over a time by job or whoever owns jobs."""
    return f"sum by ({by}) (sum_over_time(job:gpus_{what}:count{{PARTITION}}[{window}]))"


JOBS = draw.section(
    "Jobs",
    draw.table(
        "Jobs by GPU hours",
        "Jobs that ran in the time range, those with most GPU hours.  Used is SM activity, or the "
        "driver's utilisation, of the GPUs that are measured; wasted are the GPU hours without it.",
        [
            draw.Column(
                "Runs",
                f"sum by ({_OWNER}) (job:gpus_held:count{{PARTITION}}) ^ 0",
                unit="none",
            ),
            draw.Column("GPU hours", f"{_added('held', '$__range')} {_HOURS}", decimals=1),
            draw.Column(
                "GPUs",
                f"max by ({_OWNER}) (max_over_time(job:gpus_held:count{{PARTITION}}[$__range]))",
                unit="none",
            ),
            draw.Column(
                "Used",
                f"{_added('used', '$__range')} / {_added('measured', '$__range')}",
                unit="percentunit",
                thresholds=_GOOD,
                decimals=0,
            ),
            draw.Column(
                "Hours wasted",
                f"({_added('measured', '$__range')} - {_added('used', '$__range')}) {_HOURS}",
                decimals=1,
            ),
        ],
        sort="GPU hours",
        rows=10,
    ),
)

UTILISATION = draw.section(
    "Use of the GPUs over a day and a week",
    *(
        draw.table(
            f"By {label}",
            f"GPU hours of each {label}, and the share of them that was used.",
            [
                draw.Column(
                    title,
                    expr,
                    unit=unit,
                    thresholds=_GOOD if unit == "percentunit" else (),
                    decimals=0,
                )
                for window, name in (("1d", "day"), ("1w", "week"))
                for title, expr, unit in (
                    (f"Hours, {name}", f"{_added('held', window, label)} {_HOURS}", "short"),
                    (
                        f"Used, {name}",
                        f"{_added('used', window, label)} / {_added('measured', window, label)}",
                        "percentunit",
                    ),
                )
            ],
            sort="Hours, week",
            width=8,
        )
        for label in ("user", "account", "partition")
    ),
    draw.timeseries(
        "GPUs that jobs hold and use",
        "Where the two lines part, GPUs wait.",
        [
            draw.Query(f"sum(job:gpus_{what}:count{{PARTITION}})", what)
            for what in ("held", "measured", "used")
        ],
        width=24,
    ),
)
