"""Jobs for the tests of the helper process; each is run in a worker of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from stagewatch.core.children.worker import Report


def count(arguments: dict[str, Any], leftover: Any, report: Report) -> dict[str, Any]:
    """How often it ran, by what earlier runs kept."""
    report.keep((leftover or 0) + 1)
    return {"before": leftover or 0, "pid": os.getpid(), "parent": os.getppid(), **arguments}


def crash(arguments: dict[str, Any], leftover: Any, report: Report) -> dict[str, Any]:
    """End without a result."""
    raise ValueError("on purpose")


def flood(arguments: dict[str, Any], leftover: Any, report: Report) -> dict[str, Any]:
    """A result beyond every limit."""
    return {"text": "x" * (8 << 20)}


def sleep(arguments: dict[str, Any], leftover: Any, report: Report) -> dict[str, Any]:
    """Not end while a file is there."""
    report.phase("asleep")
    with Path(arguments["pids"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    while Path(arguments["while"]).exists():
        time.sleep(0.01)
    return {}
