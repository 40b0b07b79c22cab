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


def test_the_client_needs_the_standard_library_alone(python: Python) -> None:
    output = python(
        """
        import sys
        import stagewatch
        print(*{name.partition(".")[0] for name in sys.modules})
        """
    ).finish()
    loaded = set(output.split()) - {"__main__", "stagewatch"}
    site = {name for name in loaded if name not in sys.stdlib_module_names}
    # What the interpreter's own start-up imported (an editable install's finder, coverage).
    bare = set(python("import sys; print(*sys.modules)").finish().split())
    assert site - bare == set()


def test_of_the_agent_a_trainer_imports_the_shared_modules_alone(python: Python) -> None:
    output = python(
        """
        import sys
        import stagewatch
        print(*(name for name in sys.modules if name.startswith("stagewatch.")))
        """
    ).finish()
    outside = {name for name in output.split() if not name.startswith("stagewatch.client")}
    shared = ("identity", "places", "record", "stages")
    assert outside == {f"stagewatch.{name}" for name in shared}


def test_the_client_does_not_import_what_a_trainer_need_not_pay_for(python: Python) -> None:
    output = python(
        """
        import sys
        import stagewatch
        print(*sys.modules)
        """
    ).finish()
    heavy = {"asyncio", "multiprocessing", "argparse", "json", "ctypes", "logging", "inspect"}
    assert not heavy & set(output.split())


def test_recording_starts_no_thread_and_opens_nothing_but_the_record(
    python: Python, record_dir: Path
) -> None:
    output = python(
        """
        import os, sys, threading
        import stagewatch

        def files():
            links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
            return {os.readlink(link) for link in links if os.path.lexists(link)}

        before = files()
        stagewatch.init(job_id="540", rank=0, directory=sys.argv[1])
        with stagewatch.stage("train", step=1):
            stagewatch.heartbeat(2)
            stagewatch.scalar("reward", 0.3)
            stagewatch.collective("world")
            opened = [path.rpartition(".")[2] for path in files() - before]
            print(threading.active_count(), len(os.listdir("/proc/self/task")), *opened)
        """,
        record_dir,
    ).finish()
    assert output.split() == ["1", "1", "rank"]


def test_a_trainer_that_changes_its_user_needs_nothing_more_of_the_disk(python: Python) -> None:
    output = python(
        """
        import sys
        import stagewatch
        before = set(sys.modules)
        stagewatch.init(job_id="540", rank=0, directory="/nonexistent")
        with stagewatch.stage("train", step=1):
            stagewatch.heartbeat(1)
        print("new:", *(each for each in set(sys.modules) - before if "stagewatch" in each))
        """
    ).finish()
    assert output.splitlines()[-1] == "new:"
