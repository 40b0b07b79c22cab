"""That no signal is lost, whenever it comes."""

from __future__ import annotations

import subprocess
import sys

# A signal a few microseconds ahead, over and over, hits every moment of going to sleep.
PROGRAM = """
import signal, sys
from stagewatch.agent import incoming
signals = incoming(signal.SIGALRM, signal.SIGTERM)
for n in range(5000):
    signal.setitimer(signal.ITIMER_REAL, (10 + n % 40) / 1e6)
    assert next(signals) == signal.SIGALRM
signal.raise_signal(signal.SIGTERM)
print(next(signals).name)
"""


def test_every_signal_arrives_however_close_to_the_wait_it_comes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "SIGTERM\n"
