"""A Python that has PyTorch and some GPUs, as `stagewatch qualify --python` runs it: a stand-in.

Run with what a worker is run with.  `figures.json` beside the script says what each GPU does: by
part a list of what its worker prints, `hang` for one that never does.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def python_with(directory: Path, figures: dict[str, Any]) -> Path:
    """The path of such a Python."""
    directory.mkdir(exist_ok=True)
    (directory / "figures.json").write_text(json.dumps(figures))
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {directory} "$@"\n')
    python.chmod(0o755)
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


def main() -> None:
    """Print what the worker of a part and a GPU would."""
    directory, _, part, asked = Path(sys.argv[1]), *sys.argv[2:]
    arguments = json.loads(asked)
    figures = json.loads((directory / "figures.json").read_text())
    at = arguments.get("gpu") or 0
    found = figures[part][at]
    if found == "hang":
        time.sleep(600)
    print("a library's greeting\n" + (found if isinstance(found, str) else json.dumps(found)))


if __name__ == "__main__":
    main()
