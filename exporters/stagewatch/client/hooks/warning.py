"""One warning per framework; a trainer's log is not ours to fill."""

from __future__ import annotations

import logging

log = logging.getLogger("stagewatch")

_warned: set[str] = set()


def warn_once(framework: str, message: str) -> None:
    """Log it unless this framework has had its warning."""
    if framework not in _warned:
        _warned.add(framework)
        log.warning("stagewatch: %s: %s", framework, message)
