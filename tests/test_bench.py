"""What somebody sees who asks which benchmarks there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.__main__ import main


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_the_help_lists_every_benchmark_in_a_line(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([flag]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    files = sorted((Path(__file__).parent / "bench").glob("bench_*.py"))
    assert [f"bench_{line.split()[0]}.py" for line in lines] == [file.name for file in files]
    assert all(len(line.split()) > 4 for line in lines)
