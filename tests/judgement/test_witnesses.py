"""What stands beside a slow rank: asked of a Prometheus, on either side of each threshold."""

from __future__ import annotations

from pathlib import Path

from stagewatch.judgement.slow_watch import SlowWatch
from stagewatch.judgement.witnesses import WITNESSES, with_value
from tests.alerts.promtool import needs_promtool, series
from tests.dashboards.boards import ROOT
from tests.judgement.promtool_queries import PromtoolQueries
from tests.judgement.slow_series import TICK, MadeUp

TICKS = 24


def job() -> MadeUp:
    """Rank 3, alone on its node, works half as long again as its peers."""
    made = MadeUp(4, TICKS, lambda rank: f"n{rank // 3 + 1}")
    made.works(lambda rank, tick: 13.5 if rank == 3 else 9.0)
    for rank in range(4):
        node = made.node(rank)
        who = {"cluster": "c", "node": node, "job_id": "7", "role": "train", "rank": rank}
        made.given[series("rl_rank_info", **who, uuid=f"GPU-{rank}")] = f"1x{TICKS}"
    return made


def fill(made: MadeUp, beyond: float) -> None:
    """Everything that a witness is made of; by `beyond` times what is just worth telling."""
    node = {"cluster": "c", "node": "n2"}
    slow = {**node, "job_id": "7", "role": "train", "rank": 3}
    by_tick = TICK * beyond

    def grows(name: str, more: float, **labels: object) -> None:
        made.given[series(name, **labels)] = f"0+{more:.6g}x{TICKS}"

    def stays(metric: str, value: float, **labels: object) -> None:
        made.given[series(metric, **labels)] = f"{value:.6g}x{TICKS}"

    grows("rl_rank_run_queue_seconds_total", 0.02 * by_tick, **slow)
    grows("rl_rank_cgroup_throttled_seconds_total", 0.02 * by_tick, **slow)
    grows("rl_rank_block_io_delay_seconds_total", 0.02 * by_tick, **slow)
    grows("rl_rank_data_wait_seconds_total", 0.02 * by_tick, **slow)
    grows("rl_rank_major_page_faults_total", 100 * by_tick, **slow)
    grows("rl_rank_tcp_retransmissions_total", beyond, **slow)
    grows("rl_rank_tcp_data_segments_total", 100, **slow)
    stays("rl_rank_swapped_memory_bytes", 2 * beyond, **slow)
    stays("rl_rank_resident_memory_bytes", 100 - 2 * beyond, **slow)
    grows("rl_rank_nccl_compared_total", 100, **slow, communicator="world")
    grows("rl_rank_nccl_last_total", 50 * beyond, **slow, communicator="world")
    grows("rl_rank_nccl_last_seconds_total", 0.4 * beyond, **slow, communicator="world")
    grows("node_cpu_seconds_total", 0.02 * by_tick, **node, cpu=0, mode="steal")
    grows("os_numa_pages_total", 10 * beyond, **node, place="other")
    grows("os_numa_pages_total", 100 - 10 * beyond, **node, place="local")
    gpu = {**node, "uuid": "GPU-3", "mig": ""}
    grows("gpu_throttle_seconds_total", 0.02 * by_tick, **gpu, reason="hw_power_brake")
    grows("gpu_throttle_seconds_total", 0.01 * by_tick, **gpu, reason="sw_power_cap")
    grows("gpu_nvlink_errors_total", 2.5 * beyond, **gpu, kind="replay")
    grows("gpu_pcie_replays_total", 2.5 * beyond, **gpu)
    mended = {"memory": "dram", "kind": "corrected", "scope": "volatile"}
    grows("gpu_ecc_errors_total", 1 if beyond > 1 else 0, **gpu, **mended)
    stays("gpu_pcie_link_width", 8 if beyond > 1 else 16, **gpu)
    stays("gpu_pcie_link_width_max", 16, **gpu)
    for rank in range(4):
        own = beyond if rank == 3 else 0.0
        where = {"cluster": "c", "node": made.node(rank), "uuid": f"GPU-{rank}", "mig": ""}
        peer = {**where, "job_id": "7", "role": "train", "rank": rank, "communicator": "world"}
        told = {name: peer[name] for name in peer if name not in ("uuid", "mig")}
        stays("rl_rank_nccl_operation_seconds", 1 - 0.2 * own, **told, op="AllReduce", size="1-2MB")
        measured = {name: told[name] for name in told if name != "communicator"}
        measured |= {"name": "optimizer_device_seconds"}
        stays("rl_scalar", 0.2 * (1 + 0.05 * own), **measured)
        stays("gpu_clock_hertz", 1e9 * (1 - 0.05 * own), **where, domain="sm")
        stays("gpu_temperature_celsius", 60 + 8 * own, **where)
        stays("gpu_sm_active_ratio", 0.5 + 0.05 * own, **where)
        stays("gpu_tensor_active_ratio", 0.5 - 0.05 * own, **where)
    for name, rtt in (("n1", 1.0), ("n2", 2.0 * beyond)):
        reads = {"cluster": "c", "node": name, "mount": "/data", "op": "READ"}
        grows("nfs_operation_rtt_seconds_total", rtt, **reads)
        grows("nfs_operations_total", 1000, **reads)


@needs_promtool
def test_each_is_told_beside_a_slow_rank_from_its_threshold_on(tmp_path: Path) -> None:
    told = {}
    for beyond in (0.9, 1.1):
        made = job()
        fill(made, beyond)
        api = PromtoolQueries(tmp_path, ["slow.rules.yaml"], made.given)

        def questions(api: PromtoolQueries = api) -> list[tuple[str, str]]:
            watch = SlowWatch(api)
            slow = watch.look(float(TICKS * TICK)).ranks.values()
            return [
                (each.witness, with_value(each.words, each.value))
                for one in slow
                for each in one.witnesses
            ]

        told[beyond] = dict(api.ask(questions))
    assert told[0.9] == {}
    less = {"gpu_sm_less", "gpu_tensor_more"}
    assert list(told[1.1]) == [one.name for one in WITNESSES if one.name not in less]
    assert told[1.1]["core_wait"] == "Its threads wait for a core 2.2% of the time."
    assert told[1.1]["gpu_throttled"].endswith("2.2% of the time (hw power brake).")
    assert told[1.1]["gpu_clock_below"] == "That is 55 MHz below."
    assert told[1.1]["nccl_last_by"] == "That is 8.0 ms after the others."
    assert told[1.1]["nfs_read"].startswith("NFS reads take 220% of the time")


def test_what_is_said_is_a_sentence() -> None:
    for witness in WITNESSES:
        text = with_value(witness.sentence("hw_slowdown"), 0.5)
        assert text.endswith(".") and "%s" not in text and "REASON" not in text


def test_they_are_told_in_the_order_of_their_names() -> None:
    """Which is how an alert's template sorts them."""
    names = [one.name for one in WITNESSES]
    assert names == sorted(set(names))


def test_the_page_on_slow_ranks_has_all_of_them() -> None:
    text = (ROOT / "docs" / "slow-ranks.md").read_text()
    assert [one.name for one in WITNESSES if f"`{one.name}`" not in text] == []
