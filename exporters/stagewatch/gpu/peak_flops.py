"""Peak FLOPs of GPU models with dense matrices, which model FLOPs utilisation is measured against.

NVIDIA's data sheets usually give figures with sparsity, which are twice these. They hold at the
boost clock; a GPU with a power cap stays below. They are per GPU, even if a data sheet describes a
board of two (GB200). Other models, and MIG instances, have no figure.

The sources are the data sheets and specifications on https://www.nvidia.com/en-us/data-center/ and
https://www.nvidia.com/en-us/products/workstations/, whose names are in the comments.
"""

from __future__ import annotations

from stagewatch.gpu.model_names import gpu_type

PRECISIONS = ("bf16", "fp8")
"""bf16 includes fp16: they have the same peak on all of these."""

_TERA: dict[str, tuple[float, float | None]] = {
    # "NVIDIA A100 Tensor Core GPU": 312 | 624 with sparsity, all form factors.
    "a100": (312, None),
    # "NVIDIA A30 Tensor Core GPU": 165 | 330.
    "a30": (165, None),
    # "NVIDIA A40 datasheet": 149.7 | 299.4.
    "a40": (149.7, None),
    # "NVIDIA A10 datasheet": 125 | 250.
    "a10": (125, None),
    # "NVIDIA RTX A6000 datasheet": 309.7 tensor, with sparsity.
    "a6000": (154.8, None),
    # "NVIDIA H100 Tensor Core GPU datasheet", with sparsity: SXM 1,979 and 3,958; NVL 1,671 and
    # 3,341; PCIe (its first edition) 1,513 and 3,026.
    "h100": (989.5, 1979),
    "h100 nvl": (835.5, 1670.5),
    "h100 pcie": (756.5, 1513),
    # "NVIDIA H200 Tensor Core GPU datasheet", with sparsity: SXM 1,979 and 3,958; NVL 1,671 and
    # 3,341.
    "h200": (989.5, 1979),
    "h200 nvl": (835.5, 1670.5),
    # "NVIDIA GH200 Grace Hopper Superchip datasheet", with sparsity: 1,979 and 3,958.
    "gh200": (989.5, 1979),
    # "NVIDIA Blackwell datasheet", individual GPU, with sparsity: HGX B200 4.5 and 9 PFLOPS,
    # GB200 NVL72 5 and 10 PFLOPS.
    "b200": (2250, 4500),
    "gb200": (2500, 5000),
    # "NVIDIA L40S datasheet": 362.05 | 733 and 733 | 1,466.  "NVIDIA L40 datasheet": 181.05 |
    # 362.1 and 362 | 724.  "NVIDIA L4 datasheet", with sparsity: 242 and 485.
    "l40s": (362.05, 733),
    "l40": (181.05, 362),
    "l4": (121, 242.5),
    # "NVIDIA RTX 6000 Ada Generation datasheet": 1,457 tensor, FP8 with sparsity.
    "rtx6000ada": (364.25, 728.5),
    # "NVIDIA RTX Blackwell PRO GPU architecture", with sparsity: 1,007.6 and 2,015.2.
    "rtxpro6000blackwell": (503.8, 1007.6),
}
"""10^12 operations a second by precision; a form factor with its own figure follows the model's "
"name."""


def peak_flops(name: str) -> dict[str, float]:
    """Peak operations per second by precision, for a GPU by its driver's name; empty if unknown."""
    model = gpu_type(name)
    words = name.lower().split()
    forms = [f"{model} {form}" for form in ("nvl", "pcie") if form in words]
    tera = next((_TERA[form] for form in [*forms, model] if form in _TERA), (None, None))
    pairs = zip(PRECISIONS, tera, strict=True)
    return {precision: peak * 1e12 for precision, peak in pairs if peak is not None}
