"""A Python that has PyTorch and some GPUs, as `stagewatch qualify --python` runs it: a stand-in."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

WORKER = """#!/bin/sh
at=${3##*'"gpu": '}
at=${at%%[!0-9]*}
exec cat "$0.$2.${at:-0}"
"""
"""Prints what the worker of a part and a GPU would: a file beside it holds that."""


def python_with(directory: Path, figures: dict[str, Any]) -> Path:
    """The path of such a Python.

    `figures` has by part a list of what the worker of each GPU prints, `hang` for one that never
    does.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    python = directory / "python"
    python.write_text(WORKER)
    python.chmod(0o755)
    for part, each in figures.items():
        for at, found in enumerate(each):
            file = directory / f"python.{part}.{at}"
            if found == "hang":
                os.mkfifo(file)
            else:
                text = found if isinstance(found, str) else json.dumps(found)
                file.write_text(f"a library's greeting\n{text}")
    return python


def healthy(model: str = "NVIDIA H100 80GB HBM3", count: int = 8) -> dict[str, Any]:
    """What `count` healthy GPUs do, as the data sheet of an H100 would have it."""
    gpus = [{"name": model, "uuid": f"GPU-{at}"} for at in range(count)]
    return {
        "devices": [{"torch": "2.13.0", "cuda": "12.8", "gpus": gpus}],
        "memory": [{"value": 2.9e12, "same": True}] * count,
        "product": [{"value": 6.7e14, "same": True}] * count,
        "all_reduce": [{"value": 3.6e11, "same": True}] * count,
    }
