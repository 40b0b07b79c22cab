"""Judges the facts: every check yields what is wrong, and whether a job may still start."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from stagewatch.check.facts import Facts, Sample, Series
from stagewatch.core.access import Access
from stagewatch.core.config import address, listing, option, show, text


def check_name(value: object) -> str:
    """the name of a check (`stagewatch check --list` shows them)"""
    if value not in CHECKS:
        raise ValueError
    return str(value)


def agent_url(value: object) -> str:
    """HOST:PORT, http://HOST:PORT or https://HOST:PORT"""
    scheme, _, rest = text(value).rpartition("://")
    host, port = address(rest)
    if scheme not in ("", "http", "https"):
        raise ValueError
    return f"{scheme or 'http'}://{show((host or '127.0.0.1', port))}"


XID_SECONDS = 3600.0
"""How long an XID counts against the node."""
ORPHAN_SECONDS = 60.0
"""How long a process may hold a GPU after the end of its job."""
CLOCK_OFFSET_SECONDS = 0.01
"""The most by which the clock may be off."""


@dataclass(frozen=True, slots=True)
class CheckOptions(Access):
    """Options of `stagewatch check`."""

    agent: str = option(
        "http://127.0.0.1:9947",
        "this node's agent, as HOST:PORT, or https://HOST:PORT where it has TLS",
        parse=agent_url,
    )
    agent_user: str = option(
        "",
        "user that runs the agent, by name or number; no other answer is trusted. If none, the "
        "owner of /run/stagewatch/ranks",
    )
    timeout: float = option(1.5, "answer within this time, whatever hangs")
    skip: tuple[str, ...] = option((), "checks to leave out", parse=listing(check_name))
    gpus: int = option(0, "GPUs this node must have; 0: as many as are on its PCI bus")
    gpu_type: str = option("", "model they must be, as in gpu_info's type (h200, a6000)")
    driver_stuck: float = option(60.0, "how long the driver may hang before the node is drained")
    mounts: tuple[str, ...] = option(
        (), "directories that must be mounted and answer", parse=listing(text)
    )
    lemons: str = option(
        "",
        "file of `stagewatch lemons --write`; warn if it names this node. If none, not checked",
    )
    node: str = option(
        "", "this node's name in that file; if none, the host name up to the first dot"
    )


class Level(IntEnum):
    """The exit statuses."""

    OK = 0
    WARN = 1
    DRAIN = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    check: str
    level: Level
    reason: str


Found = Iterator[tuple[Level, str]]
Check = Callable[[Facts, CheckOptions], Found]


def judge(facts: Facts, options: CheckOptions) -> list[Finding]:
    """The findings of every check that is not left out, the worst first."""
    found = [
        Finding(name, level, reason)
        for name, check in CHECKS.items()
        if name not in options.skip
        for level, reason in check(facts, options)
    ]
    return sorted(found, key=lambda finding: -finding.level)


def _gpus(samples: Iterable[Sample]) -> str:
    """`GPU 3, GPU 5`, without repetition."""
    return ", ".join(dict.fromkeys(sample.gpu for sample in samples))


def _by_uuid(samples: Iterable[Sample]) -> dict[str, float]:
    return {sample.uuid: sample.value for sample in samples}


def _released(series: Series) -> bool:
    return bool(series.nonzero("stagewatch_gpu_reader_released"))


def _asked(series: Series) -> bool:
    """Whether the agent's GPU collector has finished a round, successful or not."""
    names = ("stagewatch_collector_success", "stagewatch_collector_no_data")
    return any(series(name, collector="gpu") for name in names)


def _failing(series: Series) -> Iterator[str]:
    """Collectors of the agent that fail; a separate check reports a hung driver."""
    for sample in series("stagewatch_collector_success"):
        name = sample.labels.get("collector", "")
        hangs = series.value("stagewatch_collector_stuck_seconds", collector="gpu")
        if not sample.value and not (name == "gpu" and hangs):
            yield name


def agent(facts: Facts, options: CheckOptions) -> Found:
    if facts.problem:
        yield Level.WARN, facts.problem
    elif not _asked(facts.series):
        yield Level.WARN, "the node agent has not read the GPUs"
    if failing := list(_failing(facts.series)):
        yield Level.WARN, f"collectors of the node agent fail: {', '.join(failing)}"
    if facts.series.value("stagewatch_kmsg_readable") == 0:
        yield Level.WARN, "the kernel log cannot be read: XIDs and OOM kills may go unseen"


