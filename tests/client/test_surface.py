"""The public surface, and what it needs."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import stagewatch
from tests.running import Python


def test_all_is_exactly_the_public_surface() -> None:
    public = {
        name
        for name, value in vars(stagewatch).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert sorted(public | {"__version__"}) == stagewatch.__all__


def test_every_public_function_says_what_it_is_for() -> None:
    for name in stagewatch.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(stagewatch, name)), name


def test_the_client_imports_little_of_the_standard_library_and_nothing_else(python: Python) -> None:
    loaded = set(python("import sys, stagewatch; print(*sys.modules)").finish().split())
    # What the interpreter's own start-up imported (an editable install's finder, coverage).
    loaded -= set(python("import sys; print(*sys.modules)").finish().split())
    ours = {name for name in loaded if name.startswith("stagewatch")}
    shared = ("identity", "places", "record", "stages")
    assert {name for name in ours if not name.startswith("stagewatch.client")} == {
        "stagewatch",
        *(f"stagewatch.{name}" for name in shared),
    }
    assert {name.partition(".")[0] for name in loaded - ours} <= sys.stdlib_module_names
    heavy = {"asyncio", "multiprocessing", "argparse", "json", "ctypes", "logging", "inspect"}
    assert not heavy & loaded


def test_recording_starts_no_thread_and_opens_or_imports_nothing_but_the_record(
    python: Python, record_dir: Path
) -> None:
    output = python(
        """
        import os, sys, threading
        import stagewatch

        def files():
            links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
            return {os.readlink(link) for link in links if os.path.lexists(link)}

        before, modules = files(), set(sys.modules)
        stagewatch.init(job_id="540", rank=0, directory=sys.argv[1])
        with stagewatch.stage("train", step=1):
            stagewatch.heartbeat(2)
            stagewatch.scalar("reward", 0.3)
            stagewatch.collective("world")
            opened = [path.rpartition(".")[2] for path in files() - before]
            new = [name for name in set(sys.modules) - modules if "stagewatch" in name]
            print(threading.active_count(), len(os.listdir("/proc/self/task")), *opened, *new)
        """,
        record_dir,
    ).finish()
    assert output.split() == ["1", "1", "rank"]
