"""A site with dcgm-exporter: its exposition, scraped by a real Prometheus, under our names."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.gpu.collector import INFO, UP
from stagewatch.gpu.readings import GPU, METRICS
from tests.deploy.store import Pages, Prometheus
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
EXPOSITIONS = ROOT / "tests/fixtures/dcgm"
RULES = ROOT / "alerts/dcgm.rules.yaml"
NODES = {"gpu-node-7", "gpu-node-8"}
UUID = "GPU-dc900000-0000-4000-8000-00000000000"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Has scraped the expositions and evaluated the rules."""
    exporter = Pages({f"/{file.name}": file.read_text for file in EXPOSITIONS.glob("*.prom")})
    labels = {"cluster": "lab"}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": file.stem,
                "metrics_path": f"/{file.name}",
                "static_configs": [{"targets": [exporter.address], "labels": labels}],
            }
            for file in EXPOSITIONS.glob("*.prom")
        ],
    }
    with Children() as children, contextlib.closing(exporter):
        directory = tmp_path_factory.mktemp("dcgm") / "prometheus"
        found = Prometheus(children, directory, json.dumps(config))
        for last in (  # of each group
            *(f'gpu_info{{node="{node}"}}' for node in NODES),
            "gpu_xid_last_timestamp_seconds",
        ):
            evaluated = f"count_over_time({last}[1m]) > 2"
            wait_for(lambda query=evaluated: found.query(query), "the rules are evaluated")
        yield found


def value(prometheus: Prometheus, expression: str) -> float:
    """The value of the only series."""
    (found,) = prometheus.query(expression)
    return float(found["value"][1])


READINGS = [
    (f'gpu_temperature_celsius{{uuid="{UUID}0"}}', 71),
    (f'gpu_power_watts{{uuid="{UUID}0"}}', 512.345),
    (f'gpu_energy_joules_total{{uuid="{UUID}0"}}', 123456789),
    (f'gpu_utilization_ratio{{uuid="{UUID}0"}}', 0.97),
    (f'gpu_memory_total_bytes{{uuid="{UUID}0"}}', (60441 + 20559 + 559) * 2**20),
    (f'gpu_memory_total_bytes{{uuid="{UUID}2",mig="9"}}', (1024 + 8704) * 2**20),
    (f'gpu_clock_hertz{{uuid="{UUID}0",domain="sm"}}', 1.755e9),
    (f'gpu_sm_active_ratio{{uuid="{UUID}0"}}', 0.941),
    (f'gpu_pcie_throughput_bytes_per_second{{uuid="{UUID}0",direction="tx"}}', 1572864000),
    (f'gpu_nvlink_errors_total{{uuid="{UUID}0",kind="crc_flit"}}', 5),
    (f'gpu_ecc_errors_total{{uuid="{UUID}0",memory="all",kind="uncorrected",scope="volatile"}}', 1),
    (f'gpu_remapped_rows{{uuid="{UUID}0",kind="corrected"}}', 2),
    (f'gpu_throttle_active{{uuid="{UUID}0",reason="hw_thermal"}}', 1),
    (f'gpu_info{{uuid="{UUID}0",type="h100",minor="0",driver="550.90.07",source="dcgm"}}', 1),
    # In Kubernetes: further labels, some of which come and go.
    (f'gpu_temperature_celsius{{uuid="{UUID}9"}}', 57),
    (f'gpu_energy_joules_total{{uuid="{UUID}9"}}', 987654.321),
    (f'gpu_pcie_throughput_bytes_per_second{{uuid="{UUID}9",direction="rx"}}', 25000000),
    (f'gpu_remap_failed{{uuid="{UUID}9"}}', 0),
    (f'gpu_info{{uuid="{UUID}9",type="l40s",driver="570.00.00",source="dcgm"}}', 1),
]


def test_every_reading_has_our_name_and_base_unit(prometheus: Prometheus) -> None:
    found = {expression: value(prometheus, expression) for expression, _ in READINGS}
    assert found == pytest.approx(dict(READINGS))


def test_recorded_series_carry_our_labels_and_no_others(prometheus: Prometheus) -> None:
    recorded = prometheus.query('{__name__=~"gpu_.+"}')
    assert len({series["metric"]["__name__"] for series in recorded}) > 25
    for series in recorded:
        labels = dict(series["metric"])
        name = labels.pop("__name__")
        assert labels["cluster"] == "lab"
        assert labels["node"] in NODES
        if name.startswith("gpu_xid"):
            continue
        metric = {"gpu_info": INFO, "gpu_up": UP}.get(name) or METRICS[name]
        assert set(labels) - {"cluster", "node"} <= set(metric.labels), name
        assert {"gpu", "uuid"} | set(metric.labels[3:]) <= set(labels) | set(INFO.labels), name
        assert metric.labels[:3] == GPU


def test_blank_is_absent(prometheus: Prometheus) -> None:
    assert prometheus.query(f'gpu_sm_active_ratio{{uuid="{UUID}1"}}') == []


def test_xid_has_its_severity_and_a_time(prometheus: Prometheus) -> None:
    (found,) = prometheus.query("gpu_xid_last_timestamp_seconds")
    labels = found["metric"]
    assert (labels["uuid"], labels["xid"], labels["severity"]) == (UUID + "1", "79", "critical")
    assert value(prometheus, "time() - gpu_xid_last_timestamp_seconds") < 3600
