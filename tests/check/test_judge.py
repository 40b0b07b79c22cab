"""What each check of `stagewatch check` finds wrong, and how bad it takes it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stagewatch.check import judge as checks
from stagewatch.check.command import line
from stagewatch.check.facts import Facts, parse
from stagewatch.check.judge import CHECKS, CheckOptions, Finding, Level, judge

GPU = 'gpu="3",uuid="U3"'
HEALTHY = """\
# HELP gpu_up 1 if the driver reaches the GPU
gpu_up{gpu="0",uuid="U0"} 1
gpu_up{gpu="3",uuid="U3"} 1
gpu_info{gpu="0",uuid="U0",model="NVIDIA H200",type="h200"} 1
gpu_info{gpu="3",uuid="U3",model="NVIDIA H200",type="h200"} 1
stagewatch_collector_success{collector="gpu"} 1
stagewatch_collector_stuck_seconds{collector="gpu"} 0
gpu_temperature_celsius{gpu="3",uuid="U3"} 70
gpu_temperature_slowdown_celsius{gpu="3",uuid="U3"} 89
gpu_nvlink_up{gpu="0",uuid="U0",link="0"} 1
gpu_nvlink_up{gpu="0",uuid="U0",link="1"} 1
gpu_nvlink_up{gpu="3",uuid="U3",link="0"} 1
gpu_nvlink_up{gpu="3",uuid="U3",link="1"} 1
gpu_pcie_link_width{gpu="3",uuid="U3"} 16
gpu_pcie_link_width_max{gpu="3",uuid="U3"} 16
gpu_pcie_link_generation{gpu="3",uuid="U3"} 5
gpu_pcie_link_generation_max{gpu="3",uuid="U3"} 5
gpu_performance_state{gpu="3",uuid="U3"} 0
gpu_persistence_mode{gpu="3",uuid="U3"} 1
gpu_fabric_state{gpu="3",uuid="U3"} 3
clock_synchronized 1
clock_offset_seconds 0.0001
"""
NOW = 1_800_000_000.0


def facts(text: str = "", **changes: object) -> Facts:
    """A healthy node but for these lines; a line with the same series takes the other's place."""
    new = {one.rsplit(" ", 1)[0]: one for one in text.splitlines()}
    kept = [one for one in HEALTHY.splitlines() if one.rsplit(" ", 1)[0] not in new]
    base = Facts(parse("\n".join([*kept, *new.values()])), now=NOW, on_bus=2)
    return replace(base, **changes)  # type: ignore[arg-type]


def found(text: str = "", options: CheckOptions | None = None, **changes: object) -> list[Finding]:
    return judge(facts(text, **changes), options or CheckOptions())


def test_healthy_node_is_fit() -> None:
    assert found() == []
    assert line([], facts(), Level.OK) == "ok: 2 GPUs"


