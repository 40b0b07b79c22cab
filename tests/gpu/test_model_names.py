"""The normalised short name of a GPU model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.gpu.model_names import gpu_type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200 MIG 1g.18gb", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000blackwell"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("nvidia_h100_80gb_hbm3", "h100"),  # as Slurm's AutoDetect names it
        ("a100_3g.20gb", "a100"),
        ("", ""),
        ("NVIDIA Something New", "nvidia_something_new"),
    ],
)
def test_names_of_the_same_card_come_out_alike(name: str, expected: str) -> None:
    assert gpu_type(name) == expected


@given(st.text(max_size=100))
def test_any_text_gives_a_plain_label(name: str) -> None:
    assert all(char.isascii() and (char.isalnum() or char in "._") for char in gpu_type(name))
    assert gpu_type(name) == gpu_type(name.upper().lower()) or not name.isascii()
