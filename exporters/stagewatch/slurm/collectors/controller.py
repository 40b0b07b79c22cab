"""The controller: whether it answers, and how busy it is."""

from __future__ import annotations

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData, StagewatchError
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.slurm.cluster import Source
from stagewatch.slurm.model import Controller, Diagnostics

UP = gauge("slurm_controller_up", "1 if this slurmctld answers a ping.", ("host", "role"))
RPCS = counter(
    "slurm_controller_rpcs_total",
    "Requests by message type; Slurm resets its counts every midnight UTC.",
    ("type",),
)
VALUES = {
    key: gauge(name, help)
    for key, name, help in (
        (
            "server_thread_count",
            "slurm_controller_server_threads",
            "Threads serving requests now; while they are at their limit, commands wait.",
        ),
        (
            "agent_queue_size",
            "slurm_controller_agent_queue",
            "Messages to nodes waiting to be sent.",
        ),
        (
            "dbd_agent_queue_size",
            "slurm_accounting_queue",
            "Records waiting to be sent to slurmdbd.",
        ),
        (
            "schedule_cycle_last",
            "slurm_scheduler_cycle_last_seconds",
            "Duration of the last main scheduling cycle.",
        ),
        (
            "bf_cycle_last",
            "slurm_backfill_cycle_last_seconds",
            "Duration of the last backfill cycle.",
        ),
    )
}
"""The exported metrics by their names in the diagnostics."""


class ControllerCollector(Collector):
    """Exports the controller's diagnostics and pings."""

    def __init__(
        self,
        diagnostics: Source[Diagnostics],
        ping: Source[tuple[Controller, ...]],
    ) -> None:
        self._diagnostics = diagnostics
        self._ping = ping

    def collect(self) -> Samples:
        """Export the pings and the diagnostics; one answer is enough."""
        out = Samples()
        errors: list[StagewatchError] = []
        try:
            controllers = self._ping.refresh()
        except StagewatchError as error:
            errors.append(error)
            controllers = _none_answers(self._ping)
        for controller in controllers:
            out.add(UP, int(controller.up), controller.host, controller.role)
        try:
            _diagnostics(out, self._diagnostics.refresh())
        except StagewatchError as error:
            errors.append(error)
        failures = [error for error in errors if not isinstance(error, NoData)]
        if not out.families:
            raise failures[0] if failures else NoData("the controller has not been asked yet")
        return out


def _none_answers(ping: Source[tuple[Controller, ...]]) -> tuple[Controller, ...]:
    """While pings fail: the controllers of the last good ping, all shown as down."""
    if ping.reading is None or ping.failure is None:
        return ()
    return tuple(
        Controller(controller.host, controller.role, up=False) for controller in ping.reading.data
    )


def _diagnostics(out: Samples, diagnostics: Diagnostics) -> None:
    for key, metric in VALUES.items():
        out.add(metric, diagnostics.values.get(key))
    out.add_all(RPCS, diagnostics.requests)


SPEC = Declaration(
    name="slurm_controller",
    help="the controller's scheduler, requests and queues (sdiag, scontrol ping)",
    interval=15,
    options=NoOptions,
)
