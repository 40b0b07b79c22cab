"""The rules of the house, read from the imports: see CONTRIBUTING.md and docs/design.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("structure")  # which reads all imports once
ROOT = Path(__file__).parent.parent / "exporters"
PRODUCT = "stagewatch"

SUBJECTS = {
    "gpu", "ranks", "slurm", "storage", "network", "kernel_log", "logs", "clock", "faults",
}  # fmt: skip

LAYERS: list[set[str]] = [
    {"stages"},
    {"record", "identity", "places"},
    {"client"},
    {"core"},
    {"host", "prometheus", "checkpoint"},
    SUBJECTS,
    {"judgement"},
    {"act", "web", "incidents", "report", "dashboards", "assets"},
    {"inspect", "died", "lemons", "runbooks"},
    {"agent"},
    {"node"},
    {"check", "demo", "keeper", "run", "trace", "whatif", "qualify"},
    {"top"},
    {"cli"},
    {"__main__"},
]
"""Rooms from the ground up: each imports itself and those below it."""

CONTRACTS: dict[tuple[str, str], set[str]] = {
    ("faults", "ranks"): {"directory"},  # the process behind a target
    ("gpu", "slurm"): {"node_jobs"},  # the job of a process, and of a GPU by the prolog
    ("kernel_log", "gpu"): {"xids"},  # an XID is seen by the driver, by the log or by both
    ("kernel_log", "slurm"): {"node_jobs"},  # the job of a control group that ran out of memory
    ("ranks", "slurm"): {"node_jobs"},  # the job that Slurm has put a rank's process into
    ("slurm", "gpu"): {"model_names"},  # nvidia_h100 of Slurm is h100 of the driver
}
"""Modules of a subject that another subject may import: small, and meant for it."""

CONTEXT = "node_context"
"""What the node's collectors share, made of contracts of these rooms; the list hands it out."""
CONTEXT_PARTS = {"core", "record", "host", "gpu", "ranks"}

LISTS = {"stagewatch.slurm.agent": "node", "stagewatch.judgement.service": "node"}
"""The lists of the Slurm agent and of the judge stand where the node agent's does."""


def files_of() -> dict[str, Path]:
    """The file of each module of ours; packages by their name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in (PRODUCT, "stagewatch_lab")
        for path in (ROOT / package).rglob("*.py")
    }


@lru_cache
def imports() -> dict[str, set[str]]:
    """What each module of ours imports of ours, types included."""
    files = files_of()
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def _imported(path: Path, files: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in files else node.module if node.module in files else ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)


def room(module: str) -> str:
    """`gpu` of `stagewatch.gpu.nvml.driver`."""
    return LISTS.get(module) or (module.split(".")[1] if "." in module else "")


def test_no_imports_go_round_in_a_circle() -> None:
    arrows = {name: uses - {""} for name, uses in imports().items()}
    while leaves := [name for name, uses in arrows.items() if not uses & arrows.keys()]:
        for name in leaves:
            del arrows[name]
    circle = {name: sorted(uses & arrows.keys()) for name, uses in arrows.items()}
    assert not circle


def test_arrows_point_one_way() -> None:
    height = {name: level for level, names in enumerate(LAYERS) for name in names}
    wrong = []
    for module, uses in imports().items():
        for used in uses:
            mine, other = room(module), room(used)
            if not (mine and other) or mine == other or module.startswith("stagewatch_lab"):
                continue
            if mine == CONTEXT:
                allowed = other in CONTEXT_PARTS
            elif other == CONTEXT:
                allowed = mine in {"keeper", "node"}
            elif (mine, other) in CONTRACTS:
                allowed = used.split(".")[2] in CONTRACTS[mine, other]
            else:
                allowed = height[mine] > height[other] and used.startswith(PRODUCT + ".")
            if not allowed:
                wrong.append(f"{module} imports {used}")
    assert not sorted(wrong)


def test_every_contract_is_used() -> None:
    used = {(room(module), target) for module, uses in imports().items() for target in uses}
    declared = {
        (mine, f"{PRODUCT}.{other}.{name}")
        for (mine, other), names in CONTRACTS.items()
        for name in names
    }
    assert declared <= used


def test_the_client_knows_the_record_and_nothing_else_of_ours() -> None:
    for module, uses in imports().items():
        if room(module) == "client":
            outside = {used for used in uses if used and room(used) != "client"}
            assert outside <= {
                f"{PRODUCT}.{name}" for name in ("stages", "record", "identity", "places")
            }, module


def test_no_file_repeats_the_name_of_its_folder() -> None:
    modules = [name for name in imports() if name.startswith(PRODUCT)]
    parts = [name.split(".")[-2:] for name in modules if name.count(".") > 1]
    assert not [own for folder, own in parts if own.startswith(folder.rstrip("s"))]


def test_no_prefix_stands_in_for_a_package() -> None:
    for package in (file.parent for file in ROOT.rglob("__init__.py")):
        names = [path.stem.lstrip("_") for path in package.glob("*.py")]
        prefixes = [name.partition("_")[0] for name in names if "_" in name]
        assert not {prefix for prefix in prefixes if prefixes.count(prefix) > 2}, package


def test_every_room_says_what_it_is() -> None:
    """What flows through it, and which file to open first."""
    for name in {room(module) for module in files_of()} - {""}:
        package = ROOT / PRODUCT / name
        if package.is_dir():
            text = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
            assert text and len(text.splitlines()) >= 3, name
