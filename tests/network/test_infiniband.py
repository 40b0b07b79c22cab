"""RDMA ports of several makes, as their drivers show them in sysfs."""

from __future__ import annotations

from pathlib import Path

from stagewatch.network import infiniband
from stagewatch.network.infiniband import InfinibandCollector

GBIT = 1e9 / 8


def port(
    sys: Path,
    device: str,
    *,
    number: int = 1,
    layer: str = "InfiniBand",
    state: str = "4: ACTIVE",
    physical: str = "5: LinkUp",
    speed: str = "400 Gb/sec (4X NDR)",
    driver: str = "mlx5_core",
    board: str = "MT_0000000838",
    counters: dict[str, object] | None = None,
    hardware: dict[str, object] | None = None,
) -> None:
    root = sys / "class" / "infiniband" / device
    place = root / "ports" / str(number)
    files = {"state": state, "phys_state": physical, "rate": speed, "link_layer": layer}
    for name, value in files.items():
        write(place / name, value)
    for name, value in {"hca_type": "MT4129", "board_id": board}.items():
        if driver == "mlx5_core":
            write(root / name, value)
    (root / "device").mkdir(exist_ok=True)
    if not (root / "device" / "driver").is_symlink():
        (root / "device" / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    for name, number_ in (counters or {}).items():
        write(place / "counters" / name, number_)
    for name, number_ in (hardware or {}).items():
        write(place / "hw_counters" / name, number_)


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


INFINIBAND = {
    "port_xmit_data": 1000,
    "port_rcv_data": 2000,
    "symbol_error": 7,
    "link_downed": 2,
    "link_error_recovery": 1,
    "port_xmit_wait": 99,
    "VL15_dropped": "N/A (no PMA)",
}
ROCE = {
    "out_of_sequence": 3,
    "local_ack_timeout_err": 5,
    "np_cnp_sent": 6,
    "np_ecn_marked_roce_packets": 8,
    "lifespan": 10,
}
EFA = {"tx_bytes": 500, "rx_bytes": 600, "rx_drops": 1, "retrans_timeout_events": 3}


def test_infiniband_counters(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", counters=INFINIBAND)
    out = InfinibandCollector(tmp_path).collect()
    at = ("mlx5_0", "1")
    assert out.value(infiniband.BYTES, *at, "sent") == 4000, "counted in words of four bytes"
    assert out.value(infiniband.BYTES, *at, "received") == 8000
    assert out.value(infiniband.DOWNS, *at) == 2
    assert out.value(infiniband.CONGESTION, *at, "port_xmit_wait") == 99
    errors = {name: count for (*_, name), count in out.families[infiniband.ERRORS].items()}
    assert errors == {"symbol_error": 7, "link_error_recovery": 1}, "N/A is absent"
    assert out.value(infiniband.STATE, *at, "active") == 1
    assert out.value(infiniband.RATE, *at) == 400 * GBIT


def test_roce_congestion_and_loss(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_2", layer="Ethernet", hardware=ROCE)
    out = InfinibandCollector(tmp_path).collect()
    kinds = {name for *_, name in out.families[infiniband.CONGESTION]}
    assert kinds == {"np_cnp_sent", "np_ecn_marked_roce_packets"}
    errors = {name for *_, name in out.families[infiniband.ERRORS]}
    assert errors == {"out_of_sequence", "local_ack_timeout_err"}


def test_efa_counts_in_bytes(tmp_path: Path) -> None:
    port(tmp_path, "rdmap0s6", layer="Unspecified", driver="efa", board="", hardware=EFA)
    out = InfinibandCollector(tmp_path).collect()
    at = ("rdmap0s6", "1")
    assert out.value(infiniband.BYTES, *at, "sent") == 500
    errors = {name for *_, name in out.families[infiniband.ERRORS]}
    assert errors == {"rx_drops", "retrans_timeout_events"}


def test_a_flap_is_counted_also_where_the_hardware_does_not(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    collector = InfinibandCollector(tmp_path)
    assert collector.collect().value(infiniband.CHANGES, "mlx5_0", "1") == 0
    port(tmp_path, "mlx5_0", state="1: DOWN", physical="2: Polling", speed="10 Gb/sec (4X SDR)")
    out = collector.collect()
    assert out.value(infiniband.CHANGES, "mlx5_0", "1") == 1
    assert out.value(infiniband.STATE, "mlx5_0", "1", "down") == 1
    assert out.value(infiniband.STATE, "mlx5_0", "1", "active") is None
    assert out.value(infiniband.EXPECTED, "mlx5_0", "1") == 400 * GBIT, "what it had before"
    port(tmp_path, "mlx5_0")
    assert collector.collect().value(infiniband.CHANGES, "mlx5_0", "1") == 2
