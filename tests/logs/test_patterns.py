"""Which lines of a log are told apart, and by whose patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.logs.patterns import KNOWN, user_pattern

KNOWN_LINES = {
    "cuda_oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "nccl_timeout": "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
    "http_5xx": '10.0.0.1 - - "POST /stop HTTP/1.1" 503 -',
    "request_timeout": "Error stopping job: Request timeout",
    "killed": "slurmstepd: error: Detected 1 oom_kill event in StepId=540.0",
    "traceback": "Traceback (most recent call last):",
}


@pytest.mark.parametrize("name", KNOWN_LINES)
def test_known_kinds_of_lines_are_told_apart(name: str) -> None:
    line = KNOWN_LINES[name].encode()
    found = {pattern.name for pattern in KNOWN if list(pattern.lines(b"x\n" + line + b"\ny"))}
    assert name in found
    assert found <= {name, "request_timeout", "cuda_oom"}


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("ProcessGroupNCCL" + "." * 150 + "NCCL" + "." * 190 + "timeout", True),
        ("NCCL" + "." * 250 + "timeout", False),
        ("NCCL " * 800, False),
    ],
)
def test_a_timeout_counts_near_the_last_word_of_nccl_before_it(line: str, fits: bool) -> None:
    (pattern,) = (pattern for pattern in KNOWN if pattern.name == "nccl_timeout")
    assert bool(list(pattern.lines(line.encode()))) is fits


@pytest.mark.parametrize(
    "line",
    ["step 10 done in 1.2 s", "HTTP/1.1 200 OK", "status=200", "batch of 500 Samples", "OK -9.5"],
)
def test_healthy_lines_are_none_of_them(line: str) -> None:
    assert not [pattern.name for pattern in KNOWN if list(pattern.lines(line.encode()))]


def test_user_patterns_are_regular_expressions_of_lines() -> None:
    pattern = user_pattern("mismatch=^Batch size (mis)?match.* \\d+$")
    lines = b"a\nBatch size mismatch: 1500\nnot Batch size match 1\nBatch size match 3\n"
    assert [line for _, line in pattern.lines(lines)] == [
        b"Batch size mismatch: 1500",
        b"Batch size match 3",
    ]


@given(st.binary(max_size=2000))
def test_known_patterns_tolerate_anything(garbage: bytes) -> None:
    for pattern in KNOWN:
        list(pattern.lines(garbage))
