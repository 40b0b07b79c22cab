"""Expositions compared with files under `fixtures/`, and held against the parsers at hand.

`UPDATE_GOLDEN=1 pytest ...` writes the files anew; look at the difference before committing it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as parse_text

from stagewatch.core.exposition import Samples, render

FIXTURES = Path(__file__).parent / "fixtures"


def assert_golden(samples: Samples, name: str) -> None:
    """The samples' exposition is the golden one, and valid."""
    text = valid(samples)
    file = FIXTURES / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def valid(samples: Samples) -> str:
    """The text exposition, once the parser and promtool have accepted it."""
    text = render(samples).decode()
    assert list(parse_text(text))
    promtool_accepts(text)
    return text


def promtool_accepts(text: str) -> None:
    """`promtool check metrics` has nothing to say; where it is not installed, nothing is asked."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), done.stdout + done.stderr
