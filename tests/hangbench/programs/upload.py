"""A trainer whose first rank has another program upload checkpoints, and waits for its end.

The fault: the program says more than a pipe holds, and nobody reads it before its end.
"""

from __future__ import annotations

import subprocess
import sys
import time

import stagewatch
from stagewatch.core.processes import die_with_parent
from tests.hangbench.programs.part import Part

UPLOAD = """
import sys, time
time.sleep(float(sys.argv[2]))
for number in range(int(sys.argv[1])):
    print(f"uploaded part {number} of the checkpoint", flush=True)
"""


def main() -> None:
    """Train, and upload every tenth step."""
    part = Part()
    while part.step():
        with stagewatch.stage("train"):
            time.sleep(0.5)
            part.all_reduce()
        lines, seconds = 10, 0.1
        if part.struck():
            lines, seconds = (100_000, 0.1) if part.given.fault else (10, part.given.pause)
        if part.rank == 0 and (part.at % 10 == 0 or part.at == part.given.at):
            with stagewatch.stage("checkpoint"):
                command = [sys.executable, "-c", UPLOAD, str(lines), str(seconds)]
                child = subprocess.Popen(
                    command, stdout=subprocess.PIPE, preexec_fn=die_with_parent
                )
                child.wait()


if __name__ == "__main__":
    main()
