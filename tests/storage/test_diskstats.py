"""Block devices, of old kernels and new ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagewatch.storage.diskstats import parse_diskstats

NEW = "259 0 nvme0n1 10 1 80 500 20 2 160 1500 3 7000 2000 5 0 40 250 6 125"
OLD = "  8 0 sda 10 1 80 500 20 2 160 1500 3 7000 2000"


@given(st.text())
def test_garbage_costs_only_its_own_lines(garbage: str) -> None:
    found = list(parse_diskstats(f"{NEW}\n{garbage}\n{OLD}"))
    assert (found[0].name, found[-1].name) == ("nvme0n1", "sda")
