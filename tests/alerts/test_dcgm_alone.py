"""A site whose GPUs only dcgm-exporter reads: alerts and panels, for each of its releases.

docs/gpu.md lists those that cannot; the tests hold the page to it.
"""

from __future__ import annotations

import re
from pathlib import Path

from stagewatch.gpu.model_names import gpu_type
from stagewatch.gpu.xids import catalogue
from tests.alerts.courses import Case, play_together
from tests.alerts.dcgm_series import RELEASES, Release, gpu
from tests.alerts.promtool import needs_promtool, series
from tests.alerts.rule_files import every_rule
from tests.dashboards.boards import NAMES, ROOT, Query, panel_queries

RULES = ("limits.rules.yaml", "dcgm.rules.yaml", "gpu.rules.yaml", "jobs.rules.yaml")
PAGE = (ROOT / "docs/gpu.md").read_text()
pytestmark = needs_promtool
Expected = list[tuple[str, str, dict[str, float]]]

HEALTHY = {
    "DEV_SM_CLOCK": "1755x400",
    "DEV_MEM_CLOCK": "2619x400",
    "DEV_GPU_TEMP": "61x400",
    "DEV_MEMORY_TEMP": "66x400",
    "DEV_SLOWDOWN_TEMP": "88x400",
    "DEV_POWER_USAGE": "300x400",
    "DEV_ENFORCED_POWER_LIMIT": "700x400",
    "DEV_TOTAL_ENERGY_CONSUMPTION": "1000+30000x400",
    "DEV_GPU_UTIL": "97x400",
    "DEV_MEM_COPY_UTIL": "41x400",
    "DEV_ENC_UTIL": "1x400",
    "DEV_DEC_UTIL": "2x400",
    "DEV_FB_FREE": "20559x400",
    "DEV_FB_USED": "60441x400",
    "DEV_FB_RESERVED": "559x400",
    "DEV_PCIE_REPLAY_COUNTER": "3x400",
    "DEV_PCIE_LINK_WIDTH": "16x400",
    "DEV_PCIE_MAX_LINK_WIDTH": "16x400",
    "DEV_PCIE_LINK_GEN": "5x400",
    "DEV_PCIE_MAX_LINK_GEN": "5x400",
    "DEV_XID_ERRORS": "0x400",
    "DEV_CORRECTABLE_REMAPPED_ROWS": "0x400",
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": "0x400",
    "DEV_ROW_REMAP_FAILURE": "0x400",
    "DEV_ROW_REMAP_PENDING": "0x400",
    "DEV_THRESHOLD_SRM": "0x400",
    "DEV_ECC_DBE_VOL_TOTAL": "0x400",
    "DEV_CLOCKS_EVENT_REASONS": "0x400",
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "0x400",
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "0x400",
    "PROF_GR_ENGINE_ACTIVE": "0.98x400",
    "PROF_SM_ACTIVE": "0.94x400",
    "PROF_PIPE_TENSOR_ACTIVE": "0.57x400",
    "PROF_DRAM_ACTIVE": "0.55x400",
    "PROF_PCIE_TX_BYTES": "1572864000x400",
    "PROF_PCIE_RX_BYTES": "786432000x400",
    "PROF_NVLINK_TX_BYTES": "100000x400",
    "PROF_NVLINK_RX_BYTES": "200000x400",
}

