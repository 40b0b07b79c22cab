"""Reservations and licences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData, StagewatchError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.slurm.cluster import Source, records_of
from stagewatch.slurm.context import SlurmContext
from stagewatch.slurm.model import License, Node, Records, Reservation
from stagewatch.slurm.notation import expand_or_none

NODES = Metric(
    "slurm_reservation_nodes", "gauge", "Nodes of a reservation.", ("reservation", "state")
)
GPUS = Metric(
    "slurm_reservation_gpus",
    "gauge",
    "GPUs in the nodes of a reservation, by type.",
    ("reservation", "gpu_type"),
)
START = Metric(
    "slurm_reservation_start_timestamp_seconds",
    "gauge",
    "When a reservation begins, as Unix time.",
    ("reservation",),
)
END = Metric(
    "slurm_reservation_end_timestamp_seconds",
    "gauge",
    "When a reservation ends, as Unix time.",
    ("reservation",),
)
FLAG = Metric(
    "slurm_reservation_flag",
    "gauge",
    "1 for each flag of a reservation, such as MAINT.",
    ("reservation", "flag"),
)
LICENSES = Metric(
    "slurm_licenses", "gauge", "Licences by state: total, used, reserved.", ("license", "state")
)
_MOST = 500
"""Reservations and licences beyond this many are left out; sites have a few."""


class ReservationsCollector(Collector):
    """Exports reservations with their GPUs, and licences."""

    def __init__(
        self,
        reservations: Source[Records[Reservation]],
        licenses: Source[Records[License]],
        nodes: Source[Records[Node]],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._reservations = reservations
        self._licenses = licenses
        self._nodes = nodes
        self._wall = wall

    def collect(self) -> Samples:
        """Read reservations and licences; one of the two is enough."""
        out = Samples()
        errors: list[StagewatchError] = []
        try:
            reservations = self._reservations.refresh().items
            _reservations(out, reservations, records_of(self._nodes.keep_fresh()), self._wall())
        except StagewatchError as error:
            errors.append(error)
        try:
            for license in self._licenses.refresh().items[:_MOST]:
                out.add(LICENSES, license.total, license.name, "total")
                out.add(LICENSES, license.used, license.name, "used")
                out.add(LICENSES, license.reserved, license.name, "reserved")
        except StagewatchError as error:
            errors.append(error)
        failures = [error for error in errors if not isinstance(error, NoData)]
        if failures and not out.families:
            raise failures[0]
        if len(errors) == 2:
            raise errors[0]
        return out


def _reservations(
    out: Samples, reservations: Iterable[Reservation], nodes: Iterable[Node], now: float
) -> None:
    gpus = {node.name: node.gpus for node in nodes}
    for reservation in tuple(reservations)[:_MOST]:
        out.add(NODES, reservation.nodes, reservation.name, _state(reservation, now))
        out.add(START, reservation.start, reservation.name)
        out.add(END, reservation.end, reservation.name)
        for flag in reservation.flags:
            out.add(FLAG, 1, reservation.name, flag)
        counts: dict[str, int] = {}
        for name in expand_or_none(reservation.node_list):
            for held in gpus.get(name, ()):
                kind = held.type or "untyped"
                counts[kind] = counts.get(kind, 0) + held.configured
        for kind, number in counts.items():
            out.add(GPUS, number, reservation.name, kind)


def _state(reservation: Reservation, now: float) -> str:
    """ACTIVE between its times, as scontrol tells it (src/api/reservation_info.c)."""
    if reservation.start is None or reservation.end is None:
        return "UNKNOWN"
    return "ACTIVE" if reservation.start <= now <= reservation.end else "INACTIVE"


def _build(options: NoOptions, context: SlurmContext) -> Collector:
    return ReservationsCollector(
        context.cluster.reservations, context.cluster.licenses, context.cluster.nodes
    )


SPEC = CollectorSpec(
    name="slurm_reservations",
    help="reservations and licences (scontrol show reservations, licenses)",
    interval=15,
    options=NoOptions,
    build=_build,
)
