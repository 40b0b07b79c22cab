"""Whom a verdict blames that hardware bears witness against: the proposals to take a node out.

A rank that holds its job up by its code is no fault of its node.  So a proposal takes two: a charge
of the verdict, and an error of the very GPU or node that the rank is on, from about the time when
the job stood still.  Which error is one, the alerts of `alerts/` say, by their own thresholds.
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
"""How long before the job stood still the error may have begun.  One that the job had lived with
for longer explains nothing."""
LOST_SECONDS = 300.0
"""How long a node must not answer, as Slurm waits (SlurmdTimeout): a virtual machine that moves to
another host comes back."""
LASTS_SECONDS = 3600.0
"""How long after the verdict it may be acted on."""
MOST_NODES = 2
"""An error that more nodes show at once, which is of no one GPU, is a switch's, a server's or a
power supply's."""
MOST = 16
"""Proposals of one job."""
_LONGEST = 300

SURE, LIKELY = "sure", "likely"


@dataclass(frozen=True, slots=True)
class Kind:
    """What an alert says of hardware."""

    component: str
    """`GPU`, `NVSwitch`, `NIC`, `Disk` or `Node`."""
    words: str
    slows: bool = False
    """Whether it makes a GPU slow, and stops nobody: then the proposal is only likely."""


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
"""What bears witness, by alert, the plainest first.  The last is no alert: the verdict saw it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An error of hardware."""

    cluster: str
    node: str
    alert: str
    uuid: str
    """Of the GPU; empty of what is not of one GPU."""
    time: float
    """When it began, or was last seen; Unix seconds."""
    code: str = ""
    """The XID."""

    @property
    def words(self) -> str:
        """What it is."""
        words = WITNESSES[self.alert].words
        return words % (self.code or "of a critical kind") if "%s" in words else words


@dataclass(frozen=True, slots=True)
class Proposal:
    """Takes one node out, with the proof."""

    cluster: str
    job_id: str
    node: str
    role: str
    rank: int
    uuid: str
    """Of the rank's GPU, where known."""
    evidence: str
    """What the verdict charges the rank with."""
    confidence: str
    """`sure` or `likely`; nothing acts on the latter."""
    witness: str
    """The alert: a name in `WITNESSES`."""
    code: str
    """The XID, if it is one."""
    why: str
    """Both in one sentence."""
    since: Moment
    """When the job stood still; Unix seconds, as the others."""
    time: Moment
    """When it was judged so."""
    until: Moment
    """It counts no longer than this."""

    @property
    def component(self) -> str:
        """What is broken."""
        return WITNESSES[self.witness].component


def seen(api: Queries, at: float) -> list[Seen]:
    """The errors of hardware in the alerts of the whole cluster. Raises `SourceError`.

    Each has its time: an alert since when its condition has held, an XID when it was last seen.
    """
    names = matchers(alertname=sorted(WITNESSES.keys() - {LOST_NODE}))
    firing = f'ALERTS{{alertstate="firing", {names}}}'
    asked = (
        f"ALERTS_FOR_STATE{{{names}}} and ignoring (alertstate) {firing} or label_replace("
        f'gpu_xid_last_timestamp_seconds{{severity="critical"}}, "alertname", "{XID}", "", "")'
    )
    return [_seen(one) for one in api.query(asked, at)]


def _seen(one: Series) -> Seen:
    alert, get = one.labels["alertname"], one.labels.get
    node = get("node") or get("instance", "")
    return Seen(get("cluster", ""), node, alert, get("uuid", ""), one.value, get("xid", ""))


def proposals(
    key: JobKey, states: Sequence[State], errors: Sequence[Seen], at: float
) -> tuple[Proposal, ...]:
    """What is proposed for a job that was judged at a Unix time, the plainest witness of each."""
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


def _witness(cluster: str, charge: Charge, errors: Sequence[Seen], since: float) -> Seen | None:
    rank = charge.rank
    if charge.evidence == "node_lost":
        lasts = (rank.left_seconds or 0.0) >= LOST_SECONDS
        return Seen(cluster, rank.node, LOST_NODE, "", since) if lasts else None
    if charge.evidence == "device_lost":
        return Seen(cluster, rank.node, LOST_GPU, rank.gpu, since)
    new = [one for one in errors if one.cluster == cluster and one.time >= since - BEFORE_SECONDS]
    mine = [one for one in new if one.node == rank.node and _is_of(one, rank.gpu, new)]
    order = list(WITNESSES)
    return min(mine, key=lambda one: (order.index(one.alert), -one.time), default=None)


def _is_of(one: Seen, uuid: str, errors: Sequence[Seen]) -> bool:
    """Whether it is of that GPU; or of its node, and of few others."""
    if WITNESSES[one.alert].component == "GPU":
        return bool(uuid) and uuid == one.uuid
    return len({other.node for other in errors if other.alert == one.alert}) <= MOST_NODES


def _proposal(key: JobKey, charge: Charge, witness: Seen, since: float, at: float) -> Proposal:
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
        until=at + LASTS_SECONDS,
    )


def read(content: Any) -> Proposal:
    """The proposal of a case.  Raises one of `BROKEN`."""
    found: Proposal = decode(Proposal, content)
    if found.witness not in WITNESSES or found.confidence not in (SURE, LIKELY):
        raise ValueError(f"nothing bears witness by the name {found.witness!r:.40}")
    return found
