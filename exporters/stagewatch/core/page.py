"""The look that all pages share."""

from __future__ import annotations

from importlib import resources


def style(package: str, name: str) -> str:
    """The common style sheet, and below it a package's own."""
    own = resources.files(package) / "templates" / name
    return (resources.files(__package__) / "page.css").read_text("utf-8") + own.read_text("utf-8")
