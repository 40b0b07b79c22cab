"""Injection, detection, recovery: what an experiment needs to show."""

from stagewatch import dashboards as draw

GUIDE = """\
**Four rows on one time axis:** *Injected* is when a marker was open (`stagewatch fault mark`),
*Detected* when an alert fired, *Localised* when a rank was named, *Back* when a node or job had
recovered.  The distances between their left edges are detection, localisation and recovery time.
Below them is the propagation: progress of every rank, nodes, throughput.  Compare with an hour
before the injection; the baseline belongs to the experiment.
"""

dashboard = draw.board(
    "Fault experiments",
    uid="stagewatch-fault-experiments",
    description="Injected faults, how they were detected and localised, and the recovery.",
    guide=GUIDE,
    variables_used=("partition", "node"),
    sections=[
        draw.section(
            "Now",
            draw.count(
                "Open faults",
                "Markers that are open now.",
                "count by (id) (fault_injection_active{CLUSTER})",
                draw.AMBER,
            ),
            draw.stat(
                "Longest open",
                "How long the oldest open fault has been injected.",
                "time() - min(fault_injection_start_timestamp_seconds{CLUSTER})",
            ),
            draw.stat(
                "Agents that answer",
                "Share of the scrapes of node agents that succeed.",
                'avg(up{NODE, job="stagewatch"})',
                unit="percentunit",
                thresholds=draw.steps((0.99, draw.GREEN), base=draw.RED),
            ),
        ),
        draw.section(
            "Timeline",
            draw.state_timeline(
                "Injected",
                "Markers, while they are open.",
                "max by (id, fault_type, target_worker, scenario)"
                " (fault_injection_active{CLUSTER})",
                "{{scenario}} {{fault_type}} on {{target_worker}}",
                mappings=draw.mapping({"1": ("injected", draw.RED)}),
                rows=5,
            ),
            draw.state_timeline(
                "Detected",
                "Alerts, while they fire.",
                'count by (alertname) (ALERTS{CLUSTER, alertstate="firing", notify=""})',
                thresholds=draw.ANY_IS_AMBER,
                rows=6,
            ),
            draw.state_timeline(
                "Localised",
                "Ranks named as being at fault.",
                draw.worst(
                    "max by (job_id, role, rank, node, evidence) (job:rl_stall:culprit{CLUSTER})",
                    "max by (job_id, role, rank, node, evidence)"
                    " (max_over_time(job:rl_stall:culprit{CLUSTER}[$__range]))",
                    most=30,
                ),
                "{{job_id}} {{role}} {{rank}} on {{node}}: {{evidence}}",
                mappings=draw.mapping({"1": ("named", draw.RED)}),
                rows=5,
            ),
            draw.state_timeline(
                "Back",
                "Nodes that answer or take jobs again, and jobs that make progress again: shown "
                "for a minute.",
                [
                    draw.Query(
                        draw.worst(
                            "max by (node, kind) (node:recovery:event{CLUSTER})",
                            "max by (node, kind)"
                            " (max_over_time(node:recovery:event{CLUSTER}[$__range]))",
                        ),
                        "{{node}} ({{kind}})",
                    ),
                    draw.Query(
                        draw.worst(
                            "max by (job_id, role) (job:recovery:event{CLUSTER})",
                            "max by (job_id, role)"
                            " (max_over_time(job:recovery:event{CLUSTER}[$__range]))",
                        ),
                        "job {{job_id}} ({{role}})",
                    ),
                ],
                mappings=draw.mapping({"1": ("back", draw.GREEN)}),
                rows=5,
            ),
        ),
        draw.section(
            "Propagation",
            draw.timeseries(
                "Progress age",
                "The rank of each job and role that has been without progress the longest.",
                draw.worst("max by (job_id, role) (rl_rank_progress_age_seconds{NODE})"),
            ),
            draw.timeseries(
                "Steps per minute",
                "How fast each job's slowest rank advances.",
                draw.worst(
                    "min by (job_id, role) (deriv(rl_rank_step{NODE}[RATE])) * 60",
                    least=True,
                ),
                minimum=None,
            ),
            draw.timeseries(
                "Scalars",
                "What the ranks publish, mean over the ranks.",
                draw.worst(
                    "avg by (job_id, name) (rl_scalar{NODE})",
                    "count by (job_id, name) (rl_scalar{NODE})",
                ),
                minimum=None,
            ),
            draw.timeseries(
                "GPUs",
                "SM activity of each node.",
                draw.worst("avg by (node) (gpu_sm_active_ratio{NODE})", least=True),
                maximum=1,
            ),
            draw.table(
                "Markers that are open",
                "From the marker files.",
                [
                    draw.Column(
                        "For",
                        "max by (id, scenario, fault_type, target_worker, expected_failure_stage)"
                        " (fault_injection_active{CLUSTER} * on (cluster, node, id) group_left ()"
                        " (time() - fault_injection_start_timestamp_seconds{CLUSTER}))",
                        unit="s",
                    )
                ],
                order="For",
                width=12,
            ),
        ),
    ],
)
