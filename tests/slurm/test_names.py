"""Slurm's notations for GPUs, hosts, states and reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.slurm import notation


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=4,mem=1G,node=1", None),
        ("cpu=4,gres/gpu=8", (("", 8),)),
        ("gres/gpu=8,gres/gpu:h200=8", (("h200", 8),)),
        ("gres/gpu=8,gres/gpu:H200=6", (("", 2), ("h200", 6))),
        ("gres/gpu:a100=2,gres/gpu:h200=1", (("a100", 2), ("h200", 1))),
        ("gres/gpu:1g.10gb=7", (("1g.10gb", 7),)),
        ("gres/gpu=2K", (("", 2048),)),
        ("gres/gpu=?,gres/shard=4", None),
        ("", None),
    ],
)
def test_gpus_of_tres(tres: str, gpus: tuple[tuple[str, int], ...] | None) -> None:
    """What the total counts beyond the typed entries is of no named type."""
    assert notation.gpus_of_tres(tres) == gpus


@given(
    st.text("gpu:h20(S,)IDX-N/A=*5KM", max_size=40), st.text("gpu:h20(S,)IDX-N/A=*5KM", max_size=40)
)
def test_no_gres_is_fatal(configured: str, used: str) -> None:
    """Whatever is printed, counts are not negative."""
    assert all(
        gpus.configured > 0 and gpus.allocated >= 0 for gpus in notation.node_gpus(configured, used)
    )


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("(null)", ()),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[008-010,12],m1", ("n008", "n009", "n010", "n12", "m1")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
    ],
)
def test_host_list(text: str, hosts: tuple[str, ...]) -> None:
    """Ranges keep their leading zeros; several groups multiply."""
    assert notation.expand(text) == hosts


@given(st.text("n1[]-,0 x", max_size=30))
def test_no_host_list_is_fatal(text: str) -> None:
    """A list or a ValueError."""
    try:
        assert all(isinstance(name, str) for name in notation.expand(text))
    except ValueError:
        return


@pytest.mark.parametrize(
    ("text", "state", "flags"),
    [
        ("IDLE", "IDLE", set()),
        ("MIXED+DRAIN", "MIXED", {"DRAIN"}),
        ("DOWN*+DRAIN+INVALID_REG", "DOWN", {"NOT_RESPONDING", "DRAIN", "INVALID_REG"}),
        ("idle~", "IDLE", {"POWERED_DOWN"}),
        ("mixed-", "MIXED", {"PLANNED"}),
        ("alloc", "ALLOCATED", set()),
        ("drained", "IDLE", {"DRAIN"}),
        ("DRAINING", "MIXED", {"DRAIN"}),
        ("IDLE+MAINT+RESERVED", "IDLE", {"MAINTENANCE", "RESERVED"}),
        ("IDLE+CLOUD+NEWFLAG", "IDLE", {"CLOUD", "NEWFLAG"}),
        ("HIBERNATING", "HIBERNATING", set()),
        ("?", "UNKNOWN", set()),
        ("", "UNKNOWN", set()),
    ],
)
def test_node_state(text: str, state: str, flags: set[str]) -> None:
    """A base and flags, whether spelt out or as sinfo's suffixes; new ones are kept."""
    assert notation.node_state(text) == (state, flags)


def test_job_state() -> None:
    """sacct names who cancelled; the state does not."""
    assert (
        notation.job_state("CANCELLED by 1000") == notation.job_state("CANCELLED+") == "CANCELLED"
    )
    assert notation.job_state("?") == "UNKNOWN"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Priority", "Priority"),
        ("ReqNodeNotAvail, UnavailableNodes:s[0001-2000]", "ReqNodeNotAvail"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs", "NodesUnavailable"),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", "NodesUnavailable"),
        ("launch failed requeued held", "JobLaunchFailure"),
        ("a sentence nobody has seen", "other"),
        ("None", "None"),
    ],
)
def test_pending_reason(text: str, reason: str) -> None:
    """Details are cut off, sentences become names, and what is left is `other`."""
    assert notation.pending_reason(text) == reason


@given(st.text(max_size=80))
def test_reasons_are_bounded_names(text: str) -> None:
    """No free text becomes a label's value."""
    assert len(notation.pending_reason(text)) <= 64
    assert notation.reason_class(text) in notation.REASON_CLASSES


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Not responding", "not_responding"),
        ("Kill task failed", "kill_task_failed"),
        ("Job env setup error", "prolog_epilog"),
        ("Node unexpectedly rebooted", "rebooted"),
        ("gres/gpu count reported lower than configured (7 < 8)", "config_mismatch"),
        ("SXid 20034", "gpu"),
        ("NVLink errors on GPU 3", "gpu"),
        ("ib0 link down", "network"),
        ("NHC: check_fs_mount: /scratch not mounted", "storage"),
        ("DIMM A3 uncorrectable", "memory"),
        ("node is unhealthy", "health_check"),
        ("patching tonight", "maintenance"),
        ("ask bob", "other"),
        ("zombie process", "other"),
        ("large amount", "other"),
        ("attestation", "other"),
        ("", "none"),
    ],
)
def test_reason_class(reason: str, expected: str) -> None:
    """Coarse, by the words that Slurm and administrators use."""
    assert notation.reason_class(reason) == expected
