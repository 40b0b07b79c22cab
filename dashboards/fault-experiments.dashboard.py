"""Injection, detection, recovery: what an experiment needs to show."""

from stagewatch.dashboards import (
    ANY_IS_AMBER,
    ANY_IS_BAD,
    GREEN,
    RED,
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
**Four rows on one time axis:** *Injected* is when a marker was open (`stagewatch fault mark`),
*Detected* when an alert fired, *Localised* when a rank was named, *Back* when a node or job had
recovered.  Distances between their left edges are detection, localisation and recovery time.  Under
them is the propagation: progress of every rank, nodes, throughput.  Compare with an hour before the
injection; the baseline belongs to the experiment.
"""

dashboard = board(
    "Fault experiments",
    uid="stagewatch-fault-experiments",
    description="Injected faults, how they were detected and localised, and the recovery.",
    guide=GUIDE,
    variables_used=("partition", "node"),
    sections=[
        section(
            "Now",
            stat(
                "Open faults",
                "Markers that are open now.",
                "count(count by (id) (fault_injection_active{CLUSTER})) or vector(0)",
                thresholds=ANY_IS_AMBER,
            ),
            stat(
                "Longest open",
                "How long the oldest open fault has been injected.",
                "time() - min(fault_injection_start_timestamp_seconds{CLUSTER})",
                unit="s",
            ),
            stat(
                "Detected",
                "Alerts that fire.",
                'count(ALERTS{CLUSTER, alertstate="firing"}) or vector(0)',
                thresholds=ANY_IS_AMBER,
            ),
            stat(
                "Jobs stalled",
                "Jobs of which every live rank is without progress.",
                "count(count by (cluster, job_id) (job:rl_stall:active{CLUSTER})) or vector(0)",
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "Ranks alive",
                "Ranks whose process lives.",
                "sum(rl_rank_up{NODE})",
            ),
            stat(
                "Agents that answer",
                "Share of the scrapes of node agents that succeed.",
                'avg(up{NODE, job="stagewatch"})',
                unit="percentunit",
                thresholds=steps((0.99, GREEN), base=RED),
            ),
        ),
        section(
            "Timeline",
            state_timeline(
                "Injected",
                "Markers, while they are open.",
                Query(
                    "max by (id, fault_type, target_worker, scenario)"
                    " (fault_injection_active{CLUSTER})",
                    "{{scenario}} {{fault_type}} on {{target_worker}}",
                ),
                mappings=mapping({"1": ("injected", RED)}),
                rows=5,
            ),
            state_timeline(
                "Detected",
                "Alerts, while they fire.",
                Query(
                    'count by (alertname) (ALERTS{CLUSTER, alertstate="firing"})', "{{alertname}}"
                ),
                thresholds=ANY_IS_AMBER,
                rows=6,
            ),
            state_timeline(
                "Localised",
                "Ranks named as being at fault.",
                Query(
                    "max by (job_id, role, rank, node, evidence) (job:rl_stall:culprit{CLUSTER})",
                    "{{job_id}} {{role}} {{rank}} on {{node}}: {{evidence}}",
                ),
                mappings=mapping({"1": ("named", RED)}),
                rows=5,
            ),
            state_timeline(
                "Back",
                "Nodes that answer or take jobs again, and jobs that make progress again: shown "
                "for a minute.",
                [
                    Query(
                        "max by (node, kind) (node:recovery:event{CLUSTER})", "{{node}} ({{kind}})"
                    ),
                    Query(
                        "max by (job_id, role) (job:recovery:event{CLUSTER})",
                        "job {{job_id}} ({{role}})",
                    ),
                ],
                mappings=mapping({"1": ("back", GREEN)}),
                rows=5,
            ),
        ),
        section(
            "Propagation",
            timeseries(
                "Progress age",
                "The rank of each job and role that has been without progress the longest.",
                Query(
                    "max by (job_id, role) (rl_rank_progress_age_seconds{NODE})",
                    "{{job_id}} {{role}}",
                ),
                unit="s",
            ),
            timeseries(
                "Steps per minute",
                "How fast each job's slowest rank advances.",
                Query(
                    "min by (job_id, role) (deriv(rl_rank_step{NODE}[$__rate_interval])) * 60",
                    "{{job_id}} {{role}}",
                ),
                minimum=None,
            ),
            timeseries(
                "Scalars",
                "What the ranks publish, mean over the ranks.",
                Query("avg by (job_id, name) (rl_scalar{NODE})", "{{job_id}} {{name}}"),
                minimum=None,
            ),
            timeseries(
                "GPUs",
                "SM activity of each node.",
                Query("avg by (node) (gpu_sm_active_ratio{NODE})", "{{node}}"),
                unit="percentunit",
                maximum=1,
            ),
            state_timeline(
                "Agents",
                "A node that is silent has no data until it is back.",
                Query('max by (node) (up{NODE, job="stagewatch"})', "{{node}}"),
                mappings=mapping({"0": ("silent", RED), "1": ("answers", GREEN)}),
                width=12,
                rows=8,
            ),
            table(
                "Markers that are open",
                "As they stand in the marker files.",
                {
                    "id": "Id",
                    "scenario": "Scenario",
                    "fault_type": "Fault",
                    "target_worker": "Target",
                    "expected_failure_stage": "Expected to surface in",
                },
                [
                    Column(
                        "For",
                        "max by (id, scenario, fault_type, target_worker, expected_failure_stage)"
                        " (fault_injection_active{CLUSTER} * on (cluster, node, id) group_left ()"
                        " (time() - fault_injection_start_timestamp_seconds{CLUSTER}))",
                        unit="s",
                    )
                ],
                width=12,
            ),
        ),
    ],
)
