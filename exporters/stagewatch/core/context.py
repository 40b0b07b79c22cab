"""What the agents have in common: a few options, and sources that their collectors share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stagewatch.core.config import option, path

Route = Callable[[], tuple[str, bytes]]
"""Makes a further page of an agent: its content type and its body.  `NoData` becomes a 503 with its
text."""
Lookup = Callable[[str], tuple[str, bytes] | None]
"""Makes a page of what stands behind the path's last slash, decoded; `None` where there is none."""


class Context(Protocol):
    """What the collectors of one agent share.  It owns all of it; no collector closes a part."""

    def close(self) -> None:
        """End the shared processes and close the shared files, after the last collection."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What every agent can be told, whatever it collects."""

    listen: tuple[str, int]
    web_config: Path | None = option(
        None,
        "file with TLS and basic authentication, in the format of Prometheus' exporter-toolkit",
        parse=path,
    )

    def title(self) -> str:
        """What the status page calls the machine."""
        return os.uname().nodename

    def records(self) -> Path | None:
        """The directory of stage records that the status page tells of, if there is one."""
        return None
