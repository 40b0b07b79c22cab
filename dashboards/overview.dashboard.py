"""Is anything wrong, where, and since when?"""

from stagewatch.dashboards import (
    AMBER,
    ANY_IS_AMBER,
    ANY_IS_BAD,
    GREEN,
    RED,
    TO_JOB,
    TO_NODE,
    Column,
    Query,
    bar_gauge,
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
**Read from the top.** The first line counts what is wrong now; zero is green. *Firing alerts* says
where and for how long: click a node, a job or a GPU to go to its board, with the same time range.
*Alerts over time* shows what began first: the leftmost bar is nearest to the cause, later ones are
often its echo.  Vertical marks: red, a fault that somebody injected; orange, detection; green,
recovery.  A number that is missing was not measured; it is never shown as zero.
"""

FIRING = 'ALERTS{CLUSTER, alertstate="firing"}'

dashboard = board(
    "Overview",
    uid="stagewatch-overview",
    description="Is anything wrong in the cluster, where, and since when.",
    guide=GUIDE,
    variables_used=("partition", "node"),
    sections=[
        section(
            "Now",
            stat(
                "Critical alerts",
                "Alerts to act on at once.",
                'count(ALERTS{CLUSTER, alertstate="firing", severity="critical"}) or vector(0)',
                thresholds=ANY_IS_BAD,
                width=3,
            ),
            stat(
                "Warnings",
                "Alerts for the next working hour.",
                'count(ALERTS{CLUSTER, alertstate="firing", severity="warning"}) or vector(0)',
                thresholds=ANY_IS_AMBER,
                width=3,
            ),
            stat(
                "Stalled jobs",
                "Jobs of which every live rank has been without progress for longer than its stage "
                "may take.",
                "count(count by (cluster, job_id) (job:rl_stall:active{CLUSTER})) or vector(0)",
                thresholds=ANY_IS_BAD,
                width=3,
            ),
            stat(
                "Silent nodes",
                "Node agents that do not answer Prometheus.",
                'count(up{NODE, job="stagewatch"} == 0) or vector(0)',
                thresholds=ANY_IS_BAD,
                width=3,
            ),
            stat(
                "Nodes out of service",
                "Nodes that Slurm gives no jobs to: drained, down or failing.",
                "count(count by (cluster, node) (slurm_node_unavailable_info{CLUSTER}))"
                " or vector(0)",
                thresholds=ANY_IS_AMBER,
                width=3,
            ),
            stat(
                "GPUs lost",
                "GPUs that the driver has lost.",
                "count(gpu_up{NODE} == 0) or vector(0)",
                thresholds=ANY_IS_BAD,
                width=3,
            ),
            stat(
                "Longest wait",
                "Time since the longest-waiting pending job was submitted.",
                "max(slurm_pending_age_seconds{PARTITION})",
                unit="s",
                thresholds=steps((1800, AMBER), (86400, RED)),
                width=3,
            ),
            stat(
                "Open faults",
                "Faults that are being injected on purpose now.",
                "count(count by (id) (fault_injection_active{CLUSTER})) or vector(0)",
                thresholds=ANY_IS_AMBER,
                width=3,
            ),
        ),
        section(
            "What, where, since when",
            table(
                "Firing alerts",
                "Every alert that fires, the longest first.",
                {
                    "severity": "Severity",
                    "alertname": "Alert",
                    "cluster": "Cluster",
                    "node": "Node",
                    "gpu": "GPU",
                    "job_id": "Job",
                    "rank": "Rank",
                    "mount": "Mount",
                    "partition": "Partition",
                },
                [
                    Column(
                        "For",
                        "max by (severity, alertname, cluster, node, gpu, job_id, rank, mount,"
                        " partition) (time() - (ALERTS_FOR_STATE{CLUSTER}"
                        f" and ignoring (alertstate) {FIRING}))",
                        unit="s",
                    )
                ],
                links={"node": TO_NODE, "job_id": TO_JOB},
                sort="For",
                width=14,
                rows=9,
            ),
            table(
                "Culprits of stalls",
                "The rank at fault in each stalled job, as far as one can be named honestly.",
                {
                    "job_id": "Job",
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
                        "max by (job_id, role, rank, node, pid, stage, evidence) ("
                        "job:rl_stall:culprit{CLUSTER} * on (cluster, node, job_id, role, rank)"
                        " group_left () rl_rank_progress_age_seconds{CLUSTER})",
                        unit="s",
                    )
                ],
                links={"job_id": TO_JOB},
                width=10,
                rows=9,
            ),
            state_timeline(
                "Alerts over time",
                "How many of each alert fired; what began first is the leftmost.",
                Query('sum by (alertname) (ALERTS{CLUSTER, alertstate="firing"})', "{{alertname}}"),
                thresholds=steps((1, AMBER), (5, RED)),
                rows=8,
            ),
        ),
        section(
            "The cluster at work",
            bar_gauge(
                "GPUs by state",
                "As Slurm counts them; free but drained is capacity that nobody can use.",
                Query("sum by (state) (slurm_cluster_gpus{CLUSTER})", "{{state}}"),
                width=8,
            ),
            timeseries(
                "GPU activity",
                "Mean share of time that the SMs had work, over all GPUs; beside it the driver's "
                "coarser utilisation, which a single busy-polling kernel drives to 100 %.",
                [
                    Query("avg(gpu_sm_active_ratio{NODE})", "SM active"),
                    Query("avg(gpu_tensor_active_ratio{NODE})", "tensor cores active"),
                    Query("avg(gpu_utilization_ratio{NODE})", "utilisation"),
                ],
                unit="percentunit",
                maximum=1,
                width=8,
            ),
            timeseries(
                "Power",
                "Draw of all GPUs.",
                Query("sum by (cluster) (gpu_power_watts{NODE})", "{{cluster}}"),
                unit="watt",
                width=8,
            ),
            timeseries(
                "Jobs",
                "Jobs in the queue by state.",
                Query("sum by (state) (slurm_jobs{CLUSTER})", "{{state}}"),
                stack=True,
                width=8,
            ),
            timeseries(
                "Ranks by what they do",
                "Main threads by wait class: spin with no progress beside it is a hang.",
                Query("count by (class) (rl_rank_wait_class{NODE} == 1)", "{{class}}"),
                stack=True,
                width=8,
            ),
            state_timeline(
                "Agents",
                "Whether Prometheus reaches the agent of each node.",
                Query('max by (node) (up{NODE, job="stagewatch"})', "{{node}}"),
                mappings=mapping({"0": ("silent", RED), "1": ("answers", GREEN)}),
                width=8,
                rows=8,
            ),
        ),
    ],
)
