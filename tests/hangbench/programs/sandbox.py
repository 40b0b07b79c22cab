"""A trainer that runs generated code in a process of its own, and reads what that prints.

The fault: the code loops for ever, and nobody has set a time-out.
"""

from __future__ import annotations

import subprocess
import sys
import time

import stagewatch
from stagewatch.core.processes import die_with_parent
from tests.hangbench.programs.part import Part

CODE = """
import sys, time
seconds = float(sys.argv[1])
end = time.monotonic() + seconds
x = 0
while seconds < 0 or time.monotonic() < end:
    x = (x * 31 + 7) % 1000003
    seconds < 0 or time.sleep(0.01)
print(x)
"""


def run(part: Part, seconds: float) -> str:
    """The output of the code."""
    command = [sys.executable, "-c", CODE, str(seconds)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    ) as child:
        if seconds < 0 or seconds > 1:
            part.owns("sandbox", child.pid)
        return child.communicate()[0]


def main() -> None:
    """Train."""
    part = Part()
    while part.step():
        seconds = 0.1
        if part.struck():
            seconds = -1.0 if part.given.fault else part.given.pause
        with stagewatch.stage("reward"):
            run(part, seconds)
        with stagewatch.stage("train"):
            time.sleep(0.5)
            part.all_reduce()


if __name__ == "__main__":
    main()