SICK: dict[str, dict[str, str]] = {
    "GPUTemperatureHigh": {"DEV_GPU_TEMP": "86x400", "DEV_SLOWDOWN_TEMP": "95x400"},
    "GPUNearSlowdown": {"DEV_GPU_TEMP": "85x400"},
    "GPUMemoryTemperatureHigh": {"DEV_MEMORY_TEMP": "96x400"},
    "GPUThrottledByHeat": {"DEV_CLOCKS_EVENT_REASONS": "64x400"},
    "GPUThrottledByPowerBrake": {"DEV_CLOCKS_EVENT_REASONS": "128x400"},
    "GPUXidCritical": {"DEV_XID_ERRORS": "0x10 109x390"},
    "GPUXidWarning": {"DEV_XID_ERRORS": "0x10 94x390"},
    "GPUUncorrectableECC": {"DEV_ECC_DBE_VOL_TOTAL": "1x400"},
    "GPUSramErrorsBeyondLimit": {"DEV_THRESHOLD_SRM": "1x400"},
    "GPURowRemapPending": {"DEV_ROW_REMAP_PENDING": "1x400"},
    "GPURowRemapFailed": {"DEV_ROW_REMAP_FAILURE": "1x400"},
    "GPUPCIeDegraded": {"DEV_PCIE_LINK_WIDTH": "8x400"},
    "GPUNVLinkErrors": {"DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "0+10x400"},
}


def firing(name: str) -> str:
    return f'sum by (alertname, gpu, node) (ALERTS{{alertstate="firing", alertname="{name}"}})'


def cannot(heading: str) -> set[str]:
    """What the page lists below a line, by the names in backticks of its items."""
    part = PAGE.partition(heading)[2].partition("\n\n")[2].partition("\n\n")[0]
    return set(re.findall(r"`([^`]+)`", part))


def each_alert_fires_for_its_sick_gpu_alone(release: Release) -> Case:
    given: dict[str, str] = {}
    samples = {}
    for alert, sick in SICK.items():
        given |= gpu(release, 0, HEALTHY, node=alert)
        given |= gpu(release, 1, HEALTHY | sick, node=alert)
        samples[f'{{alertname="{alert}", gpu="1", node="{alert}"}}'] = 1.0
    fired = 'sum by (alertname, gpu, node) (ALERTS{alertstate="firing"})'
    return Case(given, [(fired, "25m", samples)])


def no_alert_fires_for_healthy_gpus(release: Release) -> Case:
    given = gpu(release, 0, HEALTHY) | gpu(release, 1, HEALTHY)
    return Case(given, [("ALERTS", "25m", {})])


def a_gpu_that_is_gone_while_its_neighbour_answers_is_lost(release: Release) -> Case:
    gone = {name: values.replace("x400", "x20") for name, values in HEALTHY.items()}
    slurm = {series("slurm_node_gpus", node="n1", cluster="c", model="h100"): "2x400"}
    expected: Expected = [
        (firing("GPULost"), "10m", {}),
        (firing("GPULost"), "20m", {'{alertname="GPULost", gpu="1", node="n1"}': 1.0}),
        (
            firing("GPUCountBelowConfigured"),
            "25m",
            {'{alertname="GPUCountBelowConfigured", node="n1"}': 1.0},
        ),
    ]
    given = gpu(release, 0, HEALTHY) | gpu(release, 1, gone) | slurm
    return Case(given, expected)


def an_exporter_that_is_gone_loses_no_gpu() -> Case:
    gone = {name: values.replace("x400", "x20") for name, values in HEALTHY.items()}
    given = gpu(RELEASES[0], 0, gone) | gpu(RELEASES[0], 1, gone)
    return Case(given, [("gpu_up", "20m", {}), ("ALERTS", "20m", {})])


def test_every_alert_on_gpus_is_proven_or_listed_as_one_that_cannot_work() -> None:
    alerts = {rule.name for rule in every_rule() if rule.file == "gpu.rules.yaml"}
    alerts = {name for name in alerts if name.startswith("GPU")}
    proven = {*SICK, "GPULost", "GPUCountBelowConfigured"}
    assert alerts - proven == cannot("These alerts cannot")
    assert not proven & cannot("These alerts cannot")


def units_are_ours(release: Release) -> Case:
    at = 'cluster="c", node="n1", gpu="0", uuid="GPU-0"'
    expected = {
        f"gpu_clock_hertz{{{at}, domain='sm'}}": 1.755e9,
        f"gpu_utilization_ratio{{{at}}}": 0.97,
        f"gpu_memory_used_bytes{{{at}}}": 60441 * 2**20,
        f"gpu_memory_reserved_bytes{{{at}}}": 559 * 2**20,
        f"gpu_memory_total_bytes{{{at}}}": (60441 + 20559 + 559) * 2**20,
        f"gpu_power_watts{{{at}}}": 300,
        f"gpu_power_limit_watts{{{at}}}": 700,
        f"gpu_pcie_replays_total{{{at}}}": 3,
    }
    checks = [(f"round({name}, 0.0001) == {value!r}", value) for name, value in expected.items()]
    checks.append((f"round(rate(gpu_energy_joules_total{{{at}}}[1m]), 0.001)", 1.0))
    labels = f"{{{at}}}"
    clock = f'{{{at}, domain="sm"}}'
    return Case(
        gpu(release, 0, HEALTHY),
        [
            (check, "10m", {clock if "domain" in check else labels: float(value)})
            for check, value in checks
        ],
    )


def nanoseconds_of_throttling_become_seconds_and_ring_the_same_bell() -> Case:
    hot = {"DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": "0+6000000000x400"}
    given = gpu(RELEASES[0], 1, HEALTHY | hot)
    alert = "GPUThrottledByHeat"
    expected: Expected = [
        ("sum by (reason) (rate(gpu_throttle_seconds_total[5m]))", "20m",
         {'{reason="hw_thermal"}': 0.2}),
        (firing(alert), "20m", {f'{{alertname="{alert}", gpu="1", node="n1"}}': 1.0}),
    ]  # fmt: skip
    return Case(given, expected)


def mig_readings_of_the_whole_gpu_count_once_and_those_of_instances_add_up(
    release: Release,
) -> Case:
    fields = HEALTHY | {"DEV_FB_USED": "1000x400", "DEV_FB_FREE": "9000x400"}
    given = gpu(release, 0, fields, instances=("1", "2", "5"))
    at = '{cluster="c", node="n1", gpu="0", uuid="GPU-0"}'
    expected = [
        ("sum by (cluster) (gpu_power_watts)", {'{cluster="c"}': 300.0}),
        ("count(gpu_temperature_celsius) by (gpu)", {'{gpu="0"}': 1.0}),
        ('gpu_power_watts{mig=""} * 1', {at: 300.0}),
        ('gpu_memory_used_bytes{mig=""} * 1', {at: 3 * 1000.0 * 2**20}),
        ('count by (gpu) (gpu_sm_active_ratio{mig!=""})', {'{gpu="0"}': 3.0}),
        ('count by (gpu) (gpu_info{mig!=""})', {'{gpu="0"}': 3.0}),
        ('count by (gpu, type) (gpu_info{mig=""})', {'{gpu="0", type="h100"}': 1.0}),
        ("count by (gpu) (gpu_up)", {'{gpu="0"}': 1.0}),
        ("ALERTS", {}),
    ]
    return Case(given, [(e, "20m", s) for e, s in expected])


def a_gpu_without_a_sensor_has_no_reading_and_no_limit(release: Release) -> Case:
    sensors = "DEV_MEMORY_TEMP DEV_SLOWDOWN_TEMP DEV_ENFORCED_POWER_LIMIT"
    none = dict.fromkeys(f"{sensors} DEV_PCIE_LINK_WIDTH DEV_PCIE_MAX_LINK_GEN".split(), "0x400")
    absent = (
        "gpu_memory_temperature_celsius or gpu_temperature_slowdown_celsius"
        " or gpu_power_limit_watts or gpu_pcie_link_width or gpu_pcie_link_generation_max"
    )
    expected: Expected = [(absent, "10m", {}), ("ALERTS", "20m", {})]
    return Case(gpu(release, 0, HEALTHY | none), expected)


def the_models_type_is_that_of_the_agent() -> Case:
    """Names as `nvidia-smi -L` gives them, of cards that are, and of some that are not yet."""
    models = [
        "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200",
        "NVIDIA H200 NVL", "NVIDIA H20", "NVIDIA H800", "NVIDIA GH200 480GB", "NVIDIA GB200",
        "NVIDIA GB300", "NVIDIA B200", "NVIDIA B300 SXM6 AC", "NVIDIA A100-SXM4-80GB",
        "NVIDIA A100 80GB PCIe", "NVIDIA A30", "NVIDIA A10", "NVIDIA A10G", "NVIDIA A40",
        "NVIDIA A16", "NVIDIA A2", "NVIDIA L4", "NVIDIA L40", "NVIDIA L40S", "NVIDIA L20",
        "Tesla V100-SXM2-32GB", "Tesla V100S-PCIE-32GB", "Tesla T4", "Tesla P100-PCIE-16GB",
        "Tesla P40", "Tesla K80", "NVIDIA RTX A6000", "NVIDIA RTX A5000", "NVIDIA RTX A4000",
        "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 5000 Ada Generation",
        "NVIDIA RTX 4000 SFF Ada Generation", "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA RTX PRO 4500 Blackwell", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4070 Ti SUPER", "NVIDIA GeForce RTX 3080 Ti",
        "NVIDIA GeForce GTX 1080 Ti", "NVIDIA TITAN RTX", "NVIDIA TITAN V", "Quadro RTX 6000",
        "Quadro RTX 8000", "NVIDIA-H100-80GB-HBM3", "NVIDIA R100", "NVIDIA VR200 NVL144",
        "NVIDIA B30A",
    ]  # fmt: skip
    given: dict[str, str] = {}
    for number, model in enumerate(models):
        given |= gpu(RELEASES[2], number, {"DEV_GPU_TEMP": "60x8"}, model=model)
    samples = {f'{{model="{model}", type="{gpu_type(model)}"}}': 1.0 for model in models}
    return Case(given, [("sum by (model, type) (gpu_info)", "1m", samples)])


def a_model_of_no_known_family_has_no_type_and_is_there_all_the_same() -> Case:
    models = ("NVIDIA Graphics Device", "NVIDIA RTX 9090 Turbo", "")
    given: dict[str, str] = {}
    for number, model in enumerate(models):
        given |= gpu(RELEASES[2], number, {"DEV_GPU_TEMP": "60x8"}, model=model)
    samples = {f'{{model="{model}"}}': 1.0 for model in models if model} | {"{}": 1.0}
    # At the third evaluation as at the first: the record reads what it recorded before.
    expected = [("sum by (model, type) (gpu_info)", when, samples) for when in ("1m", "3m")]
    return Case(given, expected)


def a_name_that_fits_two_families_takes_no_other_gpu_with_it() -> Case:
    given = gpu(RELEASES[2], 0, {"DEV_GPU_TEMP": "60x8"}, model="NVIDIA H100 A100")
    given |= gpu(RELEASES[2], 1, {"DEV_GPU_TEMP": "60x8"}, model="NVIDIA H200")
    expected = {'{gpu="0"}': 1.0, '{gpu="1"}': 1.0}
    return Case(given, [("count by (gpu) (gpu_info)", "1m", expected)])


def an_xid_that_no_table_has_is_a_warning_that_says_so(release: Release) -> Case:
    given = gpu(release, 0, HEALTHY | {"DEV_XID_ERRORS": "0x10 999x390"})
    found = 'sum by (xid, severity, action, meaning) (ALERTS{alertname="GPUXidWarning"})'
    labels = '{xid="999", severity="warning", action="look_up", meaning="not in the table"}'
    return Case(given, [(found, "15m", {labels: 1.0})])


def every_xid_of_the_table_has_its_severity_and_its_text() -> Case:
    given: dict[str, str] = {}
    samples = {}
    for xid, known in catalogue().items():
        given |= gpu(RELEASES[1], xid, {"DEV_XID_ERRORS": f"0x10 {xid}x90"})
        at = f'{{xid="{xid}", severity="{known.severity}", action="{known.action}", '
        samples[at + f'meaning="{known.meaning}"}}'] = 1.0
    joined = (
        "count by (xid, severity, action, meaning) (gpu_xid_last_timestamp_seconds"
        " * on (cluster, node, xid) group_left (action, meaning) gpu_xid_info)"
    )
    return Case(given, [(joined, "10m", samples)])


def a_repeated_xid_counts_where_the_exporter_counts() -> Case:
    given = gpu(RELEASES[1], 0, {"DEV_XID_ERRORS": "0x10 79x300"})
    counted = gpu(RELEASES[1], 0, {"DEV_GPU_TEMP": "60x300"}, instances=("1", "2"), xid="79")
    given |= {
        name.replace("DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_XID_ERRORS_TOTAL"): "_x5 1x20 2x200"
        for name in counted
    }
    expected = [
        ("sum by (xid, severity) (gpu_xid_errors_total)", "10m",
         {'{xid="79", severity="critical"}': 1.0}),
        ("sum by (xid, severity) (gpu_xid_errors_total)", "20m",
         {'{xid="79", severity="critical"}': 2.0}),
        ("time() - max by (xid) (gpu_xid_last_timestamp_seconds) < bool 900", "20m",
         {'{xid="79"}': 1.0}),
    ]  # fmt: skip
    return Case(given, expected)


def gpu_panels() -> list[Query]:
    queries = [query for name in NAMES for query in panel_queries(name)]
    return [query for query in queries if re.search(r"(?<![\w:])gpu[_:][\w:]+[{\[]", query.expr)]


def panels_have_data(release: Release) -> Case:
    """All but those that the page lists; Slurm tells jobs, and `or vector(0)` alone is no data."""
    listed = cannot("panels of these metrics stay empty")
    sick = {
        "DEV_XID_ERRORS": "0x10 79x390",
        "DEV_CLOCKS_EVENT_REASONS": "64x400",
        "DEV_ROW_REMAP_PENDING": "1x400",
    }
    given = gpu(release, 0, HEALTHY) | gpu(release, 1, HEALTHY | sick)
    gone = {name: values.replace("x400", "x20") for name, values in HEALTHY.items()}
    given |= gpu(release, 2, gone)
    job = {"job_id": "7", "node": "n1", "cluster": "c"}
    given[series("rl_rank_up", role="train", rank="0", **job)] = "1x400"
    given[series("slurm_job_node", gpus="0-2", **job)] = "1x400"
    expected = []
    for query in gpu_panels():
        text = query.expr.replace(" or vector(0)", "").replace("$__rate_interval", "5m")
        text = re.sub(r'"\$\w+"', '".*"', text)
        title = query.where.partition(" [")[0]
        needs = {f"{query.board}: {title}", *re.findall(r"\bgpu_\w+(?=[{\[])", text)}
        samples = {} if needs & listed else {"{}": 1.0}
        expected.append((f"group(({text}))", "20m", samples))
    return Case(given, expected)


def test_alerts_and_panels_work_with_what_each_release_serves(tmp_path: Path) -> None:
    of_each = (
        each_alert_fires_for_its_sick_gpu_alone,
        units_are_ours,
        mig_readings_of_the_whole_gpu_count_once_and_those_of_instances_add_up,
        panels_have_data,
    )
    of_newest = (
        no_alert_fires_for_healthy_gpus,
        a_gpu_that_is_gone_while_its_neighbour_answers_is_lost,
        a_gpu_without_a_sensor_has_no_reading_and_no_limit,
        an_xid_that_no_table_has_is_a_warning_that_says_so,
    )
    of_one = (
        an_exporter_that_is_gone_loses_no_gpu,
        nanoseconds_of_throttling_become_seconds_and_ring_the_same_bell,
        the_models_type_is_that_of_the_agent,
        a_model_of_no_known_family_has_no_type_and_is_there_all_the_same,
        a_name_that_fits_two_families_takes_no_other_gpu_with_it,
        every_xid_of_the_table_has_its_severity_and_its_text,
        a_repeated_xid_counts_where_the_exporter_counts,
    )
    # The release between has the labels of the one and the names of the other.
    releases = (RELEASES[0], RELEASES[-1])
    cases = {f"{case.__name__}, {each.name}": case(each) for case in of_each for each in releases}
    cases["units of the release between"] = units_are_ours(RELEASES[1])
    cases |= {case.__name__: case(RELEASES[-1]) for case in of_newest}
    cases |= {case.__name__: case() for case in of_one}
    play_together(tmp_path, RULES, cases, interval="30s")
