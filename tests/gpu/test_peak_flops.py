"""Peak FLOPs by the names that the driver gives, held against NVIDIA's data sheets."""

from __future__ import annotations

import pytest

from stagewatch.gpu.peak_flops import peak_flops


@pytest.mark.parametrize(
    ("name", "bf16", "fp8"),
    [
        # "with sparsity" of the data sheet, in 10^12; dense is the half of it
        ("NVIDIA H100 80GB HBM3", 1979, 3958),
        ("NVIDIA H100 PCIe", 1513, 3026),
        ("NVIDIA H100 NVL", 1671, 3341),
        ("NVIDIA H200", 1979, 3958),
        ("NVIDIA B200", 4500, 9000),
        ("NVIDIA GB200", 5000, 10_000),
        ("NVIDIA A100-SXM4-80GB", 624, None),
        ("NVIDIA L4", 242, 485),
    ],
)
def test_dense_peak_is_half_of_the_data_sheets_sparse_one(
    name: str, bf16: float, fp8: float | None
) -> None:
    expected = {"bf16": bf16 / 2 * 1e12} | ({} if fp8 is None else {"fp8": fp8 / 2 * 1e12})
    assert peak_flops(name) == pytest.approx(expected)
