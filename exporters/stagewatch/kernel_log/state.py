"""What the reader of the kernel log keeps over a restart of the agent, in one small file.

The place in the log and the counters are written together, so that after a crash the records read
since are read and counted again.  A file of an earlier boot is worth nothing: the log begins anew,
and so do counters "since boot".
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stagewatch.gpu.xids import Seen

Victim = tuple[str, str, str, str]
"""Scope, job, role and rank of killed processes."""


@dataclass(slots=True)
class OomKills:
    """Processes killed for lack of memory."""

    count: int = 0
    last: float = 0.0


@dataclass(slots=True)
class NfsServer:
    """What the kernel last said of an NFS server."""

    since: float | None = None
    """Unix time since which it has not answered, None while it does."""
    outages: int = 0

    def said(self, answers: bool, when: float) -> None:
        """Take note of a line; one about every mount of the server counts once."""
        if answers:
            self.since = None
        elif self.since is None:
            self.since = when
            self.outages += 1


@dataclass(slots=True)
class KmsgState:
    """The whole content of the file."""

    boot_id: str
    sequence: int | None = None
    reclaim_failures: int = 0
    xids: list[Seen] = field(default_factory=list)
    kills: dict[Victim, OomKills] = field(default_factory=dict)
    nfs: dict[str, NfsServer] = field(default_factory=dict)


def load(file: Path, boot_id: str) -> KmsgState:
    """The state of this boot; an empty one where there is none or it cannot be used."""
    try:
        content = json.loads(file.read_text("utf-8"))
        if content["boot_id"] != boot_id:
            return KmsgState(boot_id)
        sequence = content["sequence"]
        return KmsgState(
            boot_id,
            None if sequence is None else int(sequence),
            int(content["reclaim_failures"]),
            [Seen(**seen) for seen in content["xids"]],
            {_victim(kill.pop("victim")): OomKills(**kill) for kill in content["kills"]},
            {name: NfsServer(**server) for name, server in content["nfs"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return KmsgState(boot_id)


def _victim(labels: Any) -> Victim:
    scope, job_id, role, rank = map(str, labels)
    return scope, job_id, role, rank


def save(file: Path, state: KmsgState) -> bool:
    """Write it, whole or not at all; False where that cannot be done."""
    content = {
        "boot_id": state.boot_id,
        "sequence": state.sequence,
        "reclaim_failures": state.reclaim_failures,
        "xids": [asdict(seen) for seen in state.xids],
        "kills": [{"victim": victim, **asdict(kill)} for victim, kill in state.kills.items()],
        "nfs": {name: asdict(server) for name, server in state.nfs.items()},
    }
    new = file.with_suffix(".new")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600), "w", encoding="utf-8") as out:
            json.dump(content, out)
        new.replace(file)
    except OSError:
        return False
    return True
