"""What the reader refuses, leaves out or chooses where the bytes of a record are ambiguous."""

from __future__ import annotations

import pytest

from stagewatch import record as layout
from stagewatch.ranks.records import CorruptRecord, parse
from stagewatch.record import L_TOTALS, LANES_AT, SCALARS_AT, T_DURATION_SUM, T_GAPS, WORD
from tests.records import patched, real_record

LANE = LANES_AT // WORD
IDLE_TOTALS = LANE + L_TOTALS


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return real_record(tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({layout.H_RANK: -1}, "rank -1"),
        ({layout.H_RANK: 2**40}, "rank 1099511627776"),
        ({layout.H_PID: 0}, "pid 0"),
        ({layout.H_PID: -7}, "pid -7"),
        ({layout.H_PID: 2**31}, "pid 2147483648"),
        ({IDLE_TOTALS + T_GAPS: -1}, "a count is negative"),
        ({IDLE_TOTALS + T_DURATION_SUM: -(2**63)}, "a count is negative"),
        ({layout.H_FIRST_FAILURE + 2: 12}, "stage code 12"),
        ({LANE + layout.L_FRAMES + layout.F_CODE: -1}, "stage code -1"),
    ],
)
def test_what_no_writer_writes_is_refused(real: bytes, words: dict[int, int], why: str) -> None:
    with pytest.raises(CorruptRecord, match=why):
        parse(patched(real, words))


def test_a_scalar_whose_value_is_not_there_yet_is_absent_and_not_zero(real: bytes) -> None:
    unset = patched(real, {SCALARS_AT // WORD + 5: 0, SCALARS_AT // WORD + 6: 0})
    assert parse(unset).scalars == {}
