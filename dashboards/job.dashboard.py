"""One job: its ranks, GPUs, storage, and its alerts."""

from sections.job_economics import ECONOMICS
from sections.job_nodes import GPUS_OF_THE_JOB, LOGS_AND_KILLS
from sections.job_ranks import AS_A_WHOLE, PROCESSES, RANKS_AND_STAGES
from sections.job_slow import SLOW_RANKS
from sections.job_traffic import SOCKETS_AND_STORAGE
from stagewatch import dashboards as draw

GUIDE = """\
**Choose the job above**, and a node to see all of its ranks; without a node you see the worst ones
at the end of the time range.  GPUs are those that Slurm or its prolog gave to the job, also without
ranks. *Verdict* names the rank at fault, if one can be named.  *Stage of each rank* shows the
lockstep: in a healthy job all rows change colour together; a row that stays behind is where it
began, the rows that wait for it are not at fault.  *Progress age* climbing on all ranks at once is
a stall; on one, a straggler.  *What the main thread does* distinguishes spinning (busy-poll),
parked, blocked on I/O and gone.  For more about stages go to *Stage timeline*.  Closed rows show
how well the job uses its GPUs (*Economics*), what slow ranks cost, and its processes, sockets and
logs; a panel without data says what it needs.
"""

dashboard = draw.board(
    "Job",
    uid="stagewatch-job",
    description="One job: ranks and stages, sockets, storage, GPUs, and its alerts.",
    guide=GUIDE,
    variables_used=("partition", "node", "job_id", "runbooks"),
    sections=[
        draw.section(
            "Now",
            draw.stat(
                "Ranks alive",
                "Ranks whose process lives.",
                "sum(rl_rank_up{JOB})",
            ),
            draw.count(
                "Ranks gone",
                "Ranks that ended without closing their record.",
                "rl_rank_up{JOB} == 0",
            ),
            draw.stat(
                "Step",
                "The furthest step any rank has reported.",
                "max(rl_rank_step{JOB})",
                unit="none",
            ),
            draw.stat(
                "Steps apart",
                "How far the ranks of a role are from each other.",
                "max(max by (role) (rl_rank_step{JOB}) - min by (role) (rl_rank_step{JOB}))",
                unit="none",
                thresholds=draw.ANY_IS_AMBER,
            ),
            draw.stat(
                "Oldest progress",
                "The longest time any rank has been without progress.",
                "max(rl_rank_progress_age_seconds{JOB})",
                thresholds=draw.steps((10, draw.AMBER), (60, draw.RED)),
            ),
            draw.count(
                "Firing alerts",
                "Alerts about this job.",
                'ALERTS{JOB, alertstate="firing", notify=""}',
            ),
            draw.table(
                "Verdict",
                "The rank at fault and the evidence; empty if the job runs, or if nobody can be "
                "named.",
                [
                    draw.Column(
                        "Stuck for",
                        "max by (role, rank, node, pid, stage, evidence)"
                        " (job:rl_stall:culprit{JOB}"
                        " * on (cluster, node, job_id, role, rank) group_left ()"
                        " rl_rank_progress_age_seconds{JOB})",
                        unit="s",
                    )
                ],
                order="Stuck for",
                lacking="nobody is named",
                width=12,
                rows=6,
            ),
            draw.table(
                "Alerts of this job",
                "What fires, and for how long.",
                [
                    draw.Column(
                        "For",
                        "max by (severity, alertname, role, rank, node)"
                        ' (time() - (ALERTS_FOR_STATE{JOB, notify=""}'
                        ' and ignoring (alertstate) ALERTS{JOB, alertstate="firing", notify=""}))',
                        unit="s",
                    )
                ],
                order="For",
                lacking="nothing fires",
                width=12,
                rows=6,
            ),
            lacking="no ranks were seen",
        ),
        RANKS_AND_STAGES,
        GPUS_OF_THE_JOB,
        SLOW_RANKS,
        ECONOMICS,
        AS_A_WHOLE,
        PROCESSES,
        SOCKETS_AND_STORAGE,
        LOGS_AND_KILLS,
    ],
)
