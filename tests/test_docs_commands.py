"""Every command of the pages: run here, run by another test, or listed with the reason why not.

`docs_commands.toml` says which.  What is run here meets a node agent, a judge and a Prometheus on
the ports of the pages, in a network and a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from stagewatch.cli import _parser
from tests.running import clean_environ, output
from tests.test_docs import PAGES, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEDGER = Path(__file__).with_name("docs_commands.toml")
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SCENE = Path(__file__).with_name("docs_scene.sh")


@cache
def commands() -> dict[str, str]:
    """Each command of the pages, without its comment, and the first page that has it."""
    found: dict[str, str] = {}
    for page in [*PAGES, ROOT / "tests" / "hangbench" / "README.md"]:
        for block in BLOCK.findall(page.read_text()):
            for command in whole(block):
                found.setdefault(command, str(page.relative_to(ROOT)))
    return found


def whole(block: str) -> list[str]:
    """The commands of a block; one ends where a shell finds it complete."""
    found, pending = [], ""
    for line in block.splitlines():
        pending += line + "\n"
        read = subprocess.run(["bash", "-n"], input=pending.encode(), capture_output=True)
        if read.returncode == 0 and not line.endswith("\\"):
            found.append(re.sub(r"\s+# .*", "", pending.strip()))
            pending = ""
    assert not pending, f"no shell reads {pending}"
    return [command for command in found if command and not command.startswith("#")]


@cache
def ledger() -> dict[str, tuple[str, object]]:
    """What becomes of the commands that begin with these words; the longest words count."""
    content = tomllib.loads(LEDGER.read_text())
    return {
        words: (kind, what) for kind, entries in content.items() for words, what in entries.items()
    }


def entry(command: str) -> str | None:
    """The words of the ledger that a command begins with."""
    plain = re.sub(r"\s+", " ", command.replace("\\\n", " "))
    return max((words for words in ledger() if plain.startswith(words)), key=len, default=None)


def test_every_command_is_run_or_has_a_reason() -> None:
    assert not [f"{page}: {command}" for command, page in commands().items() if not entry(command)]


def test_no_entry_is_left_over() -> None:
    assert set(ledger()) == {entry(command) for command in commands()}


def test_the_tests_that_are_named_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words, (kind, what) in ledger().items():
        if kind == "test":
            assert isinstance(what, str)
            make, _, target = what.partition(" ")
            assert target in targets if make == "make" else (ROOT / what).exists(), words


def test_stagewatch_takes_each_of_its_commands() -> None:
    """Flags, names and numbers of arguments; capital letters stand for a site's own."""
    refused = []
    for command, page in commands().items():
        if command.startswith("stagewatch "):
            lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
            end = next((n for n, word in enumerate(words) if set(word) <= set("|;&<>")), None)
            argv = [word.replace("URL", "http://prometheus:9090") for word in words[1:end]]
            try:
                if argv[0] != "check":  # which has a parser of its own
                    _parser(argv).parse_args(argv)
            except SystemExit:
                refused.append(f"{page}: {command}")
    assert not refused


@pytest.mark.xdist_group("docs-commands")
@pytest.mark.timeout(240)
def test_what_can_be_run_ends_as_the_ledger_says(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, for namespaces")
    wanted = {each: entry(each) for each in commands()}
    run = {each: ledger()[words][1] for each, words in wanted.items()
           if words and ledger()[words][0] == "run"}  # fmt: skip
    (tmp_path / "commands.json").write_text(json.dumps(list(run)))
    environ = clean_environ({"PYTHONPATH": f"{ROOT / 'exporters'}:{ROOT}", "ROOT": str(ROOT)})
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ.get('PATH', os.environ['PATH'])}"
    spaces = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    output("unshare", *spaces, "bash", SCENE, cwd=tmp_path, env=environ, timeout=200)
    ended = json.loads((tmp_path / "ended.json").read_text())
    assert not {
        command: (status, text)
        for command, (status, text) in ended.items()
        if status not in cast(list[int], run[command])
    }
