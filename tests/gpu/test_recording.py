"""Recordings of GPU readings: what is replayed, and what a broken file says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.core.errors import ConfigError
from stagewatch.gpu.recording import RecordedReader, load, main
from tests.fakes.nvml import FakeNvml


def write(file: Path, *entries: object) -> Path:
    new = file.with_suffix(".new")
    new.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return new.replace(file)


def frame(**values: float) -> dict[str, object]:
    return {"tiers": {"fast": {"gpus": [{"gpu": "0", "uuid": "GPU-0", "values": values}]}}}


def test_frames_follow_one_another_and_counters_never_fall(tmp_path: Path) -> None:
    recording = load(
        write(
            tmp_path / "a.jsonl",
            {"recording": 1, "interval": 2},
            frame(gpu_temperature_celsius=50, gpu_energy_joules_total=1000),
            frame(gpu_temperature_celsius=60, gpu_energy_joules_total=1100),
            frame(gpu_energy_joules_total=1200),
        )
    )

    def at(seconds: float) -> dict[str, float]:
        values: dict[str, float] = recording.at(seconds)["tiers"]["fast"]["gpus"][0]["values"]
        return values

    shown = [at(second)["gpu_temperature_celsius"] for second in (0, 2, 4, 6, 8)]
    assert shown == [50, 60, 60, 50, 60]  # what the third frame leaves out, it has from the second
    energies = [at(second)["gpu_energy_joules_total"] for second in range(0, 40, 2)]
    assert energies == [1000 + 100 * step for step in range(20)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs a first line"),
        ('{"recording": 1, "interval": 1}\n', "at least one frame"),
        ('{"recording": 2, "interval": 1}\n{}\n', "line 1 is not the first line"),
        ('{"recording": 1, "interval": 1}\n{}\n', "line 2 is not a frame"),
        (
            '{"recording": 1, "interval": 1}\n'
            '{"tiers": {"fast": {"gpus": [{"gpu": "0", "values": {"gpu_flux": 1}}]}}}\n',
            "line 2: 'gpu_flux' is no reading",
        ),
        ("[" * 100_000, "line 1 is not the first line"),
        ("\xff\n", "not UTF-8"),
    ],
)
def test_broken_recording_says_which_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=message):
        RecordedReader(file).read(("fast",))


@given(st.lists(st.text(max_size=60), max_size=5))
def test_hostile_text_never_ends_in_anything_but_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    file = tmp_path_factory.getbasetemp() / f"hostile-{os.getpid()}.jsonl"
    file.write_text('{"recording": 1, "interval": 1}\n' + "\n".join(lines), "utf-8")
    with pytest.raises(ConfigError):
        load(file)


def test_what_was_recorded_is_replayed_without_its_serials(nvml: FakeNvml, tmp_path: Path) -> None:
    file = tmp_path / "captured.jsonl"
    assert main([str(file), "--frames", "2", "--interval", "0.01"]) == 0
    text = file.read_text()
    assert "1650000000000" not in text
    assert "fa4e0000" not in text
    reader = RecordedReader(file)
    frame = reader.read(("fast", "medium", "slow"))
    fast = frame["tiers"]["fast"]["gpus"]
    assert [row["values"]["gpu_temperature_celsius"] for row in fast] == list(range(50, 58))
    assert frame["tiers"]["slow"]["gpus"][0]["info"]["serial"] == "0"
    assert len({row["uuid"] for row in fast}) == 8
