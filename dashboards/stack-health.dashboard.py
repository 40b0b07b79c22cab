"""Is the monitoring itself well?"""

from sections.stack_collectors import COLLECTORS
from stagewatch import dashboards as draw

GUIDE = """\
**If this board is red, distrust the others.** An agent that does not answer, or a collector that
fails, is stuck or stale, leaves gaps: what is missing elsewhere is unknown, not fine.  *Stuck*
grows while a call (into the driver, a mount, the controller) does not return; nothing else of that
agent suffers.  *Rules* compares the time a group of rules takes with its interval: above 100 %
evaluations are missed.
"""

dashboard = draw.board(
    "Stack health",
    uid="stagewatch-stack-health",
    description="Agents, collectors, and the cost of scrapes and rules.",
    guide=GUIDE,
    variables_used=("partition", "node"),
    sections=[
        draw.section(
            "Now",
            draw.stat(
                "Agents that answer",
                "Node and Slurm agents that Prometheus reaches.",
                'sum(up{CLUSTER, job=~"stagewatch.*"})',
            ),
            draw.count(
                "Silent agents",
                "Those that it does not.",
                'up{CLUSTER, job=~"stagewatch.*"} == 0',
            ),
            draw.count(
                "Failing collectors",
                "Collectors whose last call failed.",
                "stagewatch_collector_success{CLUSTER} == 0",
            ),
            draw.count(
                "Stuck collectors",
                "Collectors past their deadline without an answer.",
                "stagewatch_collector_stuck_seconds{CLUSTER} > 0",
            ),
            draw.stat(
                "Series dropped",
                "Series left out in the last hour since a metric had too many label sets.",
                "sum(increase(stagewatch_series_dropped_total{CLUSTER}[1h]))",
                thresholds=draw.ANY_IS_AMBER,
            ),
            draw.stat(
                "Busiest rule group",
                "Evaluation time as a share of its interval.",
                "max(prometheus_rule_group_last_duration_seconds"
                " / prometheus_rule_group_interval_seconds)",
                unit="percentunit",
                thresholds=draw.steps((0.5, draw.AMBER), (0.9, draw.RED)),
            ),
        ),
        draw.section(
            "Agents",
            draw.state_timeline(
                "Agents",
                "Whether Prometheus reaches each agent.",
                draw.worst(
                    'max by (job, node, instance) (up{CLUSTER, job=~"stagewatch.*"})',
                    least=True,
                    most=32,
                ),
                "{{job}} {{node}}",
                mappings=draw.mapping({"0": ("silent", draw.RED), "1": ("answers", draw.GREEN)}),
                width=12,
                rows=8,
            ),
            draw.timeseries(
                "Scrape duration",
                "As Prometheus sees it.",
                draw.worst(
                    'max by (job, node) (scrape_duration_seconds{CLUSTER, job=~"stagewatch.*"})'
                ),
            ),
            draw.timeseries(
                "CPU of the agents",
                "Without their child processes; 1 % of a core is the budget.",
                draw.worst(
                    "max by (job, node) (rate(process_cpu_seconds_total"
                    '{CLUSTER, job=~"stagewatch.*"}[RATE]))'
                ),
                unit="percentunit",
                width=8,
            ),
            draw.timeseries(
                "Memory of the agents",
                "Resident, without their child processes.",
                draw.worst(
                    "max by (job, node) (process_resident_memory_bytes"
                    '{CLUSTER, job=~"stagewatch.*"})'
                ),
                width=8,
            ),
            draw.table(
                "Versions",
                "What runs where.",
                [
                    draw.Column(
                        "Agents", "count by (version, python) (stagewatch_build_info{CLUSTER})"
                    )
                ],
                titles={"version": "stagewatch"},
                width=8,
                rows=5,
            ),
            draw.table(
                "Passed over",
                "Stage records and markers of users that could not be read, by reason.",
                [
                    draw.Column(
                        "Files",
                        "max by (node, reason) (stagewatch_records_skipped{NODE})"
                        " or max by (node, reason) (stagewatch_markers_skipped{NODE})",
                    )
                ],
                order="Files",
                width=8,
                rows=5,
            ),
            draw.stat(
                "Readers of the GPU released",
                "Agents that keep off the GPUs on request.",
                "sum(stagewatch_gpu_reader_released{NODE})",
                thresholds=draw.ANY_IS_AMBER,
                width=8,
                rows=5,
            ),
        ),
        COLLECTORS,
        draw.section(
            "Rules",
            draw.timeseries(
                "Evaluation over interval",
                "Of the eight busiest groups of rules; at 100% evaluations are missed.",
                draw.worst(
                    "max by (rules) (label_replace(prometheus_rule_group_last_duration_seconds{}"
                    ' / prometheus_rule_group_interval_seconds{}, "rules", "$1", "rule_group",'
                    ' "(?:.*/)?(.*)"))',
                    most=8,
                ),
                unit="percentunit",
                thresholds=draw.steps((0.5, draw.AMBER), (0.9, draw.RED)),
                width=8,
            ),
            draw.timeseries(
                "Missed and failed",
                "Evaluations that were skipped or ended in an error, per second.",
                [
                    draw.Query(
                        "sum(rate(prometheus_rule_group_iterations_missed_total[RATE]))",
                        "missed",
                    ),
                    draw.Query(
                        "sum(rate(prometheus_rule_evaluation_failures_total[RATE]))",
                        "failed",
                    ),
                ],
                unit="cps",
                width=8,
            ),
        ),
    ],
)
