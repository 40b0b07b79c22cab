"""Reading the kernel log."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.kernel_log.reader import Kmsg
from tests.waiting import wait_for


def write(file: Path, *records: tuple[int, str]) -> None:
    with file.open("a") as log:
        for sequence, text in records:
            log.write(f"6,{sequence},{sequence * 1000000},-;{text}\n SUBSYSTEM=pci\n")


def test_records_are_read_once_and_only_new_ones_later(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    write(file, (1, "one"), (2, "two"))
    log = Kmsg(file, uptime=lambda: 2.0)
    assert [record.text for record in log.read()] == ["one", "two"]
    assert list(log.read()) == []
    write(file, (3, "three"))
    (record,) = log.read()
    assert (record.text, record.sequence, record.facility) == ("three", 3, 0)
    log.close()


def test_escapes_and_foreign_lines(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_bytes(b"nonsense\n30,7,1000,c,caller=T1;a\\x09b \xff;c\n KEY=value\n")
    (record,) = Kmsg(file).read()
    assert (record.text, record.facility) == ("a\tb �;c", 3)


def test_real_kernel_log_is_read_and_followed() -> None:
    try:
        with Path("/dev/kmsg").open("w"):
            pass
        log = Kmsg()
        first = list(log.read())
    except (OSError, SourceError) as error:
        pytest.skip(f"needs leave to read and write /dev/kmsg ({error})")
    assert len({record.sequence for record in first}) == len(first) > 0
    token = f"stagewatch-test {uuid.uuid4()}"  # read only once its line has ended
    with Path("/dev/kmsg").open("w") as device:
        device.write(token + "\n")
    found = wait_for(
        lambda: [record for record in log.read() if token in record.text], "our line is read"
    )
    assert found[0].facility != 0  # the kernel marks what user space wrote
    log.close()


def test_reading_goes_on_after_the_last_one_known(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    write(file, (1, "one"), (2, "two"), (3, "three"))
    log = Kmsg(file)
    log.last = 2
    assert [record.text for record in log.read()] == ["three"]
    log.close()
