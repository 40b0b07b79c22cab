"""The reader process: answers each line of JSON on its input with one on its output.

`stagewatch.gpu.reader` starts it, and nobody by hand.  It may hang in the driver for good, so it
owns nothing that matters: no socket, no file, no lock.  It ends when its input does, when its
parent dies, or on SIGTERM as soon as the call in progress has returned.  It never shuts NVML down
first, since that can hang too and the kernel does it anyway.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import BinaryIO

from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.processes import die_with_parent
from stagewatch.gpu.nvml.driver import Driver


def serve(requests: BinaryIO, replies: int) -> None:
    """Answer until the input ends or the session with the driver is of no use any more.

    The first request opens the driver.
    """
    driver: Driver | None = None
    while line := requests.readline():
        try:
            driver = driver or Driver()
            reply = driver.read(json.loads(line)["tiers"])
        except NoData as error:
            reply = {"error": str(error), "kind": "no_data"}
        except SourceError as error:
            reply = {"error": str(error), "kind": "failed"}
        text = json.dumps(reply, separators=(",", ":")).encode() + b"\n"
        while text:
            text = text[os.write(replies, text) :]
        if "error" in reply:
            return


def main() -> None:
    """Run as `python -m stagewatch.gpu.nvml.child PARENT_PID`."""
    die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's business
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    replies = os.dup(1)
    os.dup2(2, 1)  # what the driver prints must not end up among the replies
    os.set_blocking(2, False)  # and is rather lost than waits for a reader
    with os.fdopen(0, "rb", closefd=False) as requests:
        serve(requests, replies)
    os._exit(0)


if __name__ == "__main__":
    main()
