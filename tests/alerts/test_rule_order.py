"""No outcome depends on the order of groups: Prometheus evaluates each at a moment of its own.

Within a group the rules are evaluated one after the other, at one moment.  A rule that reads what
another group records may see it as it was an interval ago.
"""

from __future__ import annotations

import re
from functools import cache

from tests.alerts.rule_files import Rule, every_rule

RULES = every_rule()
LASTING: dict[str, dict[str, str]] = {
    "limits": {
        "checkpoints clock collectors engines gpu gpu_condition gpu_lasting logs mounts "
        "network_links network_ranks self slurm slurm_jobs slurm_nodes stages starved_ranks "
        "storage training": "a limit is a constant until somebody changes it",
    },
    "dcgm": {
        "dcgm_xids": "which GPUs an agent reads changes when an agent comes or goes",
        "gpu gpu_condition": "a reading of dcgm-exporter is as old as one that was scraped",
        "gpu_lasting": "likewise; its alerts wait ten minutes, or a day",
        "slurm_lasting": "likewise; SlurmGPUTypeMismatch waits ten minutes",
        "jobs": "likewise; use of GPUs is added up over hours, of which this shifts seconds",
    },
    "dcgm_xids": {
        "gpu gpu_condition": "the last error and its meaning stay until the next one, and the "
        "alert looks back minutes",
    },
    "stall_sums": {
        "checkpoints faults first_failures given_up self slow_jobs stalls_unjudged storage "
        "uninstrumented": "which ranks live, of which a new or a lost one counts 15 s later",
    },
    "slow_spread": {"slow_sums": "who is compared changes when ranks come or go"},
    "slow_sums": {
        "slow_spread": "the deviation, of which the judge reads the mean of ten minutes",
        "slow_jobs": "the newest step, of which an hour's mean is made",
        "training": "likewise, of which the slope over minutes is taken",
        "slow_ranks": "a role that works has done so for a minute",
    },
    "stage_baselines": {
        "stages": "a baseline is made of half an hour; a restarted rank may wait a minute longer",
    },
    "training_baselines": {"training": "likewise"},
    "stalls": {
        "stall_sums": "that a stall has ended is an event of a minute",
        "stages": "an excuse keeps a stage out of Straggler for 30 s more, several evaluations",
        "training": "ThroughputDropped waits two minutes and looks back over five for excuses",
        "goodput": "a stall is seen an evaluation later, by 15 s: GPUs are in one state still",
        "slow_jobs": "an hour's mean takes a minute of a stall more or less",
    },
    "storage": {"mounts": "how full a file system is, for which its alerts wait five minutes"},
    "goodput": {"recovery": "that ranks train again is seen 15 s later, for a minute still"},
    "slurm_jobs": {
        "calls checkpoints engines first_failures given_up gpu_condition logs network_ranks "
        "replicas self slow_jobs slow_ranks slurm stages stalls stalls_unjudged starved_ranks "
        "training uninstrumented": "whose job it is stays so while there is one, and 15 minutes",
    },
    "economics": {"calls": "how long a call usually takes, of all since the job began"},
    "jobs": {
        "economics": "which GPUs a job has stays so for as long as it runs",
        "goodput": "which GPUs a job has, and their use, may be a minute old",
    },
    "slow_ranks": {"goodput": "a slow rank is judged by windows of minutes"},
    "ALERTS": {
        "faults": "PageDuringFault is a note beside any alert of any group, and changes none",
    },
}
"""By the group whose records they read: groups to which the order makes no difference, and why."""
OWN_PAST = {
    "dcgm:gpu_read_by_agent:up": "it reads the agent's gpu_up, whose name a later record shares",
    "gpu_xid_info": "it reads the agent's gpu_xid_info, whose name it shares",
    "node:slurm_unavailable:info": "a node that does not answer is what it was before",
    "job:rl_wasted_gpu_seconds:total": "a counter goes on from its last value",
    "gpu_xid_last_timestamp_seconds": "the time of the last error is kept until the next",
    **{
        f"job:rl_stall:{name}": "what a judge said holds for a minute while it is started anew"
        for name in ("active", "culprit", "group_only", "page")
    },
    "job_node:rl_unjudged_lost:count": "how many ranks a node had is kept while its agent is gone",
    "job:goodput_seen:timestamp_seconds": "when a rank of an allocation was last seen is kept",
    "job:goodput_new:info": "an allocation is new if its start was another at the last evaluation",
    "job:goodput_newly_saved:gpu_seconds": "likewise a checkpoint",
    "job:goodput_at_risk_before:gpu_seconds": "work is added up until a checkpoint is completed",
    "job:slurm_owner:info": "whose job it was is kept for as long as something of it is left",
    "job:slurm_ended:timestamp_seconds": "an ended job is remembered for ten minutes",
    "mount:io_filesystem_writable:info": "a mount could be written to once",
    "engine:silent:timestamp_seconds": "since when an engine is silent is kept while it is",
    "gpu:held_idle:timestamp_seconds": "the time since when a GPU is idle is kept while it is",
    "rank:rl_batch_size_off_since:step": "the step is kept in which a batch began to be off",
}
"""Records that read their own last value, on purpose."""


def recorders() -> dict[str, list[Rule]]:
    """The rules that record a series, by its name."""
    recorded: dict[str, list[Rule]] = {}
    for rule in RULES:
        if rule.records:
            recorded.setdefault(rule.name, []).append(rule)
    return recorded


@cache
def reads_across_groups() -> dict[tuple[str, str], set[str]]:
    """Which rules read another group's records, by the two groups."""
    recorded = recorders()
    reads: dict[tuple[str, str], set[str]] = {}
    for rule in RULES:
        for name in rule.reads:
            sources = {"ALERTS"} if name.startswith("ALERTS") else set()
            sources |= {writer.group for writer in recorded.get(name, ())} - {rule.group}
            for source in sources:
                reads.setdefault((rule.group, source), set()).add(f"{rule.name} reads {name}")
    return reads


def test_a_rule_reads_what_another_group_records_only_where_that_lasts() -> None:
    reads = reads_across_groups()
    lasting = {
        (reader, source)
        for source, reasons in LASTING.items()
        for readers in reasons
        for reader in readers.split()
    }
    assert {pair: names for pair, names in reads.items() if pair not in lasting} == {}
    assert reads.keys() == lasting


def test_no_record_adds_up_or_compares_what_another_group_records() -> None:
    """Such a sum keeps the error of a moment for ever; an alert's ends with its next evaluation."""
    reads = reads_across_groups()
    lookers_back = {rule.name for rule in RULES if rule.records and rule.name in rule.reads}
    assert not [
        read for names in reads.values() for read in names if read.split()[0] in lookers_back
    ]


def test_within_a_group_a_record_stands_before_its_readers() -> None:
    recorded = recorders()
    late = {
        rule.name
        for rule in RULES
        for name in rule.reads
        for writers in [[w for w in recorded.get(name, ()) if w.group == rule.group]]
        if writers and min(writer.position for writer in writers) >= rule.position
    }
    assert late == OWN_PAST.keys()


def test_a_record_is_named_by_level_metric_and_operation() -> None:
    """But for those that give dcgm-exporter's series the names of ours."""
    names = {rule.name for rule in RULES if rule.records and rule.file != "dcgm.rules.yaml"}
    assert [name for name in names if not re.fullmatch(r"[a-z_]+(:[a-z][a-z0-9_]*){2}", name)] == []
