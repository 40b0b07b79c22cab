"""Is anything wrong, where, and since when?"""

from stagewatch import dashboards as draw

GUIDE = """\
**Read from the top.** The first line counts what is wrong now; zero is green. *Firing alerts* says
where and for how long: click a node or a job to go to its board, with the same time range, and an
alert to read its runbook, which the judge serves.
*Alerts over time* shows what began first: the leftmost bar is nearest to the cause, later ones
often follow from it.  Vertical marks: red, a fault that somebody injected; orange, detection;
green, recovery.  A number that is missing was not measured; it is never shown as zero.
"""

AGENTS = 'up{NODE, job="stagewatch"}'
FIRING = 'ALERTS{CLUSTER, alertstate="firing", notify=""}'
NEWEST = """
max by (severity, alertname, cluster, node, gpu, job_id, rank, mount, partition) (
  (
    ALERTS_FOR_STATE{CLUSTER, notify="", severity="critical"} + 1e10
    or ALERTS_FOR_STATE{CLUSTER, notify="", severity="warning"}
  ) and ignoring (alertstate) ALERTS{CLUSTER, alertstate="firing", notify=""}
)
"""
"""When each alert began, and later for what is critical."""

dashboard = draw.board(
    "Overview",
    uid="stagewatch-overview",
    description="Is anything wrong in the cluster, where, and since when.",
    guide=GUIDE,
    variables_used=("partition", "node", "runbooks"),
    sections=[
        draw.section(
            "Now",
            draw.count(
                "Critical alerts",
                "Alerts to act on at once.",
                f"{FIRING[:-1]}, severity='critical'}}",
                width=3,
            ),
            draw.count(
                "Warnings",
                "Alerts for the next working hour.",
                f"{FIRING[:-1]}, severity='warning'}}",
                draw.AMBER,
                width=3,
            ),
            draw.count(
                "Stalled jobs",
                "Jobs in which no live rank has made progress for longer than its stage may take.",
                "count by (cluster, job_id) (job:rl_stall:active{CLUSTER})",
                width=3,
            ),
            draw.count(
                "Silent nodes",
                "Node agents that do not answer Prometheus.",
                'up{NODE, job="stagewatch"} == 0',
                width=3,
            ),
            draw.count(
                "Nodes out of service",
                "Nodes to which Slurm gives no jobs: drained, down or failing.",
                "count by (cluster, node) (slurm_node_unavailable_info{CLUSTER})",
                draw.AMBER,
                width=3,
            ),
            draw.count(
                "GPUs lost",
                "GPUs that the driver has lost.",
                "gpu_up{NODE} == 0",
                width=3,
            ),
            draw.stat(
                "Longest wait",
                "Time since the longest-waiting pending job was submitted.",
                "max(slurm_pending_age_seconds{PARTITION})",
                thresholds=draw.steps((1800, draw.AMBER), (86400, draw.RED)),
                width=3,
            ),
            draw.count(
                "Open faults",
                "Faults that are being injected on purpose now.",
                "count by (id) (fault_injection_active{CLUSTER})",
                draw.AMBER,
                width=3,
            ),
        ),
        draw.section(
            "What, where, since when",
            draw.table(
                "Alerts by kind",
                "How often each alert fires, and for how long.",
                [
                    draw.Column("Firing", f"count by (severity, alertname) ({FIRING})"),
                    draw.Column(
                        "For",
                        "max by (severity, alertname) (time() - (ALERTS_FOR_STATE"
                        '{CLUSTER, notify=""}'
                        f" and ignoring (alertstate) {FIRING}))",
                        unit="s",
                    ),
                ],
                order="Firing",
                sort=(("Firing", True), ("Severity", False)),
                width=9,
                rows=9,
            ),
            draw.table(
                "Firing alerts",
                "Critical ones first, then the newest; at most 50, without alerts that go to "
                "nobody.",
                [
                    draw.Column(
                        "For",
                        "max by (severity, alertname, cluster, node, gpu, job_id, rank, mount,"
                        ' partition) (time() - (ALERTS_FOR_STATE{CLUSTER, notify=""}'
                        f" and ignoring (alertstate) {FIRING}))",
                        unit="s",
                    )
                ],
                order=NEWEST,
                sort=(("Severity", False), ("For", False)),
                width=15,
                rows=9,
            ),
            draw.table(
                "Culprits of stalls",
                "The rank at fault in each stalled job, if one can be named.",
                [
                    draw.Column(
                        "Stuck for",
                        "max by (job_id, role, rank, node, pid, stage, evidence) ("
                        "job:rl_stall:culprit{CLUSTER} * on (cluster, node, job_id, role, rank)"
                        " group_left () rl_rank_progress_age_seconds{CLUSTER})",
                        unit="s",
                    )
                ],
                order="Stuck for",
                width=12,
                rows=8,
            ),
            draw.state_timeline(
                "Alerts over time",
                "When each alert fired, by severity; what began first is the leftmost.",
                "max by (alertname) ("
                f"2 * {FIRING[:-1]}, severity='critical'}}"
                f" or {FIRING[:-1]}, severity='warning'}} or 0 * {FIRING})",
                mappings=draw.SEVERITY_CODES,
                width=12,
                rows=8,
            ),
        ),
        draw.section(
            "The cluster at work",
            draw.bar_gauge(
                "GPUs by state",
                "As Slurm counts them; free but drained is capacity that nobody can use.",
                "sum by (state) (slurm_cluster_gpus{CLUSTER})",
                few=True,
                width=8,
            ),
            draw.timeseries(
                "GPU activity",
                "Mean share of time that the SMs had work, over all GPUs; beside it the driver's "
                "coarser utilisation, which a single busy-polling kernel drives to 100 %.",
                [
                    draw.Query("avg(gpu_sm_active_ratio{NODE})", "SM active"),
                    draw.Query("avg(gpu_tensor_active_ratio{NODE})", "tensor cores active"),
                    draw.Query("avg(gpu_utilization_ratio{NODE})", "utilisation"),
                ],
                maximum=1,
                width=8,
            ),
            draw.timeseries(
                "Jobs",
                "Jobs in the queue by state.",
                "sum by (state) (slurm_jobs{CLUSTER})",
                stack=True,
                width=8,
            ),
            draw.timeseries(
                "Ranks by what they do",
                "Main threads by wait class: spin with no progress beside it is a hang.",
                "count by (class) (rl_rank_wait_class{NODE} == 1)",
                stack=True,
                width=8,
            ),
            draw.table(
                "Nodes by rack",
                "By the label rack, if the site gives its targets one; racks with silent nodes "
                "first.",
                [
                    draw.Column(
                        "Nodes",
                        "count by (rack) (group by (cluster, node, rack)"
                        f" ({AGENTS} or gpu_up{{NODE}}))",
                        unit="none",
                    ),
                    draw.Column(
                        "Silent",
                        f"count by (rack) ({AGENTS}) - sum by (rack) ({AGENTS})"
                        " or 0 * count by (rack) (gpu_up{NODE})",
                        unit="none",
                        thresholds=draw.ANY_IS_BAD,
                    ),
                    draw.Column(
                        "GPUs lost",
                        "count by (rack) (gpu_up{NODE} == 0) or 0 * count by (rack) (gpu_up{NODE})",
                        unit="none",
                        thresholds=draw.ANY_IS_BAD,
                    ),
                ],
                sort="Silent",
                width=8,
            ),
        ),
    ],
)
