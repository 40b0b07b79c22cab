"""Watches every PyTorch program whose `PYTHONPATH` has this directory, without changes to it.

Python imports a module of this name when it starts.  This one waits for `import torch`; a program
without torch pays for a few lines, and nothing here can make a program fail.  `STAGEWATCH_OFF=1`
switches it off.  A `sitecustomize` later in the path runs as it would without this one.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes longer


class _Waiting:
    """Begins when Python looks for `torch`; it has no modules itself.

    It stays in the list, since Python is iterating over it.
    """

    begun = False

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch" or self.begun:
            return None
        self.begun = True
        try:
            _begin()
            first = sys.meta_path[0]  # the client's own finder, which Python has not called yet
            return first.find_spec(name, path, target) if first is not self else None
        except Exception:
            return None


def _begin() -> None:
    """Import the client beside this file, whatever else is installed, and hook."""
    if "stagewatch" not in sys.modules:
        root = os.path.dirname(os.path.dirname(_HERE))  # noqa: PTH120
        spec = importlib.util.spec_from_file_location(
            "stagewatch",
            os.path.join(root, "__init__.py"),  # noqa: PTH118
            submodule_search_locations=[root],
        )
        assert spec is not None and spec.loader is not None  # noqa: S101
        package = sys.modules["stagewatch"] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(package)
        except BaseException:
            del sys.modules["stagewatch"]
            raise
    from stagewatch.client._install import watch_program

    watch_program()


def _go_on() -> None:
    """Run the `sitecustomize` that this one hides; its errors are its own."""
    rest = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]  # noqa: PTH100
    sys.path[:] = rest
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if not os.environ.get("STAGEWATCH_OFF"):
    sys.meta_path.insert(0, _Waiting())
_go_on()
