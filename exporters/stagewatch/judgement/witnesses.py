"""Witnesses: what may explain why a rank is slow, with its query, its threshold and its words.

No witness accuses anybody (docs/slow-ranks.md).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

RANK = "cluster, node, job_id, role, rank"
ROLE = "cluster, job_id, role"
_GPU = "cluster, node, uuid"
_NUMBER = re.compile(r"%(?:s|(\.[0-9]f))")


@dataclass(frozen=True, slots=True)
class Witness:
    """A measurement that may explain why a rank is slow."""

    name: str
    expression: str
    """PromQL over two minutes.  RANKS stands for label matchers of the slow ranks, JOBS for those
    of their jobs."""
    compare: Callable[[float, float], bool]
    threshold: float
    words: str
    """A sentence with `%s` for a share or `%.0f` for another number, as `printf` of Python and of
    alert templates has it; REASON stands for the label of that name."""
    beside: str = ""
    """Another witness; this one is shown only with it."""

    def is_shown(self, value: float) -> bool:
        """Whether a value is beyond the threshold."""
        return self.compare(value, self.threshold)

    def sentence(self, reason: str = "") -> str:
        """Its words with the reason, and still without the number."""
        return self.words.replace("REASON", reason.replace("_", " "))


def with_value(words: str, value: float) -> str:
    """The sentence of a witness with its number, as the alert has it."""
    share = f"{100 * float(f'{value:.2g}'):.4g}%"
    return _NUMBER.sub(lambda form: f"{value:{form[1]}}" if form[1] else share, words, count=1)


def _own(counter: str) -> str:
    return f"max by ({RANK}) (rate({counter}{{RANKS}}[2m]))"


def _at(of: str, node: str) -> str:
    """PromQL that gives ranks the value of their node."""
    return f"(rank:rl_own_work:ratio{{{of}}} ^ 0) * on (cluster, node) group_left () ({node})"


def _nodes(node: str) -> str:
    return f"max by ({RANK}) ({_at('RANKS', node)})"


def _gpus(of: str, gpu: str, label: str = "") -> str:
    """PromQL that gives ranks the values of their GPUs, one series for each GPU."""
    where = f'max by ({RANK}, uuid) (rl_rank_info{{{of}, uuid!=""}})'
    return f"{where} * on ({_GPU}) group_left ({label}) ({gpu})"


def _gpu(gpu: str, worst: str = "max") -> str:
    return f"{worst} by ({RANK}) ({_gpus('RANKS', gpu)})"


def _beside(how: str, gpu: str, worst: str = "max") -> str:
    """PromQL that compares the GPUs of slow ranks with the median of their job's GPUs."""
    median = f"quantile by ({ROLE}) (0.5, {_gpus('JOBS', gpu)})"
    return f"{worst} by ({RANK}) (({_gpus('RANKS', gpu)}) {how} on ({ROLE}) group_left () {median})"


def _less(gpu: str) -> str:
    return f"-1 * {_beside('-', gpu, 'min')}"


def _mean(gauge: str, labels: str = "") -> str:
    return f'max by ({_GPU}) (avg_over_time({gauge}{{mig="", {labels}}}[2m]))'


def _errors(counter: str, labels: str = "") -> str:
    return _gpu(f"60 * sum by ({_GPU}) (rate({counter}{{{labels}}}[2m]))")


def _waiting(of: str) -> str:
    """PromQL for the share of time spent in waits for data; 0 for ranks that never had one."""
    waited = f"sum by ({RANK}) (rate(rl_rank_data_wait_seconds_total{{{of}}}[2m]))"
    return f"({waited} or on ({RANK}) 0 * rank:rl_own_work:ratio{{{of}}})"


