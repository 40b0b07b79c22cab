"""A trainer that writes checkpoints under a lock on their folder, which a server that uploads them
takes as well; the server is this script, too.

    python checkpoint_lock.py server NAME DIRECTORY

The fault: the server never comes back from an upload, and keeps the lock.
"""

from __future__ import annotations

import fcntl
import socket
import sys
import time
from pathlib import Path

import stagewatch
from stagewatch.core.processes import die_with_parent
from tests.hangbench.programs.part import Part, directory, find


def write_checkpoint(folder: Path) -> None:
    """Write one while nobody reads."""
    with (folder / "checkpoint.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "checkpoint").write_bytes(bytes(1000))


def serve(name: str, folder: Path) -> None:
    """Upload the last checkpoint again and again; a request says how long the next one takes."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.5)
    fresh = folder / f"server.{name}.new"
    fresh.write_text(str(server.getsockname()[1]))
    fresh.rename(folder / f"server.{name}.port")
    while True:
        seconds = 0.1
        try:
            client, _ = server.accept()
            seconds = float(client.recv(20))
        except TimeoutError:
            client = None
        with (folder / "checkpoint.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if client:
                client.sendall(b"!")
                client.close()
            time.sleep(seconds)


def main() -> None:
    """Train, and write a checkpoint every fifth step."""
    if sys.argv[1] == "server":
        die_with_parent()
        serve(sys.argv[2], Path(sys.argv[3]))
    part = Part()
    while part.step():
        with stagewatch.stage("train"):
            time.sleep(0.5)
            part.all_reduce()
        if part.struck():
            seconds = 86400 if part.given.fault else part.given.pause
            with socket.create_connection(find("server.uploader")) as uploader:
                uploader.sendall(str(seconds).encode())
                uploader.recv(1)
        if part.rank == 0 and part.at % 5 == 0:
            with stagewatch.stage("checkpoint"):
                write_checkpoint(directory())


if __name__ == "__main__":
    main()
