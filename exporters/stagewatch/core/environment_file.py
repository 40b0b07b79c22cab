"""Tells files of variables, which systemd and shells read, from the TOML file of `--config`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

_ASSIGNMENT = re.compile(rb"^[ \t]*(?:export[ \t]+)?STAGEWATCH_\w+=", re.MULTILINE)


def mistaken_for_toml(raw: bytes, file: Path, table: str) -> str:
    """What to do with a file that sets STAGEWATCH_ variables; empty where it does not.

    `table` is the command it was given to.
    """
    if not _ASSIGNMENT.search(raw):
        return ""
    agent = " --agent slurm" if table == "slurm" else ""
    return (
        "is no TOML but an environment file (variables, as systemd reads them); to check it: "
        f"(set -a; . {shlex.quote(str(file.absolute()))}; stagewatch check-config{agent})"
    )