def driver(facts: Facts, options: CheckOptions) -> Found:
    stuck = facts.series.value("stagewatch_collector_stuck_seconds", collector="gpu") or 0.0
    if stuck >= options.driver_stuck:
        yield Level.DRAIN, f"the NVIDIA driver has not answered for {stuck:.0f} s"
    elif stuck:
        yield Level.WARN, f"the NVIDIA driver has not answered for {stuck:.0f} s"
    elif _released(facts.series):
        yield Level.WARN, "the GPUs are released for maintenance"


def gpu_count(facts: Facts, options: CheckOptions) -> Found:
    series = facts.series
    if _released(series) or not _asked(series):
        return
    whole = [sample for sample in series("gpu_up") if "mig" not in sample.labels]
    down = [sample for sample in whole if not sample.value]
    expected = options.gpus or facts.on_bus
    stuck = series.value("stagewatch_collector_stuck_seconds", collector="gpu")
    if down:
        yield Level.DRAIN, f"the driver has lost {_gpus(down)}"
    elif len(whole) < expected and not stuck:
        yield Level.DRAIN, f"{len(whole)} of {expected} GPUs"
    elif len(whole) > expected > 0 and options.gpus:
        yield Level.WARN, f"{len(whole)} GPUs where {expected} are expected"


def gpu_type(facts: Facts, options: CheckOptions) -> Found:
    if not options.gpu_type:
        return
    for sample in facts.series("gpu_info"):
        if sample.labels.get("type") != options.gpu_type:
            found = sample.labels.get("type", "of unknown type")
            yield Level.DRAIN, f"{sample.gpu} is {found}, not {options.gpu_type}"


def xid(facts: Facts, options: CheckOptions) -> Found:
    for sample in facts.series("gpu_xid_last_timestamp_seconds"):
        if facts.now - sample.value > XID_SECONDS:
            continue
        severity, number = sample.label("severity"), sample.label("xid")
        info = facts.series("gpu_xid_info", xid=number)
        meaning = f" ({info[0].label('meaning')})" if info else ""
        if severity == "critical":
            yield Level.DRAIN, f"XID {number} on {sample.gpu}{meaning}"
        elif severity in ("warning", "unknown"):
            yield Level.WARN, f"XID {number} on {sample.gpu}{meaning}"


def ecc(facts: Facts, options: CheckOptions) -> Found:
    if failed := facts.series.nonzero("gpu_sram_ecc_threshold_exceeded"):
        yield Level.DRAIN, f"SRAM errors past the limit on {_gpus(failed)}: replace"
    errors = facts.series.nonzero("gpu_ecc_errors_total", kind="uncorrected", scope="volatile")
    if errors:
        yield Level.WARN, f"uncorrected ECC errors on {_gpus(errors)}"


def remap(facts: Facts, options: CheckOptions) -> Found:
    if failed := facts.series.nonzero("gpu_remap_failed"):
        yield Level.DRAIN, f"row remapping failed on {_gpus(failed)}: replace"
    if pending := facts.series.nonzero("gpu_remap_pending"):
        yield Level.WARN, f"row remapping pending on {_gpus(pending)}: reset when idle"
    if pending := facts.series.nonzero("gpu_retired_pages_pending"):
        yield Level.WARN, f"page retirement pending on {_gpus(pending)}: reset when idle"
    if spent := facts.series.nonzero("gpu_remap_banks", spares="none"):
        yield Level.WARN, f"no spare rows left in a bank of {_gpus(spent)}"


_ACTIONS = {
    1: "a reset",
    2: "a reboot",
    3: "peers to be drained",
    4: "a drain and a reset",
    5: "a recovery of the IMEX domain",
    6: "a reset of the bus",
    7: "a reboot of the system",
}


def recovery(facts: Facts, options: CheckOptions) -> Found:
    for sample in facts.series.nonzero("gpu_recovery_action"):
        action = _ACTIONS.get(int(sample.value), f"recovery action {sample.value:.0f}")
        level = Level.WARN if sample.value == 3 else Level.DRAIN
        yield level, f"the driver asks for {action} of {sample.gpu}"


