"""What the hooks rely on is in the released sources, for a framework that cannot run here."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from stagewatch.client._install import FRAMEWORKS
from stagewatch.client.hooks import miles, openrlhf
from stagewatch.client.hooks.patching import Patches
from stagewatch.client.hooks.span import Names
from stagewatch.stages import CODES
from tests.client.hooking import frameworks_path

ALL = [import_module(f"stagewatch.client.hooks.{name}").NAMES for name in FRAMEWORKS]
MILES_ACTORS = {
    "miles.backends.megatron_utils.actor": "MegatronTrainRayActor",
    "miles.backends.experimental.fsdp_utils.actor": "FSDPTrainRayActor",
}
"""Their modules want a GPU's libraries; what else the hook replaces is run."""


@pytest.mark.parametrize("name", openrlhf.MODULES)
def test_openrlhf_has_all_that_the_hook_replaces(name: str) -> None:
    plan = openrlhf.MODULES[name]
    plan(shell(name, "openrlhf"), Patches("openrlhf"))  # raises what it misses


@pytest.mark.parametrize("name", MILES_ACTORS)
def test_miles(name: str) -> None:
    assert name in miles.MODULES
    assert hasattr(getattr(shell(name, "miles_rl"), MILES_ACTORS[name]), "update_weights")


def shell(name: str, distribution: str) -> ModuleType:
    """A module with the classes of the released one, whose methods take the same and do nothing.

    A Ray actor's are out of reach, so such classes are left out.
    """
    path = Path(frameworks_path(distribution)) / f"{name.replace('.', '/')}.py"
    module = ModuleType(name)
    for owner in ast.parse(path.read_text()).body:
        if isinstance(owner, ast.ClassDef) and not owner.decorator_list:
            methods = [one for one in owner.body if isinstance(one, ast.FunctionDef)]
            taken = {one.name: [each.arg for each in one.args.args] for one in methods}
            functions = {
                method: eval(f"lambda {', '.join(arguments)}: None")
                for method, arguments in taken.items()
            }
            setattr(module, owner.name, type(owner.name, (), functions))
    return module


@pytest.mark.parametrize("names", ALL, ids=lambda names: names.framework)
def test_every_name_leads_to_a_canonical_stage(names: Names) -> None:
    assert set(names.stages.values()) <= {*CODES, None}
    assert {"idle"}.isdisjoint(names.stages.values())
    assert set(names.roles) <= {*names.stages, "run_agent"}
