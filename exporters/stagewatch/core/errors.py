"""The one family of errors that stagewatch raises."""

from __future__ import annotations


class StagewatchError(Exception):
    """Base of every error raised on purpose; its text says what to do."""


class ConfigError(StagewatchError):
    """A flag, variable or file holds something that cannot be used."""


class SourceError(StagewatchError):
    """Something outside the agent (a driver, a file, a command) gave no usable answer."""


class NoData(StagewatchError):
    """This node has nothing to read; not a failure."""


class Stuck(SourceError):
    """A call missed its deadline and may still be in progress."""
