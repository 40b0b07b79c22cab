"""The controller: whether it answers, how busy it is, and who keeps it busy."""

from __future__ import annotations

from collections.abc import Iterable

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData, StagewatchError
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.slurm.cluster import Source
from stagewatch.slurm.context import SlurmContext
from stagewatch.slurm.model import Controller, Diagnostics, RpcCount

UP = gauge("slurm_controller_up", "1 if this slurmctld answers a ping.", ("host", "role"))
RPCS = counter(
    "slurm_controller_rpcs_total",
    "Requests by message type; Slurm resets its counts every midnight UTC.",
    ("type",),
)
RPC_SECONDS = counter(
    "slurm_controller_rpc_seconds_total",
    "Time spent on requests, by message type: it shows what keeps the controller busy.",
    ("type",),
)
USER_RPCS = counter(
    "slurm_controller_user_rpcs_total",
    "Requests by user, for the users who take most of the controller's time; the rest is other.",
    ("user",),
)
USER_RPC_SECONDS = counter(
    "slurm_controller_user_rpc_seconds_total",
    "Time spent on requests, by user, as in the count: it shows who keeps the controller busy.",
    ("user",),
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
"""What is exported of the diagnostics, by its name there."""


class ControllerCollector(Collector):
    """Exports the controller's diagnostics and pings."""

    def __init__(
        self,
        diagnostics: Source[Diagnostics],
        ping: Source[tuple[Controller, ...]],
        *,
        top: int = 10,
    ) -> None:
        self._diagnostics = diagnostics
        self._ping = ping
        self._top = top

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
            _diagnostics(out, self._diagnostics.refresh(), self._top)
        except StagewatchError as error:
            errors.append(error)
        failures = [error for error in errors if not isinstance(error, NoData)]
        if not out.families:
            raise failures[0] if failures else NoData("the controller has not been asked yet")
        return out


def _none_answers(ping: Source[tuple[Controller, ...]]) -> tuple[Controller, ...]:
    """While pings fail: the controllers of the last good ping, all shown as down."""
    if ping.reading is None or ping.status().success:
        return ()
    return tuple(
        Controller(controller.host, controller.role, up=False) for controller in ping.reading.data
    )


def _diagnostics(out: Samples, diagnostics: Diagnostics, top: int) -> None:
    for key, metric in VALUES.items():
        out.add(metric, diagnostics.values.get(key))
    for rpc in diagnostics.by_type:
        out.add(RPCS, rpc.count, rpc.name)
        out.add(RPC_SECONDS, rpc.seconds, rpc.name)
    for rpc in fold(diagnostics.by_user, top):
        out.add(USER_RPCS, rpc.count, rpc.name)
        out.add(USER_RPC_SECONDS, rpc.seconds, rpc.name)


def fold(users: Iterable[RpcCount], top: int) -> list[RpcCount]:
    """Keep the `top` users by time, and add up the others in one record."""
    ranked = sorted(users, key=lambda user: (-user.seconds, user.name))
    rest = ranked[top:]
    if not rest:
        return ranked
    other = RpcCount("other", sum(u.count for u in rest), sum(u.seconds for u in rest))
    return [*ranked[:top], other]


def _build(options: NoOptions, context: SlurmContext) -> Collector:
    return ControllerCollector(context.cluster.diagnostics, context.cluster.ping)


SPEC = CollectorSpec(
    name="slurm_controller",
    help="the controller's scheduler, requests and queues (sdiag, scontrol ping)",
    interval=15,
    options=NoOptions,
    build=_build,
)
