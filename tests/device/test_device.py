"""The script for a real GPU, as far as it goes beside a made-up driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.device.smi import FIELDS
from tests.fakes.nvml import FakeNvml

NVIDIA_SMI = """#!/bin/sh
case $* in
    *name*) echo "NVIDIA H100 80GB HBM3" ;;
    *) echo "47, [N/A], 5000{}" ;;
esac
""".format(", 1" * (len(FIELDS) - 3))


def test_each_part_is_run_or_told_why_not(nvml: FakeNvml, tmp_path: Path) -> None:
    """PyTorch is none here, whether it is installed or not."""
    nvml.set("temperature", 48)
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(NVIDIA_SMI)
    smi.chmod(0o755)
    (tmp_path / "bin" / "torch.py").write_text("import no_such_library")
    environ = os.environ | {"PATH": f"{smi.parent}:{os.environ['PATH']}"}
    environ["PYTHONPATH"] = os.pathsep.join([str(smi.parent), *sys.path])
    command = [sys.executable, "-m", "tests.device", str(tmp_path / "into")]
    subprocess.run(command, env=environ, check=True, timeout=300)
    text = (tmp_path / "into" / "NVIDIA-H100-80GB-HBM3.md").read_text()
    assert "| temperature.gpu | 47 | 48 | agree |" in text
    assert "| power.draw | 5000 |" in text and "| DIFFER |" in text
    assert "gpu_temperature_celsius 48" in text
    assert text.count("\nNot run: ") == 9
    assert "FAILED" not in text
