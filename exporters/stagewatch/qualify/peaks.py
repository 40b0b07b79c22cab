"""Peak memory bandwidth of GPU models, beside the peak operations of `gpu.peak_flops`.

From NVIDIA's data sheets of the same names (https://www.nvidia.com/en-us/data-center/ and
https://www.nvidia.com/en-us/products/workstations/), "GPU memory bandwidth".  Where forms differ
that go by one name, the lowest.
"""

from __future__ import annotations

from stagewatch.gpu.model_names import gpu_type
from stagewatch.gpu.peak_flops import peak_flops

_GIGABYTES = {
    "a100": 1555,  # 40 GB; the 80 GB have 1,935 (PCIe) and 2,039 (SXM)
    "a30": 933,
    "a40": 696,
    "a10": 600,
    "a6000": 768,
    "h100": 3350,
    "h100 nvl": 3900,
    "h100 pcie": 2000,
    "h200": 4800,
    "gh200": 4000,  # with HBM3; 4,900 with HBM3e
    "b200": 7700,
    "gb200": 8000,
    "l40s": 864,
    "l40": 864,
    "l4": 300,
    "rtx6000ada": 960,
}
"""10^9 bytes a second; a form factor of its own follows the model's name."""


def peaks(name: str) -> dict[str, float]:
    """Peaks by part of the test, for a GPU's name; empty for MIG devices and unknown GPUs."""
    if "mig" in name.lower():
        return {}
    model, words = gpu_type(name), name.lower().split()
    forms = [f"{model} {form}" for form in ("nvl", "pcie") if form in words]
    found = {"product": peak_flops(name).get("bf16")}
    bandwidth = next((_GIGABYTES[form] for form in [*forms, model] if form in _GIGABYTES), None)
    found["memory"] = None if bandwidth is None else bandwidth * 1e9
    return {part: peak for part, peak in found.items() if peak}
