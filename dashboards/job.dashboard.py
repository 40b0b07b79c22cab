"""One job: its ranks, GPUs, storage, and its alerts."""

from stagewatch.dashboards import (
    AMBER,
    ANY_IS_AMBER,
    ANY_IS_BAD,
    GREEN,
    RED,
    STAGE_NAMES,
    Column,
    Query,
    board,
    mapping,
    section,
    stat,
    state_timeline,
    steps,
    table,
    timeseries,
)

GUIDE = """\
**Choose the job above.** *Verdict* names the rank at fault, if one can be named.  *Stage of each
rank* shows the lockstep: in a healthy job all rows change colour together; a row that stays behind
is where it began, the rows that wait for it are not at fault.  *Progress age* climbing on all ranks
at once is a stall; on one, a straggler.  *What the main thread does* tells spinning (busy-poll)
from parked, blocked on I/O, and gone.  For stages in depth go to *Stage timeline*.
"""


dashboard = board(
    "Job",
    uid="stagewatch-job",
    description="One job: ranks and stages, sockets, storage, GPUs, and its alerts.",
    guide=GUIDE,
    variables_used=("job_id",),
    sections=[
        section(
            "Now",
            stat(
                "Ranks alive",
                "Ranks whose process lives.",
                "sum(rl_rank_up{JOB})",
            ),
            stat(
                "Ranks gone",
                "Ranks that ended without closing their record.",
                "count(rl_rank_up{JOB} == 0) or vector(0)",
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "Step",
                "The furthest step any rank has reported.",
                "max(rl_rank_step{JOB})",
                unit="none",
            ),
            stat(
                "Steps apart",
                "How far the ranks of a role are from each other.",
                "max(max by (role) (rl_rank_step{JOB}) - min by (role) (rl_rank_step{JOB}))",
                unit="none",
                thresholds=ANY_IS_AMBER,
            ),
            stat(
                "Oldest progress",
                "The longest time any rank has been without progress.",
                "max(rl_rank_progress_age_seconds{JOB})",
                unit="s",
                thresholds=steps((10, AMBER), (60, RED)),
            ),
            stat(
                "Firing alerts",
                "Alerts about this job.",
                'count(ALERTS{JOB, alertstate="firing"}) or vector(0)',
                thresholds=ANY_IS_BAD,
            ),
            table(
                "Verdict",
                "The rank at fault and what says so; empty where the job runs, or where nobody can "
                "be named.",
                {
                    "role": "Role",
                    "rank": "Rank",
                    "node": "Node",
                    "pid": "PID",
                    "stage": "Stage",
                    "evidence": "Evidence",
                },
                [
                    Column(
                        "No progress for",
                        "max by (role, rank, node, pid, stage, evidence)"
                        " (job:rl_stall:culprit{JOB}"
                        " * on (cluster, node, job_id, role, rank) group_left ()"
                        " rl_rank_progress_age_seconds{JOB})",
                        unit="s",
                    )
                ],
                width=12,
                rows=6,
            ),
            table(
                "Alerts of this job",
                "What fires, and for how long.",
                {
                    "severity": "Severity",
                    "alertname": "Alert",
                    "role": "Role",
                    "rank": "Rank",
                    "node": "Node",
                },
                [
                    Column(
                        "For",
                        "max by (severity, alertname, role, rank, node)"
                        " (time() - (ALERTS_FOR_STATE{JOB}"
                        ' and ignoring (alertstate) ALERTS{JOB, alertstate="firing"}))',
                        unit="s",
                    )
                ],
                width=12,
                rows=6,
            ),
        ),
        section(
            "Ranks and stages",
            state_timeline(
                "Stage of each rank",
                "The innermost open stage.",
                Query(
                    "max by (role, rank, node) (rl_rank_stage_code{JOB})",
                    "{{role}} {{rank}} ({{node}})",
                ),
                mappings=STAGE_NAMES,
                rows=12,
            ),
            timeseries(
                "Progress age",
                "Time since each rank last made progress.",
                Query(
                    "max by (role, rank) (rl_rank_progress_age_seconds{JOB})", "{{role}} {{rank}}"
                ),
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
        ),
        section(
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
                    "max by (role, rank)"
                    " (rate(rl_rank_run_queue_seconds_total{JOB}[$__rate_interval]))",
                    "{{role}} {{rank}}",
                ),
                unit="percentunit",
            ),
            timeseries(
                "Resident memory",
                "Of each rank's process.",
                Query(
                    "max by (role, rank) (rl_rank_resident_memory_bytes{JOB})", "{{role}} {{rank}}"
                ),
                unit="bytes",
            ),
            collapsed=True,
        ),
        section(
            "Sockets and storage",
            timeseries(
                "Sent again",
                "Share of a rank's segments that were sent again: the one bad socket among many.",
                Query(
                    "max by (role, rank) (rank:rl_tcp_retransmission:ratio{JOB})",
                    "{{role}} {{rank}}",
                ),
                unit="percentunit",
            ),
            timeseries(
                "Round trip",
                "Of each rank's slowest connection.",
                Query("max by (role, rank) (rl_rank_tcp_rtt_seconds{JOB})", "{{role}} {{rank}}"),
                unit="s",
                log=True,
            ),
            timeseries(
                "Network throughput",
                "Bytes received, and bytes sent that the peer has acknowledged.",
                Query(
                    "sum by (role, rank, direction)"
                    " (rate(rl_rank_tcp_bytes_total{JOB}[$__rate_interval]))",
                    "{{role}} {{rank}} {{direction}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "Read and written",
                "Bytes that reached storage, of each rank and the processes it has started.",
                Query(
                    "sum by (role, rank, direction) (rate(rl_rank_io_bytes_total"
                    '{JOB, layer="storage"}[$__rate_interval]))',
                    "{{role}} {{rank}} {{direction}}",
                ),
                unit="Bps",
            ),
            timeseries(
                "Sync of a small file",
                "How long the canary's fsync took, on each mount of the nodes of this job.",
                Query(
                    'max by (node, mount) (io_canary_seconds{CLUSTER, phase="fsync"}'
                    " and on (cluster, node) rl_rank_up{JOB})",
                    "{{node}} {{mount}}",
                ),
                unit="s",
                log=True,
            ),
            timeseries(
                "Size of the newest checkpoint",
                "One much smaller than its predecessor was cut short.",
                Query(
                    "max by (directory) (io_checkpoint_size_bytes{JOB})",
                    "{{directory}}",
                ),
                unit="bytes",
            ),
            collapsed=True,
        ),
        section(
            "Logs and kills",
            table(
                "Patterns in the logs",
                "When each kind of line was first and last seen; the longest ago came first.",
                {"pattern": "Pattern", "role": "Role", "rank": "Rank", "file": "File"},
                [
                    Column(
                        "First",
                        "max by (pattern, role, rank, file)"
                        " (time() - log_first_match_timestamp_seconds{JOB})",
                        unit="s",
                    ),
                    Column(
                        "Last",
                        "max by (pattern, role, rank, file)"
                        " (time() - log_last_match_timestamp_seconds{JOB})",
                        unit="s",
                    ),
                    Column(
                        "Lines",
                        "sum by (pattern, role, rank, file) (log_matches_total{JOB})",
                    ),
                ],
                sort="First",
                width=14,
            ),
            stat(
                "Killed for lack of memory",
                "Ranks of this job of which the kernel has killed a process, since the boot.",
                "count(max by (node, role, rank) (log_oom_kill_last_timestamp_seconds{JOB}))"
                " or vector(0)",
                thresholds=ANY_IS_BAD,
                width=10,
                rows=8,
            ),
            collapsed=True,
        ),
        section(
            "GPUs of the nodes",
            timeseries(
                "SM active",
                "Every GPU of the nodes on which this job has ranks.",
                Query(
                    "max by (node, gpu) (gpu_sm_active_ratio{CLUSTER}"
                    " and on (cluster, node) rl_rank_up{JOB})",
                    "{{node}} GPU {{gpu}}",
                ),
                unit="percentunit",
                maximum=1,
            ),
            timeseries(
                "Power",
                "Busy-polling GPUs draw far less than working ones.",
                Query(
                    "max by (node, gpu) (gpu_power_watts{CLUSTER}"
                    " and on (cluster, node) rl_rank_up{JOB})",
                    "{{node}} GPU {{gpu}}",
                ),
                unit="watt",
            ),
            timeseries(
                "Memory used",
                "Memory that stays held while nothing works is a deadlock's mark.",
                Query(
                    "max by (node, gpu) (gpu_memory_used_bytes{CLUSTER}"
                    " and on (cluster, node) rl_rank_up{JOB})",
                    "{{node}} GPU {{gpu}}",
                ),
                unit="bytes",
            ),
            state_timeline(
                "Agents of the nodes",
                "A node that went silent takes its ranks' data along.",
                Query(
                    'max by (node) (up{CLUSTER, job="stagewatch"} and on (cluster, node)'
                    " last_over_time(rl_rank_up{JOB}[1h]))",
                    "{{node}}",
                ),
                mappings=mapping({"0": ("silent", RED), "1": ("answers", GREEN)}),
                width=12,
                rows=8,
            ),
            collapsed=True,
        ),
    ],
)
