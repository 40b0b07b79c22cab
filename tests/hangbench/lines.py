"""A function for each entry of a programme, so that a stack says at which one a rank stands, as the
lines of a script do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.hangbench.shape import Shape, flat

Line = Callable[[Callable[..., None], Any, Mapping[str, Any]], None]
_SCRIPT = """\
import sys

sys.path.insert(0, {libraries!r})
from tests.hangbench.process import main

if __name__ == "__main__":
    main()
"""


def script(shape: Shape, directory: Path) -> Path:
    """The script of a job's ranks, in the job's directory: HangBench is a library to it."""
    file = directory / f"{shape.name}.py"
    if not file.exists():
        libraries = directory / "site-packages"
        libraries.mkdir()
        (libraries / "tests").symlink_to(Path(__file__).parents[1])
        file.write_text(_SCRIPT.format(libraries=str(libraries)))
    return file


def lines(shape: Shape) -> dict[int, Line]:
    """The function of each entry of a shape, by the entry's `id`.

    It takes the action, the rank and the action's arguments."""
    return {
        id(entry): _line(f"{part}_{number}", f"{shape.name}.py")
        for part in ("init", "step", "final", "beside")
        for number, entry in enumerate(flat(getattr(shape, part)))
    }


def _line(name: str, file: str) -> Line:
    made: dict[str, Line] = {}
    source = f"def {name}(action, me, arguments): action(me, **arguments)"
    exec(compile(source, file, "exec"), made)
    return made[name]
