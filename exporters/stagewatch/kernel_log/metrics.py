"""What the `kmsg` collector exports."""

from __future__ import annotations

from stagewatch.core.exposition import Metric

XID = ("gpu", "uuid", "pci_bus_id", "xid", "severity")
XID_ERRORS = Metric(
    "gpu_xid_errors_total",
    "counter",
    "GPU errors since boot, from NVML events and the kernel log, each counted once.",
    XID,
)
XID_LAST = Metric(
    "gpu_xid_last_timestamp_seconds",
    "gauge",
    "When the error was last seen, as Unix time; increase() cannot see the first of a kind.",
    XID,
)
XID_INFO = Metric(
    "gpu_xid_info",
    "gauge",
    "1 for each kind of error seen, with what to do about it.",
    ("xid", "action", "meaning"),
)
VICTIM = ("scope", "job_id", "role", "rank")
OOM_KILLS = Metric(
    "log_oom_kills_total",
    "counter",
    "Processes killed for lack of memory since boot; scope is cgroup or system, and the job and "
    "rank are empty where unknown.",
    VICTIM,
)
OOM_LAST = Metric(
    "log_oom_kill_last_timestamp_seconds", "gauge", "When the last of them was killed.", VICTIM
)
NFS_DOWN = Metric(
    "nfs_server_not_responding",
    "gauge",
    "1 from the kernel's 'not responding' to its 'OK'; 0 afterwards.",
    ("server",),
)
NFS_SINCE = Metric(
    "nfs_server_not_responding_since_timestamp_seconds",
    "gauge",
    "Since when the server has not answered, as Unix time; absent while it does.",
    ("server",),
)
NFS_OUTAGES = Metric(
    "nfs_server_outages_total",
    "counter",
    "How often the kernel said that the server does not respond, since boot.",
    ("server",),
)
NFS_RECLAIM = Metric(
    "nfs_lock_reclaim_failures_total", "counter", "File locks lost after an outage, since boot."
)
READABLE = Metric(
    "stagewatch_kmsg_readable",
    "gauge",
    "1 if the kernel log can be read; without it, GPU errors come from NVML events alone.",
)
LOST = Metric(
    "stagewatch_kmsg_records_lost_total",
    "counter",
    "Records the kernel overwrote before they were read, since the agent's start.",
)
SAVED = Metric(
    "stagewatch_kmsg_state_saved",
    "gauge",
    "1 if the place in the log and the counters survive a restart of the agent.",
)
