"""A question to a child that is begun, and asked for its answer later."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from stagewatch.core.children.supervisor import Supervisor
from stagewatch.core.errors import Stuck
from tests.waiting import wait_for

CHILD = """
import json, os, sys
for line in sys.stdin:
    while not os.path.exists(json.loads(line)):
        pass
    print(json.dumps("there"), flush=True)
"""


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    def start() -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe, stderr=pipe)

    found = Supervisor("the child", start, start_timeout=3600.0, timeout=0.2)
    yield found
    found.close()


def test_who_begins_a_question_goes_on_until_there_is_an_answer(
    supervisor: Supervisor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("question") / "file"
    supervisor.begin(str(file))
    assert supervisor.answer(str) is None
    file.touch()
    assert wait_for(lambda: supervisor.answer(str), "it has answered") == "there"
    supervisor.begin(str(file.with_name("absent")))

    def too_late() -> bool:
        try:
            return supervisor.answer(str) is not None
        except Stuck:
            return True

    wait_for(too_late, "the deadline has passed")
    wait_for(lambda: supervisor.pid is None, "the child is gone")
