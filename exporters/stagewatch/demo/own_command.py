"""How somebody in another terminal calls the `stagewatch` that is running here."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def own_command() -> str:
    """Words for a shell: the plain name where the PATH leads to this installation, else its path,
    from the working directory where it is below that."""
    script = Path(sys.argv[0]).absolute()
    if script.name != "stagewatch":  # python -m stagewatch
        return f"{_shown(Path(sys.executable).absolute())} -m stagewatch"
    found = shutil.which("stagewatch")
    if found and script.exists() and Path(found).samefile(script):
        return "stagewatch"
    return _shown(script)


def _shown(file: Path) -> str:
    """A path that a shell takes for one, also without a directory."""
    here = Path.cwd()
    if not file.is_relative_to(here):
        return shlex.quote(str(file))
    relative = str(file.relative_to(here))
    return shlex.quote(relative if "/" in relative else f"./{relative}")
