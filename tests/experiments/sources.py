"""What the sources of the scenarios say, and which series of a run stands beside each number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """One number of a source: `series` and `component` are expressions that the report's match,
    from the beginning; `{origin}` in `component` stands for where the fault was put."""

    what: str
    said: str
    series: str
    component: str = "{origin}"


@dataclass(frozen=True)
class Source:
    """A scenario as its source tells it."""

    number: str
    fault: str
    began: str
    surfaced: str
    evidence: tuple[Evidence, ...] = ()


SOURCES = {
    "sync-stall": Source(
        "S0",
        "one of 64 ranks leaves a loop that ends by the clock, the others begin one more lap",
        "one rank, train",
        "nowhere (the log stops, the job never exits)",
        (
            Evidence("CPU of the odd rank", "100 % → asleep", "CPU"),
            Evidence("progress", "frozen", "progress age"),
        ),
    ),
    "slow-upload": Source(
        "S1 #1",
        "1000 ± 500 ms delay and 10 % loss, train worker 5 → MetaServer",
        "train worker 5, weights_update",
        "rollout, “NCCL timeout”",
        (
            Evidence(
                "weights_update", "15–20 s → 3600 s", r"stage (open|duration) \(weights_update"
            ),
            Evidence("network of that worker", "10 Gbit/s → < 100 Mbit/s", r"TCP bytes \(.*sent"),
            Evidence("segments sent again", "0 → > 1000", "retransmissions"),
            Evidence("round trip", "+1000 ± 500 ms", "TCP round trip"),
            Evidence(
                "receiving at the rollout workers",
                "5 Gbit/s → 0",
                r"TCP bytes \(.*received",
                "rollout ",
            ),
            Evidence("memory of the MetaServer", "14 GB → 0", "resident memory", "metaserver"),
        ),
    ),
    "starved-rollout": Source(
        "S1 #2",
        "CPU 20 → 95 %, then memory +1 GB/s to OOM, rollout worker 8",
        "rollout worker 8, rollout",
        "train, “Batch size mismatch”",
        (
            Evidence("time a sample", "1.2 → 7.5 s", r"scalar \(.*sample_seconds"),
            Evidence("waiting for a core", "not stated", "run-queue wait"),
            Evidence("batch size", "1600 → 1500", r"scalar \(.*batch_size", ""),
            Evidence("GPU utilisation", "85 → 40 %", "GPU utilisation"),
            Evidence("SM activity", "80 → 35 %", "SM activity"),
            Evidence("memory", "40 → 63 GB, then killed", "resident memory"),
        ),
    ),
    "masked-oom": Source(
        "S1 #3",
        "GPU memory 75 → 79 GB on train worker 5, then 15 ± 5 s delay to the scheduler's API",
        "train worker 5, train",
        "controller, cleanup: “Error stopping job: Request timeout” 30 s later",
        (
            Evidence("train", "180 s → 2 s", r"stage duration \(train"),
            Evidence("cleanup", "5 → 30 s", r"stage (open|duration) \(cleanup", "controller"),
            Evidence("GPU memory", "75 → 79 GB", "GPU memory"),
        ),
    ),
    "lost-event": Source(
        "S1 #4",
        "rollout_start event delayed by 300 s, train and rollout on one GPU",
        "controller, event to rollout worker 0",
        "rollout, “CUDA out of memory”",
        (
            Evidence("event", "50 ms → 300 s", r"stage open \(rollout", "controller"),
            Evidence("GPU utilisation", "85 → 0 %", "GPU utilisation", ""),
            Evidence("GPU memory", "40 → 75 GB, never released", "GPU memory", ""),
        ),
    ),
    "unresolved-name": Source(
        "S1 #4, DNS",
        "the name of the event's receiver does not resolve",
        "controller, event to rollout worker 0",
        "rollout, “CUDA out of memory”",
        (Evidence("resolving", "at once → fails", r"probe \(.*dns", ""),),
    ),
    "full-storage": Source(
        "S1 #5",
        "NFS 99.9 % full at the checkpoint of step 10",
        "checkpoint, step N",
        "weights_update, step N + 1, “Checkpoint corrupted: EOFError”",
        (
            Evidence("checkpoint", "30 s → 3600 s", r"stage (open|duration) \(checkpoint", "train"),
            Evidence("free space", "10 TB → 10 GB (0.1 %)", "free space", ""),
            Evidence("file", "14 → 2 GB", "checkpoint size", ""),
            Evidence("fsync", "100 ms → hangs", r"canary \(fsync", ""),
        ),
    ),
}
"""By the name of the demo's scenario."""

RECOVERY = (
    ("detected", "detected", "+2.3 min"),
    ("drained", "out of service", "+3.8 min"),
    ("ended", "job ended", "+5.3 min"),
    ("node_back", "node back", "+17.5 min"),
    ("resumed", "job resumed", "+18.2 min"),
)
"""S3's own phases, after the injection."""
