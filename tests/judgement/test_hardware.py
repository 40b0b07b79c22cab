"""A node is proposed to be taken out where a charge and an error of hardware meet, and not else."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagewatch.core.errors import SourceError
from stagewatch.core.processes import Children
from stagewatch.gpu.device_state import Device
from stagewatch.judgement import case_file, hardware
from stagewatch.judgement.case_file import CaseFile
from stagewatch.judgement.cases import Cases
from stagewatch.judgement.collector import PROPOSED, JudgeCollector, JudgeContext, JudgeOptions
from stagewatch.judgement.limits import DEFAULT
from stagewatch.judgement.memory import State
from stagewatch.judgement.watch import Watch
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.ranks.wait_class import WaitClass
from tests.hangbench.recorded import RECORDED, cases
from tests.judgement.exported import export
from tests.judgement.jobs import LEFT, PARKED, SPINNING, job, verdict
from tests.judgement.test_watch import HUNG, SUMS
from tests.report.filled import Past, filled_prometheus

ROOT = Path(__file__).parents[2]
NOW = time.time() // 100 * 100 - 3600
KEY = ("c", "540")
BEGAN = NOW - 412.0


def on_nodes(ranks: list[Any]) -> list[Any]:
    """Two ranks a node, each with a GPU."""
    return [
        dataclasses.replace(rank, node=f"n{rank.rank // 2}", gpu=f"GPU-{rank.rank}")
        for rank in ranks
    ]


def state(**special: dict[str, Any]) -> State:
    """Seven ranks wait for the others, silent for 412 s."""
    return State(verdict(on_nodes(job(8, SPINNING, **special))), BEGAN, 412.0, 60.0, True)


HUNG_IN_CODE = state(rank_5=PARKED | {"collectives": {"world": 219}})


def of_gpu(alert: str, uuid: str, node: str = "n2", at: float = BEGAN) -> hardware.HardwareFault:
    return hardware.HardwareFault(
        "c", node, alert, uuid, at, "79" if alert == "GPUXidCritical" else ""
    )


def named(*errors: hardware.HardwareFault, of: State = HUNG_IN_CODE) -> list[tuple[str, str, str]]:
    return [(one.node, one.uuid, one.witness) for one in hardware.proposals(KEY, [of], errors, NOW)]


def test_nobody_drains_a_node_for_a_deadlock_in_python() -> None:
    assert [charge.rank.rank for charge in HUNG_IN_CODE.verdict.charges] == [5]
    assert named() == []


def test_an_xid_of_the_gpu_of_the_rank_at_fault_bears_witness() -> None:
    (found,) = hardware.proposals(KEY, [HUNG_IN_CODE], [of_gpu("GPUXidCritical", "GPU-5")], NOW)
    assert (found.node, found.uuid, found.witness, found.code) == (
        *("n2", "GPU-5", "GPUXidCritical"),
        "79",
    )
    assert (
        found.why
        == "XID 79; rank 5 of job 540 has not entered the operation that the others wait in"
    )
    assert (found.confidence, found.since, found.until) == ("sure", BEGAN, NOW + 3600)


@pytest.mark.parametrize(
    "error",
    [
        of_gpu("GPUXidCritical", "GPU-4"),  # of another GPU of the node
        of_gpu("GPUXidCritical", ""),  # nobody knows of which
        of_gpu("GPULost", "GPU-5", node="n1"),
        of_gpu(
            "GPUNVLinkDown", "GPU-5", at=BEGAN - hardware.BEFORE_SECONDS - 1
        ),  # it had run with that
        dataclasses.replace(of_gpu("GPULost", "GPU-5"), cluster="other"),
    ],
)
def test_an_error_elsewhere_or_of_another_time_bears_none(error: hardware.HardwareFault) -> None:
    assert named(error) == []


def test_where_nobody_knows_the_gpu_of_the_rank_an_error_of_some_gpu_bears_none() -> None:
    bare = job(8, SPINNING, rank_5=PARKED | {"collectives": {"world": 219}, "node": "n2"})
    blamed = State(verdict(bare), BEGAN, 412.0, 60.0, True)
    assert named(of_gpu("GPUXidCritical", ""), of=blamed) == []
    assert named(of_gpu("GPUDriverWedged", ""), of=blamed) == [("n2", "", "GPUDriverWedged")]


def test_a_link_that_is_down_on_many_nodes_is_the_switch_s() -> None:
    down = [of_gpu("NetworkLinkDown", "", node=f"n{number}") for number in range(3)]
    assert named(down[2]) == [("n2", "GPU-5", "NetworkLinkDown")]
    assert named(*down) == []


def test_the_plainest_witness_is_told() -> None:
    errors = [of_gpu("NetworkLinkDown", ""), of_gpu("GPULost", "GPU-5")]
    assert named(*errors) == [("n2", "GPU-5", "GPULost")]


def test_a_gpu_that_the_verdict_itself_has_seen_lost_needs_no_other_witness() -> None:
    lost = {"device": Device.LOST, "inside": SPINNING["inside"]}
    assert named(of=state(rank_3=lost)) == [("n1", "GPU-3", "GPULost")]


def lost_nodes(*ranks: int, seconds: float = 400.0) -> State:
    away = {"wait_class": WaitClass.GONE, "left_seconds": seconds, "node_lost": True}
    return state(**{f"rank_{rank}": away for rank in ranks})


def test_a_lost_node_is_proposed_and_a_lost_rack_is_not() -> None:
    assert named(of=lost_nodes(2, 3)) == [
        ("n1", "GPU-2", hardware.LOST_NODE),
        ("n1", "GPU-3", hardware.LOST_NODE),
    ]
    assert named(of=lost_nodes(0, 2, 4)) == []
    assert named(of=lost_nodes(2, 3, seconds=200.0)) == []  # it may come back


def test_of_all_recorded_faults_no_node_is_proposed_though_each_has_a_broken_gpu() -> None:
    """Faults of programs, and machines that were away for two minutes; the broken GPUs are those
    that no rank is on."""
    charged = 0
    for case in cases(RECORDED):
        states, at = case.states(), case.moments[-1].time if case.moments else 0.0
        nodes = {rank.node for moment in case.moments for rank in moment.ranks}
        broken = [
            hardware.HardwareFault(case.cluster, node, "GPULost", "GPU-spare", at) for node in nodes
        ]
        charged += any(state.verdict.charges for state in states)
        assert hardware.proposals((case.cluster, case.job_id), states, broken, at) == (), (
            case.job_id
        )
    assert charged > 100


def test_what_is_only_likely_says_so() -> None:
    alone = state(rank_5=PARKED | {"collectives": {}, "inside": {}, "stage": "rollout"})
    hot = [of_gpu("GPUThrottledByHeat", "GPU-5")]  # which stops nobody
    for blamed, errors in ((alone, [of_gpu("GPULost", "GPU-5")]), (HUNG_IN_CODE, hot)):
        (found,) = hardware.proposals(KEY, [blamed], errors, NOW)
        assert found.confidence == "likely"


def test_each_witness_is_an_alert_that_is_shipped_and_tells_of_which_gpu_it_is() -> None:
    rules = {
        rule["alert"]: rule["expr"] + rule["annotations"]["description"]
        for file in (ROOT / "alerts").glob("*.rules.yaml")
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    for alert, kind in hardware.WITNESSES.items():
        if alert != hardware.LOST_NODE:
            assert alert in rules
            if kind.component == "GPU" and "xid" not in rules[alert]:
                assert re.search(r"uuid", rules[alert]), alert


# ---- In a case, and asked of a real Prometheus ------------------------------------------------


def proposal(**changes: Any) -> hardware.Proposal:
    (found,) = hardware.proposals(KEY, [HUNG_IN_CODE], [of_gpu("GPUXidCritical", "GPU-5")], NOW)
    return dataclasses.replace(found, **changes)


def test_a_proposal_comes_back_from_a_case(tmp_path: Path) -> None:
    case = CaseFile("c", "540", (), proposals=(proposal(),))
    file = tmp_path / "case.json.gz"
    file.write_bytes(case_file.packed(case_file.as_json(case)))
    assert case_file.read(file) == case


@pytest.mark.parametrize(
    "change",
    [{"witness": "Rumour"}, {"confidence": "certain"}, {"node": 7}, {"until": -1}, {"rank": "x"}],
)
def test_a_forged_proposal_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    content = case_file.as_json(CaseFile("c", "540", (), proposals=(proposal(),)))
    content["proposals"][0] |= change
    file = tmp_path / "case.json"
    file.write_text(json.dumps(content))
    with pytest.raises(SourceError, match="is no case"):
        case_file.read(file)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")
def test_the_judge_asks_for_witnesses_and_keeps_the_proposal(
    children: Children, tmp_path: Path
) -> None:
    made = Past(NOW - 200, NOW, step=5.0)
    ranks = job(8, HUNG, job_id="540", rank_5=LEFT | {"progress_age_seconds": 90.0})
    export(made, on_nodes(ranks))
    for record, value in SUMS.items():
        made.add(record, value, cluster="c", job_id="540", role="train", stage="train")
    for node in range(4):
        made.add("up", 1.0, job="stagewatch", cluster="c", node=f"n{node}")
    lost = {"alertname": "GPULost", "cluster": "c", "node": "n2", "uuid": "GPU-5", "gpu": "1"}
    made.add("ALERTS", 1.0, alertstate="firing", **lost)
    made.add("ALERTS_FOR_STATE", NOW - 100, **lost)
    pending = lost | {"uuid": "GPU-4"}
    made.add("ALERTS", 1.0, alertstate="pending", **pending)
    made.add("ALERTS_FOR_STATE", NOW - 100, **pending)
    xid = {"cluster": "c", "node": "n1", "uuid": "GPU-2", "xid": "48", "severity": "critical"}
    made.add("gpu_xid_last_timestamp_seconds", NOW - 50, **xid)
    api = PrometheusApi(filled_prometheus(children, tmp_path / "p", made, lookback="6s"))
    assert {
        (one.alert, one.uuid, one.code, NOW - one.time)
        for one in hardware.hardware_faults(api, NOW)
    } == {
        ("GPULost", "GPU-5", "", 100.0),
        ("GPUXidCritical", "GPU-2", "48", 50.0),
    }
    context = JudgeContext(JudgeOptions(case_dir=tmp_path / "cases"))
    collector = JudgeCollector(
        context,
        Watch(api),
        Cases(tmp_path / "cases", DEFAULT),
        clock=lambda: NOW,
        errors=lambda at: hardware.hardware_faults(api, at),
    )
    out = collector.collect()
    assert [one.node for one in context.standing] == ["n2"]
    api.close()
    where = ("c", "n2", "540", "train", "5", "GPU-5")
    assert out.families[PROPOSED] == {(*where, "GPULost", "sure"): 1}
    assert context.latest is not None
    file = context.latest.jobs[KEY].case
    assert file is not None
    (kept,) = case_file.read(file).proposals
    assert (kept.node, kept.witness) == ("n2", "GPULost")
    (finding,) = context.findings.latest() or ()
    assert "proposed to take n2 out (sure): the driver does not reach the GPU" in finding.sentence
