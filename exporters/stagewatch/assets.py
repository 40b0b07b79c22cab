"""Where the alert rules and dashboards are: in the wheel, or beside the sources in a checkout."""

from __future__ import annotations

from pathlib import Path

from stagewatch.core.errors import StagewatchError

_PACKAGE = Path(__file__).parent


def assets(name: str) -> Path:
    """The directory `alerts` or `dashboards`."""
    for candidate in (_PACKAGE / "_assets" / name, _PACKAGE.parent.parent / name):
        if candidate.is_dir():
            return candidate
    raise StagewatchError(f"this installation lacks its {name}: install stagewatch again")
