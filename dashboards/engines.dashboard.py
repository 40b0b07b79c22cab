"""Inference engines: what they hold, what they yield, and who waits."""

from stagewatch import dashboards as draw

GUIDE = """\
vLLM and SGLang by their own metrics, under one set of names; a line is a replica behind an address,
and lists have the largest when the time range ends.  **Running with no tokens** is an engine that
hangs: *Silent for* counts since its last sign of work (a token, a prompt that was read, or its KV
cache changing).  **Preemptions** are work thrown away because the KV cache is full. **Waiting**
before a full cache is normal in a rollout, but bad if people wait: look at *Time to first token*.
The job of an engine is known if the target names it, or if Slurm has one job on the node. If there
is no data, no engine is scraped; docs/engines.md has the scrape job.
"""
_REPLICA = "node, instance, engine, model, dp_rank"
_NAME = "{{engine}} {{instance}} {{dp_rank}}"
_FULL = draw.steps((0.9, draw.AMBER), (0.98, draw.RED))


def _lines(title: str, description: str, record: str, unit: str = "short") -> draw.Panel:
    """The engines, or their replicas, of which a record is the largest."""
    replicas = f"max by (node, instance, engine, dp_rank) ({record}{{NODE}})"
    return draw.timeseries(title, description, draw.worst(replicas), _NAME, unit=unit)


def _of_jobs(record: str) -> str:
    return (
        'sum by (job_id, user, account) (engine:owner:info{NODE, job_id!=""}'
        " * on (cluster, node, instance) group_left ()"  # of a job that changed hands two are known
        f" sum by (cluster, node, instance) ({record}{{NODE}}))"
    )


dashboard = draw.board(
    "Inference engines",
    uid="stagewatch-engines",
    description="vLLM and SGLang: requests, tokens, KV cache, preemptions and latency.",
    guide=GUIDE,
    variables_used=("partition", "node"),
    sections=[
        draw.section(
            "Now",
            draw.stat("Engines", "Addresses that are scraped.", "count(engine:target:info{NODE})"),
            draw.stat("Running", "Requests.", "sum(engine:requests_running:count{NODE})"),
            draw.stat("Waiting", "Requests.", "sum(engine:requests_waiting:count{NODE})"),
            draw.stat(
                "Tokens per second", "Generated.", "sum(engine:tokens_generated:rate1m{NODE})"
            ),
            draw.count(
                "Silent",
                "Replicas that have held requests for two minutes without a sign of work.",
                "engine:silent:seconds{NODE} > 120",
            ),
            draw.count(
                "Short of memory",
                "Replicas with a full KV cache and requests that wait.",
                "engine:kv_cache_used:ratio{NODE} > 0.95"
                " and engine:requests_waiting:count{NODE} > 0",
                draw.AMBER,
            ),
        ),
        draw.section(
            "Engines",
            draw.table(
                "Replicas",
                "Those that run the most requests.",
                [
                    draw.Column(
                        "Running", f"max by ({_REPLICA}) (engine:requests_running:count{{NODE}})"
                    ),
                    draw.Column(
                        "Waiting", f"max by ({_REPLICA}) (engine:requests_waiting:count{{NODE}})"
                    ),
                    draw.Column(
                        "Tokens/s",
                        f"max by ({_REPLICA}) (engine:tokens_generated:rate1m{{NODE}})",
                        decimals=0,
                    ),
                    draw.Column(
                        "KV cache",
                        f"max by ({_REPLICA}) (engine:kv_cache_used:ratio{{NODE}})",
                        thresholds=_FULL,
                    ),
                    draw.Column(
                        "Silent for",
                        f"max by ({_REPLICA}) (engine:silent:seconds{{NODE}})",
                        thresholds=draw.steps((120, draw.AMBER), (300, draw.RED)),
                    ),
                ],
                sort="Running",
                width=16,
            ),
            draw.table(
                "Jobs",
                "Those whose engines generate the most tokens.",
                [
                    draw.Column("Tokens/s", _of_jobs("engine:tokens_generated:rate1m"), decimals=0),
                    draw.Column("Running", _of_jobs("engine:requests_running:count")),
                    draw.Column("Waiting", _of_jobs("engine:requests_waiting:count")),
                ],
                sort="Tokens/s",
                width=8,
            ),
        ),
        draw.section(
            "Work",
            _lines("Tokens per second", "Generated.", "engine:tokens_generated:rate1m"),
            _lines("Prompt tokens per second", "Computed.", "engine:tokens_prefilled:rate1m"),
            _lines("Requests that run", "In batches.", "engine:requests_running:count"),
            _lines("Requests that wait", "Queued.", "engine:requests_waiting:count"),
            _lines("KV cache", "Share in use.", "engine:kv_cache_used:ratio", "percentunit"),
            _lines("Preemptions", "Requests a second.", "engine:preemptions:rate5m", "reqps"),
        ),
        draw.section(
            "Latency",
            _lines(
                "Time to first token",
                "95 % of the requests of five minutes took no longer.",
                "engine:time_to_first_token:p95_seconds",
                "s",
            ),
            _lines(
                "Time between tokens",
                "95 % of the tokens of five minutes took no longer.",
                "engine:inter_token_latency:p95_seconds",
                "s",
            ),
            _lines(
                "Time to first token, median",
                "Of the requests of five minutes.",
                "engine:time_to_first_token:p50_seconds",
                "s",
            ),
            _lines(
                "Time between tokens, median",
                "Of the tokens of five minutes.",
                "engine:inter_token_latency:p50_seconds",
                "s",
            ),
        ),
    ],
)
