"""The cluster's name, from slurm.conf: needed before the controller has answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_PLACES = (
    Path("/etc/slurm/slurm.conf"),
    Path("/run/slurm/conf/slurm.conf"),
    Path("/etc/slurm-llnl/slurm.conf"),
    Path("/usr/local/etc/slurm.conf"),
)
_NAME = re.compile(r"^\s*ClusterName\s*=\s*([\w.-]+)", re.IGNORECASE | re.MULTILINE)


def cluster_name(environ: Mapping[str, str]) -> str:
    """`ClusterName` of the configuration that Slurm's commands use; empty if it cannot be told."""
    given = environ.get("SLURM_CONF")
    for place in (Path(given),) if given else _PLACES:
        try:
            match = _NAME.search(place.read_text(errors="replace"))
        except OSError:
            continue
        if match:
            return match[1].lower()
    return ""
