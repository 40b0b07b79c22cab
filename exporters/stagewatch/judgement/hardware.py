"""Proposals to take nodes out whose hardware is faulty, by a verdict and an alert.

A rank may hold its job up by its own code.  So a proposal needs both a charge against the rank and
a hardware fault of its GPU or node, from about the time when the job stood still.  The alerts of
`alerts/` and their thresholds say what counts as a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stagewatch.core.state_file import Moment, decode
from stagewatch.core.words import printable
from stagewatch.judgement.case import Charge
from stagewatch.judgement.memory import State
from stagewatch.judgement.words import meaning
from stagewatch.prometheus.selectors import matchers

if TYPE_CHECKING:  # `inspect` reads case files where no package that asks Prometheus is installed
    from stagewatch.judgement.from_prometheus import JobKey, Queries
    from stagewatch.prometheus.api import Series

BEFORE_SECONDS = 600.0
"""How long before the job stood still the fault may have begun.  A fault that the job has lived
with for longer explains nothing."""
LOST_SECONDS = 300.0
"""How long a node must not answer, as long as Slurm waits (SlurmdTimeout): a virtual machine that
moves to another host comes back."""
VALID_SECONDS = 3600.0
"""How long after the verdict a proposal may be acted on."""
MOST_NODES = 2
"""If more nodes than this show the same fault of no single GPU, the cause is a switch, a server or
a power supply."""
MOST = 16
"""The most proposals of one job."""
_LONGEST = 300

SURE, LIKELY = "sure", "likely"


@dataclass(frozen=True, slots=True)
class Kind:
    """What an alert says about hardware."""

    component: str
    """`GPU`, `NVSwitch`, `NIC`, `Disk` or `Node`."""
    words: str
    slows: bool = False
    """Whether the fault only slows a GPU down; then the proposal is only `likely`."""


LOST_NODE, LOST_GPU, XID = "NodeLost", "GPULost", "GPUXidCritical"
WITNESSES: Mapping[str, Kind] = {
    XID: Kind("GPU", "XID %s"),
    LOST_GPU: Kind("GPU", "the driver does not reach the GPU"),
    "GPUUncorrectableECC": Kind("GPU", "uncorrectable errors of its memory"),
    "GPUSramErrorsBeyondLimit": Kind("GPU", "SRAM errors beyond the vendor's limit"),
    "GPURowRemapFailed": Kind("GPU", "no spare row of memory is left"),
    "GPURecoveryNeeded": Kind("GPU", "the driver asks for its recovery"),
    "GPUNVLinkDown": Kind("GPU", "an NVLink is down"),
    "GPUFabricFailed": Kind("GPU", "it has no part in the NVSwitch fabric"),
    "GPUNVSwitchFatal": Kind("NVSwitch", "a fatal error of an NVSwitch"),
    "GPUDriverWedged": Kind("Node", "the GPU driver does not answer"),
    "GPUDriverMissing": Kind("Node", "no GPU driver works"),
    "GPUCountBelowConfigured": Kind("Node", "it lacks a GPU"),
    "NetworkLinkDown": Kind("NIC", "a link of the compute network is down"),
    "StorageReadOnly": Kind("Disk", "a file system has become read-only"),
    "GPUThrottledByPowerBrake": Kind("GPU", "a power brake slows it down", slows=True),
    "GPUThrottledByHeat": Kind("GPU", "heat slows it down", slows=True),
    "GPUPCIeDegraded": Kind("GPU", "its PCIe link is degraded", slows=True),
    LOST_NODE: Kind("Node", "the node does not answer"),
}
"""The faults by alert, the plainest first.  The last is no alert but comes from the verdict."""


@dataclass(frozen=True, slots=True)
class HardwareFault:
    """A fault of a GPU or a node."""

    cluster: str
    node: str
    alert: str
    uuid: str
    """The GPU; empty if the fault is of no single GPU."""
    time: float
    """When it began, for an XID when it was last seen; Unix seconds."""
    code: str = ""
    """The XID, if it is one."""

    @property
    def words(self) -> str:
        """The fault in words."""
        words = WITNESSES[self.alert].words
        return words % (self.code or "of a critical kind") if "%s" in words else words


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal to take one node out, with its proof."""

    cluster: str
    job_id: str
    node: str
    role: str
    rank: int
    uuid: str
    """The GPU of the rank, where known."""
    evidence: str
    """The evidence of the charge against the rank."""
    confidence: str
    """`sure` or `likely`; nothing acts on `likely`."""
    witness: str
    """The alert: a name in `WITNESSES`."""
    code: str
    """The XID, if it is one."""
    why: str
    """The fault and the charge in one sentence."""
    since: Moment
    """When the job stood still, Unix seconds."""
    time: Moment
    """When the job was judged, Unix seconds."""
    until: Moment
    """When the proposal expires, Unix seconds."""

    @property
    def component(self) -> str:
        """The faulty component."""
        return WITNESSES[self.witness].component


