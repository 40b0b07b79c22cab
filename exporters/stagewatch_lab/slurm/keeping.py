"""The owner's side of the keeper: starts processes that cannot outlive this one."""

from __future__ import annotations

import json
import select
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stagewatch.core.children.start import bare_python
from stagewatch.core.errors import StagewatchError

KILL_SECONDS = 60.0
REMOVE_SECONDS = 60.0
"""How long `close` waits for the end of the processes, and then of the directories."""


@dataclass
class Keeper:
    """A connection to one keeper process; use it as a context manager."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(
            bare_python("stagewatch_lab.slurm.keeper"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The keeper's own process."""
        return self._process.pid

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path) -> int:
        """Start a process in the background; returns its pid."""
        where = {"log": str(log), "cwd": str(cwd)}
        return int(self._ask({"argv": list(argv), "env": dict(env), **where})["pid"])

    def status(self, pid: int) -> int | None:
        """The exit status of a process (negative: killed by that signal), `None` while it runs."""
        found = self._ask({"pid": pid})["status"]
        return None if found is None else int(found)

    def make_directory(self, prefix: str) -> Path:
        """A directory that is removed with everything in it when the keeper ends.

        Every user may look into it: jobs of other users read their scripts there.
        """
        directory = Path(self._ask({"prefix": prefix})["directory"])
        directory.chmod(0o755)
        return directory

    def close(self) -> None:
        """Kill everything that was started; wait for its end and for the removal of directories.

        If that takes too long (20,000 jobs on a busy machine), the keeper goes on removing them
        alone, even after this process.
        """
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None or to.closed:
            return
        to.close()
        end = select.poll()
        end.register(back)
        if not end.poll(KILL_SECONDS * 1000):
            self._process.kill()  # and the kernel kills what it started
        back.close()
        try:
            self._process.wait(REMOVE_SECONDS)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self._process.wait, daemon=True).start()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None:
            raise StagewatchError("the keeper has no pipes")
        with self._lock:
            to.write(json.dumps(request).encode() + b"\n")
            to.flush()
            reply: dict[str, Any] = json.loads(back.readline())
            return reply
