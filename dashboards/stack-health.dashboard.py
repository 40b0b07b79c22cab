"""Is the monitoring itself well?"""

from sections.stack_collectors import COLLECTORS
from stagewatch.dashboards import (
    AMBER,
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
    worst,
)

GUIDE = """\
**If this board is red, distrust the others.** An agent that does not answer, or a collector that
fails, is stuck or stale, leaves gaps: what is missing elsewhere is unknown, not fine.  *Stuck*
grows while a call (into the driver, a mount, the controller) does not return; nothing else of that
agent suffers.  *Rules* compares the time a group of rules takes with its interval: above 100 %
evaluations are missed.
"""

dashboard = board(
    "Stack health",
    uid="stagewatch-stack-health",
    description="Agents, collectors, and the cost of scrapes and rules.",
    guide=GUIDE,
    variables_used=("partition", "node"),
    sections=[
        section(
            "Now",
            stat(
                "Agents that answer",
                "Node and Slurm agents that Prometheus reaches.",
                'sum(up{CLUSTER, job=~"stagewatch.*"})',
            ),
            stat(
                "Silent agents",
                "Those that it does not.",
                'count(up{CLUSTER, job=~"stagewatch.*"} == 0) or vector(0)',
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "Failing collectors",
                "Collectors whose last call failed.",
                "count(stagewatch_collector_success{CLUSTER} == 0) or vector(0)",
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "Stuck collectors",
                "Collectors past their deadline without an answer.",
                "count(stagewatch_collector_stuck_seconds{CLUSTER} > 0) or vector(0)",
                thresholds=ANY_IS_BAD,
            ),
            stat(
                "Series dropped",
                "Series left out in the last hour since a metric had too many label sets.",
                "sum(increase(stagewatch_series_dropped_total{CLUSTER}[1h]))",
                thresholds=ANY_IS_AMBER,
            ),
            stat(
                "Busiest rule group",
                "Evaluation time as a share of its interval.",
                "max(prometheus_rule_group_last_duration_seconds"
                " / prometheus_rule_group_interval_seconds)",
                unit="percentunit",
                thresholds=steps((0.5, AMBER), (0.9, RED)),
            ),
        ),
        section(
            "Agents",
            state_timeline(
                "Agents",
                "Whether Prometheus reaches each agent.",
                Query(
                    worst(
                        'max by (job, node, instance) (up{CLUSTER, job=~"stagewatch.*"})',
                        least=True,
                        most=32,
                    ),
                    "{{job}} {{node}}",
                ),
                mappings=mapping({"0": ("silent", RED), "1": ("answers", GREEN)}),
                width=12,
                rows=8,
            ),
            timeseries(
                "Scrape duration",
                "As Prometheus sees it.",
                Query(
                    worst(
                        'max by (job, node) (scrape_duration_seconds{CLUSTER, job=~"stagewatch.*"})'
                    ),
                    "{{job}} {{node}}",
                ),
                unit="s",
            ),
            timeseries(
                "CPU of the agents",
                "Without their child processes; 1 % of a core is the budget.",
                Query(
                    worst(
                        "max by (job, node) (rate(process_cpu_seconds_total"
                        '{CLUSTER, job=~"stagewatch.*"}[$__rate_interval]))'
                    ),
                    "{{job}} {{node}}",
                ),
                unit="percentunit",
                width=8,
            ),
            timeseries(
                "Memory of the agents",
                "Resident, without their child processes.",
                Query(
                    worst(
                        "max by (job, node) (process_resident_memory_bytes"
                        '{CLUSTER, job=~"stagewatch.*"})'
                    ),
                    "{{job}} {{node}}",
                ),
                unit="bytes",
                width=8,
            ),
            timeseries(
                "Samples per scrape",
                "How much each agent exports.",
                Query(
                    worst(
                        'max by (job, node) (scrape_samples_scraped{CLUSTER, job=~"stagewatch.*"})'
                    ),
                    "{{job}} {{node}}",
                ),
                width=8,
            ),
            table(
                "Versions",
                "What runs where.",
                {"version": "stagewatch", "python": "Python"},
                [Column("Agents", "count by (version, python) (stagewatch_build_info{CLUSTER})")],
                width=8,
                rows=5,
            ),
            table(
                "Passed over",
                "Stage records and markers of users that could not be read, by reason.",
                {"node": "Node", "reason": "Reason"},
                [
                    Column(
                        "Files",
                        "max by (node, reason) (stagewatch_records_skipped{NODE})"
                        " or max by (node, reason) (stagewatch_markers_skipped{NODE})",
                    )
                ],
                order="Files",
                width=8,
                rows=5,
            ),
            stat(
                "Readers of the GPU released",
                "Agents that keep off the GPUs on request.",
                "sum(stagewatch_gpu_reader_released{NODE})",
                thresholds=ANY_IS_AMBER,
                width=8,
                rows=5,
            ),
        ),
        COLLECTORS,
        section(
            "Rules",
            timeseries(
                "Evaluation over interval",
                "Of each group of rules; at 100% evaluations are missed.",
                Query(
                    "max by (rules) (label_replace(prometheus_rule_group_last_duration_seconds"
                    ' / prometheus_rule_group_interval_seconds, "rules", "$1", "rule_group",'
                    ' "(?:.*/)?(.*)"))',
                    "{{rules}}",
                ),
                unit="percentunit",
                thresholds=steps((0.5, AMBER), (0.9, RED)),
                width=8,
            ),
            timeseries(
                "Missed and failed",
                "Evaluations that were skipped or ended in an error, per second.",
                [
                    Query(
                        "sum(rate(prometheus_rule_group_iterations_missed_total"
                        "[$__rate_interval]))",
                        "missed",
                    ),
                    Query(
                        "sum(rate(prometheus_rule_evaluation_failures_total[$__rate_interval]))",
                        "failed",
                    ),
                ],
                unit="cps",
                width=8,
            ),
            timeseries(
                "Series in Prometheus",
                "In its head block.",
                Query("sum(prometheus_tsdb_head_series)", "series"),
                width=8,
            ),
        ),
    ],
)
