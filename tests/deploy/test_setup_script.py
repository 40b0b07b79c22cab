"""setup.sh, with a Python that makes environments whose pip only writes down what it is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.engine import ROOT

PYTHON = """#!/bin/sh
[ "$1" = -m ] || exit 0
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" >> asked\\n' > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""
DEMO, TESTS = "-r deploy/requirements.lock", "-r requirements.lock"


class Checkout:
    """What the script reads of a checkout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("deploy/setup.sh", "deploy/requirements.lock", "requirements.lock"):
            (directory / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(ROOT / name, directory / name)
            os.utime(directory / name, (0, 0))
        self.project = directory / "pyproject.toml"
        self.project.touch()
        os.utime(self.project, (0, 0))
        python = directory / "path" / "python3"
        python.parent.mkdir()
        python.write_text(PYTHON)
        python.chmod(0o755)

    def setup(self, what: str) -> tuple[str, str]:
        """What the script says, and what pip is asked."""
        asked = self.directory / "asked"
        asked.write_text("")
        done = subprocess.run(
            ["sh", str(self.directory / "deploy" / "setup.sh"), what],
            env=os.environ | {"PATH": f"{self.directory}/path:{os.environ['PATH']}"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout, asked.read_text()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_demo_gets_no_more_than_it_needs_and_only_once(checkout: Checkout) -> None:
    said, asked = checkout.setup("demo")
    assert said.startswith("setup: making .venv and installing what the demo needs")
    assert DEMO in asked and TESTS not in asked
    assert checkout.setup("demo") == ("", "")


def test_the_tests_get_theirs_also_after_a_demo(checkout: Checkout) -> None:
    checkout.setup("demo")
    said, asked = checkout.setup("venv")
    assert said.startswith("setup: making .venv and installing what the tests need")
    assert TESTS in asked
    assert checkout.setup("venv") == ("", "")
    assert checkout.setup("demo") == ("", "")


def test_the_tests_environment_is_kept_up_to_date_by_the_demo_too(checkout: Checkout) -> None:
    checkout.setup("venv")
    os.utime(checkout.project, (2e9, 2e9))
    assert TESTS in checkout.setup("demo")[1]


def test_a_newer_list_of_versions_is_installed(checkout: Checkout) -> None:
    checkout.setup("demo")
    os.utime(checkout.directory / "deploy" / "requirements.lock", (2e9, 2e9))
    assert DEMO in checkout.setup("demo")[1]
