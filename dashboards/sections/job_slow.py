"""What a job loses to slow ranks, and where the time of its steps goes."""

from stagewatch import dashboards as draw

SLOW_RANKS = draw.section(
    "Slow ranks, and a step's time",
    draw.table(
        "Slow ranks",
        "Ranks that work longer than their peers, and the share of its time that the job loses.",
        [
            draw.Column(
                "Works, times its peers",
                "max by (role, rank, node) (rank:rl_slow:ratio{JOB})",
                unit="none",
                decimals=2,
            ),
            draw.Column(
                "Costs, of the job's time",
                "max by (role, rank, node) (rank:rl_slow_cost:ratio{JOB})",
            ),
            draw.Column(
                "Costs, a step",
                "max by (role, rank, node) (rank:rl_slow_cost:seconds_per_step{JOB})",
                unit="s",
            ),
        ],
        sort="Costs, of the job's time",
        width=12,
    ),
    draw.table(
        "Possible reasons",
        "Readings that may explain why a rank is slow; they accuse nobody. docs/slow-ranks.md "
        "explains them.",
        [
            draw.Column(
                "Share",
                "max by (role, rank, node, witness, reason) (rank:rl_slow_witness:ratio{JOB})",
            )
        ],
        sort="Share",
        width=12,
    ),
    draw.heat_rows(
        "Own work",
        "Share of its time that a rank spends outside of collectives: the 64 that work most.  A "
        "bright row holds the others up.",
        draw.worst("max by (role, rank) (rank:rl_own_work:ratio{JOB})", most=64),
        unit="percentunit",
    ),
    draw.heat_rows(
        "Waiting",
        "Share of its time that a rank is inside of collectives: the 64 that wait least.",
        draw.worst(
            "sum by (role, rank) (rate(rl_rank_waited_seconds_total{RANK}[RATE]))",
            most=64,
            least=True,
        ),
        unit="percentunit",
    ),
    draw.timeseries(
        "A step's time",
        "Mean of the last hour and of all ranks, by what it is spent on.",
        "max by (role, stage, part)"
        ' (job_role_stage_part:rl_step_time:seconds{JOB, part!~"data|device"})',
        "{{role}}: {{part}} in {{stage}}",
        stack=True,
        width=24,
    ),
    lacking="needs collectives that the ranks mark, and steps",
    collapsed=True,
)