def hardware_faults(api: Queries, at: float) -> list[HardwareFault]:
    """The hardware faults in the alerts of the whole cluster at a Unix time. Raises `SourceError`.

    The time of a fault is when its condition began to hold; for an XID, when it was last seen.
    """
    names = matchers(alertname=sorted(WITNESSES.keys() - {LOST_NODE}))
    firing = f'ALERTS{{alertstate="firing", {names}}}'
    asked = (
        f"ALERTS_FOR_STATE{{{names}}} and ignoring (alertstate) {firing} or label_replace("
        f'gpu_xid_last_timestamp_seconds{{severity="critical"}}, "alertname", "{XID}", "", "")'
    )
    return [_fault_of(one) for one in api.query(asked, at)]


def _fault_of(one: Series) -> HardwareFault:
    alert, get = one.labels["alertname"], one.labels.get
    node = get("node") or get("instance", "")
    return HardwareFault(
        get("cluster", ""), node, alert, get("uuid", ""), one.value, get("xid", "")
    )


def proposals(
    key: JobKey, states: Sequence[State], errors: Sequence[HardwareFault], at: float
) -> tuple[Proposal, ...]:
    """The proposals for a job that was judged at a Unix time, each with the plainest fault."""
    found = []
    for state in states:
        charges = state.verdict.charges
        lost = {charge.rank.node for charge in charges if charge.evidence == "node_lost"}
        for charge in charges if len(lost) <= MOST_NODES else ():
            since = at - _silent_seconds(state, charge)
            witness = _witness(key[0], charge, errors, since)
            if witness is not None and charge.rank.node:
                found.append(_proposal(key, charge, witness, since, at))
    return tuple(found[:MOST])


def _silent_seconds(state: State, charge: Charge) -> float:
    rank = charge.rank
    for seconds in (state.silent_seconds, rank.dead_seconds, rank.left_seconds):
        if seconds is not None:
            return seconds
    return 0.0


def _witness(
    cluster: str, charge: Charge, errors: Sequence[HardwareFault], since: float
) -> HardwareFault | None:
    rank = charge.rank
    if charge.evidence == "node_lost":
        lasts = (rank.left_seconds or 0.0) >= LOST_SECONDS
        return HardwareFault(cluster, rank.node, LOST_NODE, "", since) if lasts else None
    if charge.evidence == "device_lost":
        return HardwareFault(cluster, rank.node, LOST_GPU, rank.gpu, since)
    new = [one for one in errors if one.cluster == cluster and one.time >= since - BEFORE_SECONDS]
    mine = [one for one in new if one.node == rank.node and _is_of(one, rank.gpu, new)]
    order = list(WITNESSES)
    return min(mine, key=lambda one: (order.index(one.alert), -one.time), default=None)


def _is_of(one: HardwareFault, uuid: str, errors: Sequence[HardwareFault]) -> bool:
    """Whether a fault is of this GPU, or of the node and of few other nodes."""
    if WITNESSES[one.alert].component == "GPU":
        return bool(uuid) and uuid == one.uuid
    return len({other.node for other in errors if other.alert == one.alert}) <= MOST_NODES


def _proposal(
    key: JobKey, charge: Charge, witness: HardwareFault, since: float, at: float
) -> Proposal:
    rank = charge.rank
    why = f"{witness.words}; rank {rank.rank} of job {key[1]} {meaning(charge, several=False)}"
    return Proposal(
        cluster=key[0],
        job_id=key[1],
        node=rank.node,
        role=rank.role,
        rank=rank.rank,
        uuid=rank.gpu,
        evidence=charge.evidence,
        confidence=LIKELY if WITNESSES[witness.alert].slows else charge.confidence,
        witness=witness.alert,
        code=witness.code,
        why=printable(why, _LONGEST),
        since=since,
        time=at,
        until=at + VALID_SECONDS,
    )


def read(content: Any) -> Proposal:
    """A proposal from the JSON of a case.  Raises one of `BROKEN`."""
    found: Proposal = decode(Proposal, content)
    if found.witness not in WITNESSES or found.confidence not in (SURE, LIKELY):
        raise ValueError(f"nothing bears witness by the name {found.witness!r:.40}")
    return found
