"""The labels that every series about a GPU begins with."""

from __future__ import annotations

GPU = ("gpu", "uuid", "mig")
"""NVML index, UUID, and for a MIG instance its GPU and compute instance ids as `GI:CI`.

Series without `mig` are about a whole GPU; those of its instances are parts of them.
"""
