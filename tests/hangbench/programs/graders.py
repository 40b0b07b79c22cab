"""Trainers that have answers graded by a reward server, eight at a time by threads; that server
asks a sandbox for each.

What happens, happens to the sandbox: it is broken over its own interface.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import requests

import stagewatch
from tests.hangbench.programs.part import Part, find


def post(server: str, path: str) -> None:
    """Ask a server."""
    host, port = find(f"server.{server}")
    requests.post(f"http://{host}:{port}/{path}").raise_for_status()


def main() -> None:
    """Train."""
    part = Part()
    pause = part.given.pause
    with ThreadPoolExecutor(8) as pool:
        while part.step():
            if part.struck():
                post("sandbox", f"fail/slow/{pause}" if pause else "fail/hang/0")
                if pause:
                    threading.Timer(pause, post, ("sandbox", f"fail/slow/{-pause}")).start()
            with stagewatch.stage("reward"):
                list(pool.map(lambda _: post("reward", "work"), range(8)))
            with stagewatch.stage("train"):
                time.sleep(0.4)
                part.all_reduce()


if __name__ == "__main__":
    main()
