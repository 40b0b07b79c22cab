"""The series that an experiment is judged by.

In an expression JOB stands for the job's selector and NODES for that of its nodes; `{window}` and
`{rate}` are how far it looks back, see `history`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.history import quoted

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Signal:
    """One expression.  `floor` is a difference, in `unit`, that is never called a deviation."""

    name: str
    unit: str
    floor: float
    expression: str
    age: bool = False

    def for_job(self, job: str, nodes: str) -> str:
        """The expression with its selectors."""
        return self.expression.replace("JOB", job).replace("NODES", nodes)


def _last(metric: str, by: str, more: str = "JOB", how: str = "max") -> str:
    return f"{how} by ({by}) (last_over_time({metric}{{{more}}}[{{window}}]))"


def _rate(metric: str, by: str, more: str = "JOB") -> str:
    """A rate looks back further than a sample is shown: not into a gap."""
    series = f"{metric}{{{more}}}"
    return f"sum by ({by}) (rate({series}[{{rate}}]) and last_over_time({series}[{{window}}]))"


RANK = "role, rank"
GPU = "node, gpu, uuid"
MOUNT = "node, mount"

SIGNALS = (
    Signal("stage duration", "s", 0.5, _last("rl_rank_stage_last_seconds", f"{RANK}, stage")),
    Signal(
        "stage open",
        "s",
        2.0,
        _last("rl_rank_stage_open_seconds", f"{RANK}, stage", 'JOB, stage!="idle"'),
        age=True,
    ),
    Signal("progress age", "s", 2.0, _last("rl_rank_progress_age_seconds", RANK), age=True),
    Signal("run-queue wait", "cores", 0.1, _rate("rl_rank_run_queue_seconds_total", RANK)),
    Signal("CPU", "cores", 0.25, _rate("rl_rank_cpu_seconds_total", RANK)),
    Signal("resident memory", "B", 64 * MIB, _last("rl_rank_resident_memory_bytes", RANK)),
    Signal("retransmissions", "1/s", 0.5, _rate("rl_rank_tcp_retransmissions_total", RANK)),
    Signal("TCP round trip", "s", 0.02, _last("rl_rank_tcp_rtt_seconds", RANK)),
    Signal("TCP send queue", "B", 65536, _last("rl_rank_tcp_send_queue_bytes", RANK, how="sum")),
    Signal("TCP bytes", "B/s", 1e5, _rate("rl_rank_tcp_bytes_total", f"{RANK}, direction")),
    Signal("file bytes", "B/s", 1e6, _rate("rl_rank_io_bytes_total", f"{RANK}, direction, layer")),
    Signal("scalar", "", 1e-9, _last("rl_scalar", f"{RANK}, name")),
    Signal("GPU utilisation", "ratio", 0.15, _last("gpu_utilization_ratio", GPU, "NODES")),
    Signal("SM activity", "ratio", 0.15, _last("gpu_sm_active_ratio", GPU, "NODES")),
    Signal("GPU memory", "B", 512 * MIB, _last("gpu_memory_used_bytes", GPU, "NODES")),
    Signal(
        "NFS time an operation",
        "s",
        0.02,
        f"{_rate('nfs_operation_execute_seconds_total', MOUNT, 'NODES')}"
        f" / ({_rate('nfs_operations_total', MOUNT, 'NODES')} > 0)",
    ),
    Signal("canary", "s", 0.1, _last("io_canary_seconds", f"{MOUNT}, phase", "NODES")),
    Signal(
        "free space",
        "ratio",
        0.02,
        f"{_last('io_filesystem_available_bytes', MOUNT, 'NODES')}"
        f" / {_last('io_filesystem_size_bytes', MOUNT, 'NODES')}",
    ),
    Signal("checkpoint size", "B", MIB, _last("io_checkpoint_size_bytes", "directory", "NODES")),
    Signal(
        "pressure",
        "ratio",
        0.15,
        _rate("io_pressure_seconds_total", "node, resource", 'NODES, kind="some"'),
    ),
    Signal("probe", "s", 0.1, _last("net_probe_seconds", "node, target, phase", "NODES")),
    Signal("clock offset", "s", 0.01, _last("clock_offset_seconds", "node", "NODES")),
)


def selectors(cluster: str, job_id: str, nodes: Sequence[str]) -> tuple[str, str]:
    """What JOB and NODES stand for.  Names are matched one by one, never as expressions."""
    chosen = f"cluster={quoted(cluster)}"
    return f"{chosen}, job_id={quoted(job_id)}", f"{chosen}, {one_of('node', nodes)}"


def one_of(label: str, values: Sequence[str]) -> str:
    """A matcher for exactly these values."""
    return f"{label}=~{quoted('|'.join(map(_literal, values)))}"


def _literal(name: str) -> str:
    """A name in an RE2 expression, which knows no more escapes than punctuation's."""
    return "".join(c if c.isalnum() or c in "_-" else f"\\{c}" if c.isascii() else c for c in name)