_READS = (
    'sum by (cluster, node) (rate(nfs_operation_rtt_seconds_total{op="READ"}[2m]))'
    ' / (sum by (cluster, node) (rate(nfs_operations_total{op="READ"}[2m])) > 0)'
)
_SWAPPED = (
    f"max by ({RANK}) (rl_rank_swapped_memory_bytes{{RANKS}}"
    " / (rl_rank_swapped_memory_bytes{RANKS} + rl_rank_resident_memory_bytes{RANKS}))"
)
_STEP = 'avg_over_time(rl_scalar{%s, name="optimizer_device_seconds"}[2m])'
_STEAL = 'avg by (cluster, node) (rate(node_cpu_seconds_total{mode="steal"}[2m]))'
_OTHER = (
    'sum by (cluster, node) (rate(os_numa_pages_total{place="other"}[2m]))'
    " / sum by (cluster, node) (rate(os_numa_pages_total[2m]))"
)
_REPEATS = (
    f"sum by ({RANK}) (rate(rl_rank_tcp_retransmissions_total{{RANKS}}[2m]))"
    f" / sum by ({RANK}) (rate(rl_rank_tcp_data_segments_total{{RANKS}}[2m]))"
)
_THROTTLED = f"topk by ({_GPU}) (1, max by ({_GPU}, reason) (rate(gpu_throttle_seconds_total[2m])))"
_CLOCK = _mean("gpu_clock_hertz", 'domain="sm"')
_LANES = f"max by ({_GPU}) (gpu_pcie_link_width / gpu_pcie_link_width_max)"
_OPERATION = f"{ROLE}, communicator, op, size"
_ABOVE, _FROM, _BELOW = operator.gt, operator.ge, operator.lt