FAULTS = (
    (f"gpu_up{{{GPU}}} 0", "gpu_count", Level.DRAIN, "the driver has lost GPU 3"),
    (
        'stagewatch_collector_stuck_seconds{collector="gpu"} 61',
        "driver", Level.DRAIN, "has not answered for 61 s",
    ),
    (
        'stagewatch_collector_stuck_seconds{collector="gpu"} 3',
        "driver", Level.WARN, "has not answered for 3 s",
    ),
    ("stagewatch_gpu_reader_released 1", "driver", Level.WARN, "released for maintenance"),
    (
        f'gpu_xid_last_timestamp_seconds{{{GPU},xid="79",severity="critical"}} {NOW - 60}\n'
        'gpu_xid_info{xid="79",action="reboot_node",meaning="fallen off the bus"} 1',
        "xid", Level.DRAIN, "XID 79 on GPU 3 (fallen off the bus)",
    ),
    (
        f'gpu_xid_last_timestamp_seconds{{pci_bus_id="0000:3b:00",xid="48",'
        f'severity="critical"}} {NOW}',
        "xid", Level.DRAIN, "XID 48 on GPU 0000:3b:00",
    ),
    (
        f'gpu_xid_last_timestamp_seconds{{{GPU},xid="94",severity="warning"}} {NOW}',
        "xid", Level.WARN, "XID 94 on GPU 3",
    ),
    (f"gpu_sram_ecc_threshold_exceeded{{{GPU}}} 1", "ecc", Level.DRAIN, "replace"),
    (
        f'gpu_ecc_errors_total{{{GPU},memory="dram",kind="uncorrected",scope="volatile"}} 1',
        "ecc", Level.WARN, "uncorrected ECC errors on GPU 3",
    ),
    (f"gpu_remap_failed{{{GPU}}} 1", "remap", Level.DRAIN, "row remapping failed on GPU 3"),
    (f"gpu_remap_pending{{{GPU}}} 1", "remap", Level.WARN, "pending on GPU 3"),
    (f"gpu_retired_pages_pending{{{GPU}}} 1", "remap", Level.WARN, "page retirement"),
    (f'gpu_remap_banks{{{GPU},spares="none"}} 1', "remap", Level.WARN, "no spare rows"),
    (f"gpu_recovery_action{{{GPU}}} 2", "recovery", Level.DRAIN, "a reboot of GPU 3"),
    (f"gpu_recovery_action{{{GPU}}} 3", "recovery", Level.WARN, "peers to be drained"),
    (f"gpu_temperature_celsius{{{GPU}}} 89", "temperature", Level.WARN, "slowdown temp"),
    (
        f'gpu_temperature_margin_limit_celsius{{{GPU},limit="slowdown"}} -2\n'
        f"gpu_temperature_margin_celsius{{{GPU}}} -2",
        "temperature", Level.WARN, "GPU 3 at the slowdown temp",
    ),
    (f'gpu_throttle_active{{{GPU},reason="hw_thermal"}} 1', "throttle", Level.WARN, "hw_th"),
    (f'gpu_nvlink_up{{{GPU},link="1"}} 0', "nvlink", Level.DRAIN, "NVLink 1 of GPU 3 down"),
    (f"gpu_fabric_failed{{{GPU}}} 1", "fabric", Level.DRAIN, "could not join"),
    (f"gpu_fabric_state{{{GPU}}} 2", "fabric", Level.DRAIN, "not in the NVSwitch fabric"),
    (
        f'gpu_fabric_unhealthy{{{GPU},condition="degraded_bandwidth"}} 1',
        "fabric", Level.WARN, "degraded_bandwidth",
    ),
    (f"gpu_pcie_link_width{{{GPU}}} 8", "pcie", Level.DRAIN, "PCIe x8 of x16 on GPU 3"),
    (f"gpu_pcie_link_generation{{{GPU}}} 3", "pcie", Level.WARN, "generation 3 of 5"),
    (f"gpu_persistence_mode{{{GPU}}} 0", "persistence", Level.WARN, "off on GPU 3"),
    (
        f'gpu_orphaned_process_seconds{{{GPU},job_id="540",pid="7"}} 90',
        "orphans", Level.DRAIN, "process 7 of ended job 540 holds GPU 3",
    ),
    ("clock_synchronized 0", "clock", Level.WARN, "not synchronised"),
    ("clock_offset_seconds -0.05", "clock", Level.WARN, "off by 50.0 ms"),
)  # fmt: skip


def test_each_check_is_left_out_by_its_name_and_takes_no_other_along() -> None:
    text = "\n".join(text for text, *_ in FAULTS if "released" not in text)
    everything = {
        "problem": "the node agent does not answer",
        "mounts": {"/home": "/home is not mounted"},
        "lemon": "n is a lemon",
    }

    def names(*skip: str) -> set[str]:
        options = CheckOptions(skip=skip, gpu_type="a6000")
        return {finding.check for finding in found(text, options, **everything)}

    assert names() == set(CHECKS)
    for check in CHECKS:
        assert names(check) == set(CHECKS) - {check}
    assert names(*CHECKS) == set()


@pytest.mark.parametrize(
    "text",
    [
        f'gpu_xid_last_timestamp_seconds{{{GPU},xid="79",severity="critical"}} {NOW - 9999}',
        f'gpu_xid_last_timestamp_seconds{{{GPU},xid="31",severity="application"}} {NOW}',
        f'gpu_xid_last_timestamp_seconds{{{GPU},xid="63",severity="info"}} {NOW}',
        f'gpu_ecc_errors_total{{{GPU},memory="dram",kind="corrected",scope="volatile"}} 900',
        f'gpu_ecc_errors_total{{{GPU},memory="dram",kind="uncorrected",scope="aggregate"}} 1',
        f'gpu_throttle_active{{{GPU},reason="sw_power_cap"}} 1',
        f'gpu_temperature_margin_limit_celsius{{{GPU},limit="slowdown"}} -2\n'
        f"gpu_temperature_margin_celsius{{{GPU}}} 0",
        f"gpu_performance_state{{{GPU}}} 8\ngpu_pcie_link_generation{{{GPU}}} 1",
        f'gpu_orphaned_process_seconds{{{GPU},job_id="540",pid="7"}} 5',
        f'gpu_nvlink_up{{{GPU},link="0"}} 0\ngpu_nvlink_up{{{GPU},link="1"}} 0\n'
        'gpu_nvlink_up{gpu="0",uuid="U0",link="0"} 0\n'
        'gpu_nvlink_up{gpu="0",uuid="U0",link="1"} 0',
        'gpu_up{gpu="0",uuid="MIG-1",mig="7:0"} 1',
    ],
)
def test_what_looks_alike_but_is_well_is_left_alone(text: str) -> None:
    assert found(text) == []


