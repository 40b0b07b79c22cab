"""The budget behind "no syscall": what a million marks cost the kernel."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.running import Python


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_marks_of_progress_make_no_system_call(
    python: Python, record_dir: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    script = python(
        """
        import os, sys
        import stagewatch
        stagewatch.init(directory=sys.argv[1])
        names = ["rollout", "gather_logits"]
        with stagewatch.stage("train"):
            stagewatch.scalar("reward", 0)
            stagewatch.collective("world")
        for name in names:
            with stagewatch.stage(name):
                pass
        os.write(1, b"begin")
        for step in range(20_000):
            stagewatch.heartbeat(step)
            for name in names:
                with stagewatch.stage(name, step=step):
                    stagewatch.scalar("reward", step)
                    stagewatch.collective("world")
        os.write(1, b"end")
        """,
        record_dir,
        prefix=("strace", "-f", "-o", str(trace)),
    )
    output = script.finish(None)
    if "begin" not in output:
        pytest.skip(f"strace may not trace here: {output.strip()[:200]}")
    match = re.search(r'write\(1, "begin"(.*)write\(1, "end"', trace.read_text(), re.DOTALL)
    calls = [line.split(maxsplit=1)[1] for line in match[1].splitlines()[1:-1]]
    # 140,000 marks; the interpreter's allocator may still ask for or return an arena.
    unexpected = [call for call in calls if not call.startswith(("mmap(", "munmap(", "brk("))]
    assert unexpected == []
    assert len(calls) < 20
