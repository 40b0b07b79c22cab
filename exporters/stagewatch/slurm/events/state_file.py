"""Keeps an agent's counters over restarts, in one small JSON file.

Written whole to a temporary file and renamed, so that a crash leaves the old or the new one.  A
file that cannot be read is put aside, and counting begins anew: counters that restart at 0 are
what Prometheus expects, wrong ones are not.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

VERSION = 1
MAX_BYTES = 256 * 1024 * 1024


class StateFile:
    """One JSON object in a file.  Failures are logged once, and told by `ok`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ok = True
        self._said = ""

    def load(self) -> Mapping[str, Any] | None:
        """What was saved; `None` where there is nothing, or nothing that can be used."""
        try:
            if self.path.stat().st_size > MAX_BYTES:
                raise ValueError("it is too large")
            saved = json.loads(self.path.read_bytes())
            if not isinstance(saved, dict) or saved.get("version") != VERSION:
                raise ValueError("it is of another version")
        except FileNotFoundError:
            return None
        except OSError as error:
            self._failed(f"cannot be read ({error.strerror}); counters begin at 0")
            return None
        except (ValueError, RecursionError) as error:
            self.reject(str(error))
            return None
        return saved

    def reject(self, why: str) -> None:
        """Put aside a file whose content cannot be used."""
        aside = self.path.with_name(self.path.name + ".corrupt")
        try:
            self.path.replace(aside)
        except OSError:
            aside = self.path
        self._failed(f"is not usable: {why}; kept as {aside.name}, counters begin at 0")

    def save(self, content: Mapping[str, Any]) -> None:
        """Replace the file."""
        data = json.dumps({"version": VERSION, **content}, separators=(",", ":")).encode()
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as error:
            self._failed(
                f"cannot be written ({error.strerror}); counters will begin at 0 after a restart"
            )
        else:
            self.ok, self._said = True, ""

    def _failed(self, message: str) -> None:
        self.ok = False
        if message != self._said:
            log.warning("state file %s %s", self.path, message)
            self._said = message