WITNESSES = (
    Witness(
        "core_wait",
        _own("rl_rank_run_queue_seconds_total"),
        *(_ABOVE, 0.02),
        "Its threads wait for a core %s of the time.",
    ),
    Witness(
        "cpu_limit",
        _own("rl_rank_cgroup_throttled_seconds_total"),
        *(_ABOVE, 0.02),
        "A CPU limit stops it %s of the time.",
    ),
    Witness(
        "cpu_steal",
        _nodes(_STEAL),
        *(_ABOVE, 0.02),
        "The hypervisor takes %s of its node's processors away.",
    ),
    Witness(
        "data_wait",
        # Compared with its peers, since all ranks of a job that starves for data wait for it.
        f"{_waiting('RANKS')} - on ({ROLE}) group_left ()"
        f" quantile by ({ROLE}) (0.5, {_waiting('JOBS')})",
        *(_ABOVE, 0.02),
        "It waits for data %s of the time more than its peers.",
    ),
    Witness(
        "disk_wait",
        _own("rl_rank_block_io_delay_seconds_total"),
        *(_ABOVE, 0.02),
        "It waits for disks %s of the time.",
    ),
    Witness(
        "gpu_clock",
        _beside("/", _CLOCK, "min"),
        *(_BELOW, 0.95),
        "Its GPU's clock is at %s of its peers'.",
    ),
    Witness(
        "gpu_clock_below",
        f"{_less(_CLOCK)} / 1e6",
        *(_ABOVE, 0),
        "That is %.0f MHz below.",
        beside="gpu_clock",
    ),
    Witness(
        "gpu_hotter",
        _beside("-", _mean("gpu_temperature_celsius")),
        *(_FROM, 8),
        "Its GPU is %.0f °C hotter than those of its peers.",
    ),
    # Errors that are corrected or repeated: they only cost time.
    Witness(
        "gpu_memory_errors",
        _errors("gpu_ecc_errors_total", 'kind="corrected", scope="volatile"'),
        *(_ABOVE, 0),
        "Its GPU's memory corrects %.1f errors a minute.",
    ),
    Witness(
        "gpu_nvlink_errors",
        _errors("gpu_nvlink_errors_total"),
        *(_FROM, 10),
        "Its GPU's NVLinks have %.0f errors a minute.",
    ),
    Witness(
        "gpu_pcie_repeats",
        _errors("gpu_pcie_replays_total"),
        *(_FROM, 10),
        "Its GPU's PCIe link sends %.0f packets a minute again.",
    ),
    # Kernels that take longer keep a GPU busier than its peers; a slow host leaves it idle.
    Witness(
        "gpu_sm_less",
        _less(_mean("gpu_sm_active_ratio")),
        *(_FROM, 0.05),
        "Its GPU's SMs are active %s of the time less than those of its peers.",
    ),
    Witness(
        "gpu_sm_more",
        _beside("-", _mean("gpu_sm_active_ratio")),
        *(_FROM, 0.05),
        "Its GPU's SMs are active %s of the time more than those of its peers.",
    ),
    Witness(
        "gpu_tensor_less",
        _less(_mean("gpu_tensor_active_ratio")),
        *(_FROM, 0.05),
        "Its GPU's tensor cores are active %s of the time less than those of its peers.",
    ),
    Witness(
        "gpu_tensor_more",
        _beside("-", _mean("gpu_tensor_active_ratio")),
        *(_FROM, 0.05),
        "Its GPU's tensor cores are active %s of the time more than those of its peers.",
    ),
    Witness(
        "gpu_throttled",
        f"max by ({RANK}, reason) ({_gpus('RANKS', _THROTTLED, 'reason')})",
        *(_ABOVE, 0.02),
        "Its GPU is slowed down %s of the time (REASON).",
    ),
    # The rank that comes last to a collective is in it for the shortest time.
    Witness(
        "nccl_last",
        f"max by ({RANK}) (rate(rl_rank_nccl_last_total{{RANKS}}[2m])"
        " / (rate(rl_rank_nccl_compared_total{RANKS}[2m]) > 0.1))",
        *(_ABOVE, 0.5),
        "It is the last to enter %s of the NCCL collectives of its node.",
    ),
    Witness(
        "nccl_last_by",
        f"1e3 * max by ({RANK}) (rate(rl_rank_nccl_last_seconds_total{{RANKS}}[2m])"
        " / (rate(rl_rank_nccl_last_total{RANKS}[2m]) > 0))",
        *(_ABOVE, 0),
        "That is %.1f ms after the others.",
        beside="nccl_last",
    ),
    Witness(
        "nccl_time",
        f"min by ({RANK}) (rl_rank_nccl_operation_seconds{{RANKS}}"
        f" / on ({_OPERATION}) group_left ()"
        f" quantile by ({_OPERATION}) (0.5, rl_rank_nccl_operation_seconds{{JOBS}}))",
        *(_BELOW, 0.8),
        "It spends %s of its peers' time in NCCL collectives, because it enters them later.",
    ),
    Witness(
        "nfs_read",
        f"max by ({RANK}) ({_at('RANKS', _READS)}) / on ({ROLE}) group_left ()"
        f" quantile by ({ROLE}) (0.5, {_at('JOBS', _READS)})",
        *(_ABOVE, 2),
        "NFS reads take %s of the time that they take on the job's other nodes.",
    ),
    Witness(
        "numa_other",
        _nodes(_OTHER),
        *(_ABOVE, 0.1),
        "%s of the memory pages that processes of its node take are on a different NUMA node from "
        "their processor.",
    ),
    Witness(
        "optimizer_time",
        f"max by ({RANK}) ({_STEP % 'RANKS'}) / on ({ROLE}) group_left ()"
        f" quantile by ({ROLE}) (0.5, {_STEP % 'JOBS'})",
        *(_FROM, 1.05),
        "Its GPU takes %s of its peers' time for the optimizer's step.",
    ),
    Witness(
        "page_faults",  # some 0.01 of its time on a fast disk
        _own("rl_rank_major_page_faults_total"),
        *(_ABOVE, 100),
        "It waits for %.0f pages a second from a disk.",
    ),
    Witness(
        "pcie_width",
        _gpu(_LANES, "min"),
        *(_BELOW, 1),
        "Its GPU's PCIe link has %s of its lanes.",
    ),
    Witness("swapped", _SWAPPED, *(_ABOVE, 0.02), "%s of its memory is swapped out."),
    Witness("tcp_repeats", _REPEATS, *(_ABOVE, 0.01), "%s of its TCP segments are sent again."),
)
"""All witnesses, in the order of the alert."""
