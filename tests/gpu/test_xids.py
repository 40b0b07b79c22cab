"""The ledger of GPU errors: every error once, whoever reports it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.gpu.xids import WINDOW_SECONDS, Seen, XidLedger, bus_key, meaning

BUS = "0000:3b:00"


def counts(ledger: XidLedger) -> dict[tuple[int, str], int]:
    return {(seen.xid, seen.severity): seen.count for seen in ledger}


@pytest.mark.parametrize("order", [("nvml", "kmsg"), ("kmsg", "nvml")])
def test_error_reported_by_both_sources_counts_once(order: tuple[str, str]) -> None:
    ledger = XidLedger()
    for place, source in enumerate(order):
        ledger.note(source, BUS, 79, 1000.0 + place)  # type: ignore[arg-type]
    assert counts(ledger) == {(79, "critical"): 1}


def test_nonfatal_link_error_is_a_warning_where_the_log_says_so() -> None:
    ledger = XidLedger()
    ledger.log_is_read = True
    ledger.note("nvml", BUS, 145, 1000.0)
    ledger.note("kmsg", BUS, 145, 1000.0, nonfatal=True)
    assert counts(ledger) == {(145, "warning"): 1}


def test_counts_go_on_after_a_restart() -> None:
    ledger = XidLedger()
    ledger.restore([Seen(BUS, 79, "critical", 3, 900.0)])
    ledger.note("kmsg", BUS, 79, 1000.0)
    (seen,) = ledger
    assert (seen.count, seen.last) == (4, 1000.0)


@given(st.lists(st.tuples(st.sampled_from(("nvml", "kmsg")), st.floats(0, 1000)), max_size=60))
def test_never_fewer_than_one_source_saw_nor_more_than_all(
    reports: list[tuple[str, float]],
) -> None:
    ledger = XidLedger()
    for source, when in sorted(reports, key=lambda report: report[1]):
        ledger.note(source, BUS, 13, when)  # type: ignore[arg-type]
    total = sum(counts(ledger).values())
    by_source = [sum(source == one for source, _ in reports) for one in ("nvml", "kmsg")]
    assert max(by_source) <= total <= sum(by_source)


BUCKETS = {
    "RESET_GPU": "46 62 64 95 109 110 119 120 136 140 143 156 158",
    "RESTART_BM": "79",
    "WORKFLOW_XID_48": "48",
    "WORKFLOW_NVLINK_ERR": "74",
    "WORKFLOW_NVLINK5_ERR": "144 145 146 147 148 149 150",
    "CHECK_MECHANICALS": "54",
    "CONTACT_SUPPORT": "142",
    "UPDATE_SWFW": "78",
    "RESTART_VM": "151",
    "CHECK_UVM": "159",
    "RESTART_APP": "8 11 13 25 31 39 40 41 60 68 69 70 71 72 75 76 77 82 83 84 85 86 88 89 96 97"
    " 98 99 100 101 102 103 104 105 126 127 128 129 130 131 132 133 134 135 139",
    "RESTART_APP, by hardware": "32 80 94",
    "IGNORE": "14 37 38 43 44 63 66 67 92 93 106 107 108 121 137 141 152 153 157 160 161",
    "XID_154": "154",
    "none given": "162 163 164 165 166 167 168 169 170 171 172",
}
"""Immediate actions of https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html for
Ampere and newer.  155 is RESET_GPU there too, but also reported when links are put to sleep."""

SEVERITIES = {
    "RESET_GPU": {"critical"},
    "RESTART_BM": {"critical"},
    "WORKFLOW_XID_48": {"critical"},
    "WORKFLOW_NVLINK_ERR": {"critical"},
    "WORKFLOW_NVLINK5_ERR": {"critical"},
    "RESTART_APP": {"application"},
    "IGNORE": {"info", "application", "warning"},
    "XID_154": {"info"},
    "none given": {"info", "warning", "critical"},
}


@pytest.mark.parametrize("bucket", BUCKETS)
def test_severity_follows_the_vendors_catalogue(bucket: str) -> None:
    wrong = {
        xid: meaning(xid).severity
        for xid in map(int, BUCKETS[bucket].split())
        if meaning(xid).severity not in SEVERITIES.get(bucket, {"warning"})
    }
    assert wrong == {}


def test_same_error_much_later_is_another_one() -> None:
    ledger = XidLedger()
    ledger.note("kmsg", BUS, 48, 1000.0)
    ledger.note("nvml", BUS, 48, 1000.0 + WINDOW_SECONDS + 1)
    assert counts(ledger) == {(48, "critical"): 2}


@pytest.mark.parametrize(
    "text", ["00000000:3B:00.0", "0000:3b:00.0", "PCI:0000:3b:00", "0000:3B:00", "pci:0000:3b:00"]
)
def test_one_address_in_all_its_spellings(text: str) -> None:
    assert bus_key(text) == BUS
