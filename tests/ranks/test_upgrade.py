"""What an agent makes of the records of another version's client: docs/upgrading.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.record import FILE_SIZE, H_VERSION, VERSION
from tests.ranks.record_scene import Start
from tests.records import patched, real_file


@pytest.mark.parametrize(
    ("version", "size"), [(VERSION - 1, FILE_SIZE - 4096), (VERSION + 1, FILE_SIZE)]
)
def test_a_client_of_another_version_is_counted_and_hides_nobody(
    version: int,
    size: int,
    reader: RecordDirectory,
    start_rank: Start,
    shared: Path,
    tmp_path: Path,
) -> None:
    start_rank(4)
    other = patched(real_file(tmp_path), {H_VERSION: version})
    (shared / "77-0000004d.rank").write_bytes(other.ljust(size, b"\0")[:size])
    (record,) = reader.read()
    assert record.rank == 4
    assert reader.skipped["version"] == 1
    assert (shared / "77-0000004d.rank").exists()
