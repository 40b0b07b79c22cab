"""What the agents have in common: a few options, and sources that their collectors share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stagewatch.core.config import option, path

Route = Callable[[], tuple[str, bytes]]
"""Makes an additional page of an agent: its content type and its body. `NoData` becomes a 503 with
its text."""
Lookup = Callable[[str], tuple[str, bytes] | None]
"""Makes a page from the part of the path after the last slash, decoded; `None` if there is no "
"such page."""


class Context(Protocol):
    """What the collectors of one agent share. The context owns it; no collector closes a part of "
    "it."""

    def close(self) -> None:
        """End the shared processes and close the shared files, after the last collection."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of every agent."""

    listen: tuple[str, int]
    web_config: Path | None = option(
        None,
        "file with TLS and basic authentication, in the format of Prometheus' exporter-toolkit",
        parse=path,
    )

    def title(self) -> str:
        """The machine's name on the status page."""
        return os.uname().nodename

    def records(self) -> Path | None:
        """The directory of stage records that the status page mentions, if there is one."""
        return None
