"""The JSON is what the content files say, and agents never load the library that writes it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from stagewatch.dashboards.generate import main, stale
from tests.dashboards.boards import DIRECTORY, NAMES


def test_the_committed_json_is_up_to_date() -> None:
    assert stale(DIRECTORY) == []
    sources = {path.name.removesuffix(".dashboard.py") for path in DIRECTORY.glob("*.dashboard.py")}
    assert sources == set(NAMES)


def test_an_edited_a_missing_and_an_orphaned_file_are_told(tmp_path: Path) -> None:
    copy = tmp_path / "dashboards"
    shutil.copytree(DIRECTORY, copy)
    (copy / "generated" / "job.json").write_text("{}\n")
    (copy / "generated" / "network.json").unlink()
    (copy / "generated" / "gone.json").write_text("{}\n")
    assert {path.stem for path in stale(copy)} == {"job", "network", "gone"}
    assert main(["--check", str(copy)]) == 1
    assert main([str(copy)]) == 0
    assert main(["--check", str(copy)]) == 0
    assert not (copy / "generated" / "gone.json").exists()


def test_a_board_imports_the_sections_beside_it_and_those_of_no_other_directory(
    tmp_path: Path,
) -> None:
    for name in ("ours", "theirs"):
        sections = tmp_path / name / "sections"
        sections.mkdir(parents=True)
        (sections / "__init__.py").write_text("")
        (sections / "subject.py").write_text(f"TITLE = {name!r}\n")
        (tmp_path / name / "small.dashboard.py").write_text(
            "from sections.subject import TITLE\ndashboard = {'title': TITLE}\n"
        )
        assert main([str(tmp_path / name)]) == 0
        generated = tmp_path / name / "generated" / "small.json"
        assert json.loads(generated.read_text()) == {"title": name}
        assert str(tmp_path / name) not in sys.path


def test_every_section_is_on_a_board() -> None:
    boards = "".join(path.read_text() for path in DIRECTORY.glob("*.dashboard.py"))
    imported = set(re.findall(r"^from sections\.(\w+) import", boards, re.MULTILINE))
    modules = {path.stem for path in (DIRECTORY / "sections").glob("*.py")} - {"__init__"}
    assert modules == imported


def test_a_directory_without_content_is_an_error(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1


def test_agents_do_not_load_the_library() -> None:
    code = (
        "import sys, stagewatch.cli, stagewatch.node, stagewatch.slurm.agent\n"
        "assert 'grafanalib' not in sys.modules and 'stagewatch.dashboards' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