def test_missing_gpus_are_found_by_the_bus_and_by_the_option() -> None:
    assert found(on_bus=8)[0].reason == "2 of 8 GPUs"
    (finding,) = found(options=CheckOptions(gpus=4))
    assert (finding.level, finding.reason) == (Level.DRAIN, "2 of 4 GPUs")
    (more,) = found(options=CheckOptions(gpus=1))
    assert more.level is Level.WARN


def test_another_card_than_configured_is_named() -> None:
    findings = found(options=CheckOptions(gpu_type="a6000"))
    assert findings[0].reason == "GPU 0 is h200, not a6000"
    assert findings[0].level is Level.DRAIN


def test_gpus_on_the_bus_that_no_driver_knows_drain_the_node() -> None:
    text = 'stagewatch_collector_no_data{collector="gpu"} 1\n'
    (finding,) = judge(Facts(parse(text), NOW, 8), CheckOptions())
    assert (finding.check, finding.level) == ("gpu_count", Level.DRAIN)


def test_collectors_that_fail_are_named_once_and_drain_nothing() -> None:
    text = "\n".join(
        f'stagewatch_collector_success{{collector="{name}"}} {value}'
        for name, value in (("stages", 0), ("kmsg", 1), ("net", 0))
    )
    (finding,) = found(f'{text}\nstagewatch_collector_no_data{{collector="nfs"}} 1')
    assert (finding.check, finding.level) == ("agent", Level.WARN)
    assert finding.reason == "collectors of the node agent fail: stages, net"
    assert found(text, CheckOptions(skip=("agent",))) == []


def test_a_driver_that_hangs_is_told_of_once() -> None:
    text = (
        'stagewatch_collector_success{collector="gpu"} 0\n'
        'stagewatch_collector_stuck_seconds{collector="gpu"} 3'
    )
    assert [finding.check for finding in found(text)] == ["driver"]


def test_an_unreadable_kernel_log_does_not_look_like_one_without_errors() -> None:
    (finding,) = found("stagewatch_kmsg_readable 0")
    assert (finding.check, finding.level) == ("agent", Level.WARN)
    assert "the kernel log cannot be read" in finding.reason
    assert found("stagewatch_kmsg_readable 1") == []


def test_node_whose_agent_does_not_answer_is_not_drained_for_its_gpus() -> None:
    problem = "the node agent does not answer"
    findings = judge(Facts(parse(""), NOW, 8, problem=problem), CheckOptions(gpus=8))
    assert findings == [Finding("agent", Level.WARN, problem)]


def test_worst_reason_comes_first_and_the_line_stays_one() -> None:
    text = f"clock_synchronized 0\ngpu_up{{{GPU}}} 0"
    findings = found(text, mounts={"/home": "/home\nis not mounted", "/ok": ""})
    verdict = line(findings, facts(), Level.DRAIN)
    assert verdict == (
        "drain: the driver has lost GPU 3; /home is not mounted; the clock is not synchronised"
    )


@given(st.text(max_size=300))
def test_no_text_of_an_agent_upsets_the_checks(text: str) -> None:
    judge(Facts(parse(text), NOW, 0), CheckOptions())


NAMES = sorted(
    set(re.findall(r'"((?:gpu|clock|stagewatch)_\w+)"', Path(checks.__file__).read_text()))
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.dictionaries(
                st.sampled_from(("gpu", "uuid", "mig", "link", "xid", "severity", "collector")),
                st.sampled_from(("", "0", "79", "critical", "gpu", "x" * 600)),
            ),
            st.floats() | st.sampled_from((0.0, 1.0, 3.0)),
        )
    )
)
@example([("gpu_recovery_action", {}, math.inf)])
def test_no_values_of_an_agent_upset_the_checks(
    samples: list[tuple[str, dict[str, str], float]],
) -> None:
    page = []
    for name, labels, value in samples:
        pairs = ",".join(f'{key}="{one}"' for key, one in labels.items())
        page.append(f"{name}{{{pairs}}} {value}")
    facts = Facts(parse("\n".join(page)), NOW, on_bus=0)
    told = line(judge(facts, CheckOptions(gpus=8, gpu_type="h200")), facts, Level.DRAIN)
    assert len(told) <= 500 and told.isprintable()


def test_what_an_agent_says_cannot_speak_to_the_terminal() -> None:
    page = 'gpu_xid_last_timestamp_seconds{gpu="\x1b[2J0",xid="79",severity="critical"} 1.8e9\n'
    facts = Facts(parse(page), NOW, on_bus=0)
    findings = judge(facts, CheckOptions(skip=("agent", "clock", "driver")))
    assert line(findings, facts, Level.DRAIN) == "drain: XID 79 on GPU ?[2J0"


def test_agent_that_has_only_just_started_drains_nothing() -> None:
    (finding,) = judge(Facts(parse(""), NOW, 8), CheckOptions())
    assert (finding.check, finding.level) == ("agent", Level.WARN)