def temperature(facts: Facts, options: CheckOptions) -> Found:
    limits = _by_uuid(facts.series("gpu_temperature_slowdown_celsius"))
    least = _by_uuid(facts.series("gpu_temperature_margin_limit_celsius", limit="slowdown"))
    margins = _by_uuid(facts.series("gpu_temperature_margin_celsius"))
    hot = [
        sample
        for sample in facts.series("gpu_temperature_celsius")
        if sample.value >= limits.get(sample.uuid, math.inf)
        or margins.get(sample.uuid, math.inf) <= least.get(sample.uuid, -math.inf)
    ]
    if hot:
        yield Level.WARN, f"{_gpus(hot)} at the slowdown temperature"


def throttle(facts: Facts, options: CheckOptions) -> Found:
    for reason in ("hw_thermal", "hw_power_brake", "hw_slowdown"):
        if active := facts.series.nonzero("gpu_throttle_active", reason=reason):
            yield Level.WARN, f"{_gpus(active)} slowed down by hardware ({reason})"


def nvlink(facts: Facts, options: CheckOptions) -> Found:
    active: dict[str, list[Sample]] = {}
    for sample in facts.series("gpu_nvlink_up"):
        active.setdefault(sample.gpu, []).append(sample)
    counts = {gpu: sum(sample.value > 0 for sample in links) for gpu, links in active.items()}
    best = max(counts.values(), default=0)  # a board without a bridge has none at all, rightly
    for gpu, count in counts.items():
        if count < best:
            down = [sample.label("link") for sample in active[gpu] if not sample.value]
            yield Level.DRAIN, f"NVLink {', '.join(down)} of {gpu} down ({count} of {best} up)"


def fabric(facts: Facts, options: CheckOptions) -> Found:
    if failed := facts.series.nonzero("gpu_fabric_failed"):
        yield Level.DRAIN, f"{_gpus(failed)} could not join the NVSwitch fabric"
    if waiting := [sample for sample in facts.series("gpu_fabric_state") if sample.value < 3]:
        yield Level.DRAIN, f"{_gpus(waiting)} not in the NVSwitch fabric: is its manager running?"
    for sample in facts.series.nonzero("gpu_fabric_unhealthy"):
        yield Level.WARN, f"fabric of {sample.gpu}: {sample.label('condition')}"


def pcie(facts: Facts, options: CheckOptions) -> Found:
    most = _by_uuid(facts.series("gpu_pcie_link_width_max"))
    for sample in facts.series("gpu_pcie_link_width"):
        width = most.get(sample.uuid, 0)
        if sample.value < width:
            yield Level.DRAIN, f"PCIe x{sample.value:.0f} of x{width:.0f} on {sample.gpu}"
    # An idle GPU steps down to a lower generation, so only busy ones count.
    busy = {sample.uuid for sample in facts.series("gpu_performance_state") if not sample.value}
    most = _by_uuid(facts.series("gpu_pcie_link_generation_max"))
    for sample in facts.series("gpu_pcie_link_generation"):
        best = most.get(sample.uuid, 0)
        if sample.uuid in busy and sample.value < best:
            yield Level.WARN, f"PCIe generation {sample.value:.0f} of {best:.0f} on {sample.gpu}"


def persistence(facts: Facts, options: CheckOptions) -> Found:
    if off := [sample for sample in facts.series("gpu_persistence_mode") if not sample.value]:
        yield Level.WARN, f"persistence mode off on {_gpus(off)}"


def orphans(facts: Facts, options: CheckOptions) -> Found:
    for sample in facts.series("gpu_orphaned_process_seconds"):
        if sample.value >= ORPHAN_SECONDS:
            pid, job = sample.label("pid"), sample.label("job_id")
            yield Level.DRAIN, f"process {pid} of ended job {job} holds {sample.gpu}"


def clock(facts: Facts, options: CheckOptions) -> Found:
    if facts.series.value("clock_synchronized") == 0:
        yield Level.WARN, "the clock is not synchronised"
    offset = abs(facts.series.value("clock_offset_seconds") or 0.0)
    if offset > CLOCK_OFFSET_SECONDS:
        yield Level.WARN, f"the clock is off by {offset * 1000:.1f} ms"


def mounts(facts: Facts, options: CheckOptions) -> Found:
    for problem in facts.mounts.values():
        if problem:
            yield Level.DRAIN, problem


def lemons(facts: Facts, options: CheckOptions) -> Found:
    if facts.lemon:
        yield Level.WARN, facts.lemon


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        agent, driver, gpu_count, gpu_type, xid, ecc, remap, recovery, temperature, throttle,
        nvlink, fabric, pcie, persistence, orphans, clock, mounts, lemons,
    )
}  # fmt: skip
"""Every check, in the order of their reasons."""
